"""Progress of reading documents, counted in files and pages.

Owns what is said of it. Does not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcli.corpus.spans import Progress
from kvcli.output import clean
from kvcli.patient_progress import PatientProgress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class ReadingProgress(PatientProgress):
    """Shows how far reading is. Arguments as for `PatientProgress`."""

    def update(self, progress: Progress) -> None:
        """Say where reading is now."""
        line = f"reading {told(progress)}"
        self._show(line, completed=share(progress), total=1.0, description=line)

    def _make_bar(self) -> Bar:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        # the text is a file's name, which must not be taken for markup
        text = TextColumn("{task.description}", markup=False)
        columns = (text, BarColumn(), TimeRemainingColumn())
        return Bar(*columns, console=self._output.console, transient=True)


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
