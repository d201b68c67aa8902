"""When the state of the tiers is shown: live on a terminal, as lines elsewhere, or not at all.

Owns the refresh and its thread, and gives the screen back whatever happens. Does not draw
(dashboard_view.py) and does not measure (`engine.telemetry`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType, TracebackType
from typing import Literal, Self

from rich.live import Live

from engine.telemetry import Link, Telemetry
from kvcli.dashboard_view import LivePanel, strip_columns
from kvcli.options import RunOptions
from kvcli.output import Output, clean
from kvcli.progress import History, closing_line, progress_line

FRAME_SECONDS = 0.25
"""Shortest time between two frames of the live view."""
FRAME_SHARE = 0.01
"""Most of the time that drawing them may take: who draws holds the interpreter, and compute waits.
Four frames a second cost a tenth of the speed of decoding with the default model."""
LINE_SECONDS = 3.0


class Dashboard:
    """Shows a run while it is open; prints one closing line at its end, unless --quiet.

    Args:
        telemetry: What to show.
        options: Whether and how.
        output: Where; its console is shared, so that status lines appear above the live view.
        model: Name for the title.
        limits: Bytes per second that links were measured to do at most, where that is known.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        options: RunOptions,
        output: Output,
        model: str,
        limits: Mapping[Link, float] = MappingProxyType({}),
    ) -> None:
        self.mode = choose_mode(options, output)
        self._telemetry = telemetry
        self._output = output
        self._model = clean(model)
        self._limits = limits
        self._closes_with_line = not options.quiet
        # an answer that goes elsewhere than to this screen disturbs nothing
        self._shares_screen = output.stdout_is_terminal and output.stderr_is_terminal
        self._shows_nothing_on_stdout = options.json
        self._history = History()
        self._live: Live | None = None
        self._painter: threading.Thread | None = None
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        sample = self._telemetry.sample()
        if self._closes_with_line and (sample.tokens_done or sample.decoded_tokens):
            self._output.status(closing_line(sample))

    @contextmanager
    def pause(self, *, for_input: bool = False) -> Iterator[None]:
        """Leave the screen to an answer that streams to it; does nothing if it goes elsewhere.

        Args:
            for_input: Leave it to what is typed there instead, wherever answers go.
        """
        answers_here = self._shares_screen and not self._shows_nothing_on_stdout
        if not for_input and not answers_here:
            yield
            return
        self._stop()
        try:
            yield
        finally:
            self._start()

    @contextmanager
    def give_way(self, show: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
        """Leave the screen to an answer from its first words on: what comes before takes seconds.

        Args:
            show: Writes a piece of the answer.

        Yields:
            What the answer is to be handed to instead, piece by piece.
        """
        with ExitStack() as screen:
            is_away = False

            def show_alone(text: str) -> None:
                nonlocal is_away
                if text and not is_away:
                    is_away = True
                    screen.enter_context(self.pause())
                show(text)

            yield show_alone

    def _start(self) -> None:
        if self.mode == "live":
            self._live = Live(
                get_renderable=self._draw,
                console=self._output.console,
                auto_refresh=False,
                transient=True,
                # stdout is the answer's; Live must not put itself in between
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)
            self._paint(self._draw_frames)
        elif self.mode == "line":
            self._paint(self._print_lines)

    def _paint(self, paint: Callable[[], None]) -> None:
        self._stopping.clear()
        self._painter = threading.Thread(target=paint, name="dashboard", daemon=True)
        self._painter.start()

    def _stop(self) -> None:
        if self._painter is not None:
            painter, self._painter = self._painter, None
            self._stopping.set()
            painter.join()
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def _draw_frames(self) -> None:
        assert self._live is not None
        live, pause = self._live, FRAME_SECONDS
        while not self._stopping.wait(pause):
            begun = time.thread_time()
            live.refresh()
            pause = max(FRAME_SECONDS, (time.thread_time() - begun) / FRAME_SHARE)

    def _draw(self) -> LivePanel:
        sample = self._telemetry.sample()
        rates = self._history.add(sample)
        shown = self._telemetry.ask_map(strip_columns(self._output.console.width))
        return LivePanel(sample, self._history, rates, self._model, shown, self._limits)

    def _print_lines(self) -> None:
        while not self._stopping.wait(LINE_SECONDS):
            sample = self._telemetry.sample()
            self._output.status(progress_line(sample, self._history.add(sample)))


def choose_mode(options: RunOptions, output: Output) -> Literal["live", "line", "off"]:
    """What `auto` means here; --quiet always wins."""
    if options.quiet:
        return "off"
    if options.dashboard == "auto":
        return "live" if output.stderr_is_terminal else "line"
    if options.dashboard == "live" and not output.stderr_is_terminal:
        return "line"  # nothing to draw on
    return options.dashboard
