"""Progress that is shown only of work that takes a while: a bar on a terminal, lines elsewhere.

Owns when it is shown: not before a second has passed, and not under --quiet. What it says and what
the bar looks like is for those who count the work.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kvcli.dashboard import LINE_SECONDS, choose_mode
from kvcli.options import RunOptions
from kvcli.output import Output

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

PATIENCE = 1.0
"""Seconds of work about which nothing is said."""


class PatientProgress(ABC):
    """Shows how far work is while it is open; leaves nothing on a terminal.

    Args:
        options: Whether and how.
        output: Where.
    """

    def __init__(self, options: RunOptions, output: Output) -> None:
        self._mode = choose_mode(options, output)
        self._output = output
        self._next = time.monotonic() + PATIENCE
        self._bar: tuple[Bar, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def _show(self, line: str, **fields: Any) -> None:
        """Say where the work is now: as a line, or by these fields of the bar's task."""
        now = time.monotonic()
        if self._mode == "off" or now < self._next:
            return
        if self._mode == "line":
            self._next = now + LINE_SECONDS
            self._output.status(line)
            return
        if self._bar is None:
            bar = self._make_bar()
            bar.start()
            self._bar = bar, bar.add_task(line)
        bar, task = self._bar
        bar.update(task, **fields)

    @abstractmethod
    def _make_bar(self) -> Bar:
        """A bar for this kind of work, not started."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()
