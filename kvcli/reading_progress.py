"""Progress of reading documents: a bar on a terminal, lines elsewhere.

Owns when it is shown: not before a second has passed, and not under --quiet. Does not read.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kvcli.byte_progress import PATIENCE
from kvcli.corpus.spans import Progress
from kvcli.dashboard import LINE_SECONDS, choose_mode
from kvcli.options import RunOptions
from kvcli.output import Output, clean

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


class ReadingProgress:
    """Shows how far reading is while it is open; leaves nothing on a terminal.

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

    def update(self, progress: Progress) -> None:
        """Say where reading is now."""
        now = time.monotonic()
        if self._mode == "off" or now < self._next:
            return
        if self._mode == "line":
            self._next = now + LINE_SECONDS
            self._output.status(f"reading {told(progress)}")
            return
        bar, task = self._bar = self._bar or self._open_bar()
        bar.update(task, completed=share(progress), description=f"reading {told(progress)}")

    def _open_bar(self) -> tuple[Bar, TaskID]:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        # the text is a file's name, which must not be taken for markup
        text = TextColumn("{task.description}", markup=False)
        columns = (text, BarColumn(), TimeRemainingColumn())
        bar = Bar(*columns, console=self._output.console, transient=True)
        bar.start()
        return bar, bar.add_task("reading", total=1.0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()


def told(progress: Progress) -> str:
    """Write where reading is: `report.pdf, page 120 of 2,415; file 3 of 7`."""
    parts = [clean(progress.path)]
    if progress.num_pages:
        parts[0] += f", page {progress.pages_done:,} of {progress.num_pages:,}"
    if progress.num_files > 1:
        file = min(progress.files_done + 1, progress.num_files)
        parts.append(f"file {file:,} of {progress.num_files:,}")
    return "; ".join(parts)


def share(progress: Progress) -> float:
    """How much is read, from 0 to 1; all files count the same."""
    of_file = progress.pages_done / progress.num_pages if progress.num_pages else 0.0
    return min(1.0, (progress.files_done + of_file) / max(1, progress.num_files))
