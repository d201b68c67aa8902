"""The two streams: stdout carries the answer alone, everything else goes to stderr.

Owns colour and terminal decisions, each stream for itself, and keeps control characters of
documents and models away from both. Knows nothing of what is said. Rich is imported on first use,
so that a run that prints nothing styled starts fast.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from engine.errors import KVError
from kvcli.options import RunOptions
from kvcli.results import Citation, error_json, plain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.style import StyleType

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Interrupted(KVError):
    """Ctrl-C. The message says what was kept; a bare KeyboardInterrupt kept nothing."""

    exit_code = 130


def clean(text: str) -> str:
    """Drop what a terminal would obey: ESC and other control characters, bidi overrides.

    Newline and tab stay. Lone surrogates, of file names that are not UTF-8, become U+FFFD.
    """
    return _SURROGATE.sub("\ufffd", _CONTROL.sub("", text))


class Output:
    """Where a command speaks.

    Args:
        options: Which of json, quiet, verbose and color were asked for.
        stdout: For tests; None is the process's.
        stderr: For tests; None is the process's.
    """

    def __init__(
        self, options: RunOptions, stdout: TextIO | None = None, stderr: TextIO | None = None
    ) -> None:
        self._options = options
        # Python leaves a stream None when its descriptor was closed before the start
        self._stdout = stdout or sys.stdout or _Closed()
        self._stderr = stderr or sys.stderr or io.StringIO()
        self._answer_open = False

    # -- stdout ------------------------------------------------------------------------------

    def answer_token(self, text: str) -> None:
        """Stream a piece of the answer; says nothing under --json, where it is a field."""
        if self._options.json or not text:
            return
        shown = clean(text)
        self._stdout.write(shown)
        self._stdout.flush()
        self._answer_open = not shown.endswith("\n") if shown else self._answer_open

    def end_answer(self) -> None:
        """End the streamed answer with exactly one newline."""
        if self._answer_open:
            self._stdout.write("\n")
            self._stdout.flush()
        self._answer_open = False

    def json(self, result: dict[str, Any]) -> None:
        """Print the one object of `--json`."""
        text = json.dumps(result, ensure_ascii=False, allow_nan=False, default=plain)
        self._stdout.write(_SURROGATE.sub("\ufffd", text) + "\n")
        self._stdout.flush()

    def show(self, renderable: RenderableType) -> None:
        """Print the result of a command that is not an answer: a table, a tree."""
        console = self.stdout_console
        with console.capture() as capture:
            console.print(renderable)
        text = capture.get()
        if not console.is_terminal:  # the padding of cells is for screens
            text = "".join(line.rstrip() + "\n" for line in text.splitlines())
        self._stdout.write(text)
        self._stdout.flush()

    # -- stderr ------------------------------------------------------------------------------

    def status(self, text: str) -> None:
        """Say what is going on; not under --quiet."""
        if not self._options.quiet:
            self._say(text, "dim")

    def detail(self, text: str) -> None:
        """Say what only --verbose wants."""
        if self._options.verbose and not self._options.quiet:
            self._say(text, "dim")

    def warn(self, text: str) -> None:
        """Say what the user should know; not under --quiet, where it is in the JSON at most."""
        if not self._options.quiet:
            self._say(f"warning: {text}", "yellow")

    def citations(self, citations: Iterable[Citation]) -> None:
        """List the sources of the answer, heaviest first, on stderr; fields under --json."""
        found = list(citations)
        if self._options.json or self._options.quiet or not found:
            return
        self._say("sources", "bold")
        for citation in found:
            self._say(f"  {citation.weight:4.0%}  {citation.text or citation.path}", "cyan")

    def error(self, message: str, advice: str, exit_code: int) -> None:
        """Say why the run failed: two lines on stderr, or an object on stdout under --json."""
        if self._options.json:
            self.json(error_json(clean(message), clean(advice), exit_code))
            return
        self._say(f"kvcli: error: {message}", "bold red")
        if advice:
            self._say(f"  {advice}", "")

    def _say(self, text: str, style: StyleType) -> None:
        with contextlib.suppress(OSError):  # an answer is worth more than what is said about it
            self.console.print(clean(text), style=style, soft_wrap=True)

    # -- consoles ----------------------------------------------------------------------------

    @property
    def stdout_is_terminal(self) -> bool:
        """Whether a person reads the answer as it comes."""
        return _is_terminal(self._stdout)

    @property
    def stderr_is_terminal(self) -> bool:
        """Whether stderr can be drawn on: a terminal that obeys escapes."""
        return _is_terminal(self._stderr) and os.environ.get("TERM") != "dumb"

    @cached_property
    def console(self) -> Console:
        """The console on stderr; FORCE_COLOR counts here."""
        return self._make_console(self._stderr, force=None)

    @cached_property
    def stdout_console(self) -> Console:
        """The console on stdout; only --color always puts escapes into a pipe."""
        return self._make_console(self._stdout, force=self.stdout_is_terminal)

    def _make_console(self, stream: TextIO, force: bool | None) -> Console:
        from rich.console import Console

        color = self._options.color
        piped = not _is_terminal(stream)
        console = Console(
            file=stream,
            force_terminal=True
            if color == "always"
            else False
            if color == "never" and piped
            else force,
            no_color=True if color == "never" else False if color == "always" else None,
            # a table in a file is read by tools: it has no screen to fit
            width=200 if piped and "COLUMNS" not in os.environ else None,
            markup=False,
            emoji=False,
            highlight=False,
        )
        # Rich would close stdout and exit, whichever of the two streams broke
        console.on_broken_pipe = _raise_broken_pipe  # type: ignore[method-assign]
        return console


def _raise_broken_pipe() -> None:
    raise BrokenPipeError


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


class _Closed(io.StringIO):
    """Stands in for a stdout that was closed before the start: nobody can read the answer."""

    def write(self, text: str, /) -> int:
        raise BrokenPipeError
