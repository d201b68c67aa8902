"""Progress of work that is counted in bytes: a bar on a terminal, lines elsewhere.

Owns when it is shown: not before a second has passed, and not under --quiet. Does not do the work.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kvcli.dashboard import LINE_SECONDS, choose_mode
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.sizes import format_size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE = 1.0
"""Seconds of work about which nothing is said."""


class ByteProgress:
    """Shows how far work is while it is open; leaves nothing on a terminal.

    Args:
        what: The work, as a participle: "checking".
        options: Whether and how.
        output: Where.
    """

    def __init__(self, what: str, options: RunOptions, output: Output) -> None:
        self._what = what
        self._mode = choose_mode(options, output)
        self._output = output
        self._next = time.monotonic() + PATIENCE
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def update(self, done: int, total: int) -> None:
        """Say how many bytes are done of how many."""
        now = time.monotonic()
        if self._mode == "off" or now < self._next:
            return
        if self._mode == "line":
            self._next = now + LINE_SECONDS
            self._output.status(f"{self._what} {format_size(done)} of {format_size(total)}")
            return
        progress, task = self._bar = self._bar or self._open_bar()
        progress.update(task, completed=done, total=total)

    def _open_bar(self) -> tuple[Progress, TaskID]:
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
        from rich.progress import TransferSpeedColumn as Speed

        columns = (BarColumn(), DownloadColumn(), Speed(), TimeRemainingColumn())
        progress = Progress(
            f"{self._what} ", *columns, console=self._output.console, transient=True
        )
        progress.start()
        return progress, progress.add_task(self._what)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()
