"""Progress of work that is counted in bytes.

Owns what is said of it. Does not do the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.patient_progress import PatientProgress
from kvcli.sizes import format_size

if TYPE_CHECKING:
    from rich.progress import Progress


class ByteProgress(PatientProgress):
    """Shows how many bytes are done.

    Args:
        what: The work, as a participle: "checking".
        options: Whether and how.
        output: Where.
    """

    def __init__(self, what: str, options: RunOptions, output: Output) -> None:
        super().__init__(options, output)
        self._what = what

    def update(self, done: int, total: int) -> None:
        """Say how many bytes are done of how many."""
        line = f"{self._what} {format_size(done)} of {format_size(total)}"
        self._show(line, completed=done, total=total)

    def _make_bar(self) -> Progress:
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
        from rich.progress import TransferSpeedColumn as Speed

        columns = (BarColumn(), DownloadColumn(), Speed(), TimeRemainingColumn())
        return Progress(f"{self._what} ", *columns, console=self._output.console, transient=True)
