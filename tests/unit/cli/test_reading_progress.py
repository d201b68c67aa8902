"""Progress of reading: silent for a second, then where it is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import kvcli.patient_progress as patient_progress
from kvcli.corpus.spans import Progress
from kvcli.documents import read_with_progress
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.reading_progress import ReadingProgress, share, told


def spoken(monkeypatch: pytest.MonkeyPatch, options: RunOptions, seconds: list[float]) -> str:
    """What is said of a 500-page PDF if updates come after so many seconds."""
    clock = iter([0.0, *seconds])
    monkeypatch.setattr(patient_progress.time, "monotonic", lambda: next(clock))
    heard = io.StringIO()
    with ReadingProgress(options, Output(options, stderr=heard)) as progress:
        for at, _ in enumerate(seconds, 1):
            progress.update(Progress("a.pdf", 0, 1, 100 * at, 500))
    return heard.getvalue()


def test_nothing_is_said_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spoken(monkeypatch, RunOptions(), [0.3, 0.9]) == ""


def test_then_a_line_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    said = spoken(monkeypatch, RunOptions(), [0.5, 1.1, 1.2, 2.0, 4.2])
    assert said == "reading a.pdf, page 200 of 500\nreading a.pdf, page 500 of 500\n"


def test_quiet_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spoken(monkeypatch, RunOptions(quiet=True), [2.0, 9.0]) == ""


def test_files_and_pages_are_told_and_counted() -> None:
    among = Progress("src/\x1b[31ma.pdf", 2, 7, 50, 100)
    assert told(among) == "src/[31ma.pdf, page 50 of 100; file 3 of 7"
    assert share(among) == pytest.approx(2.5 / 7)
    assert (told(Progress("b.txt", 7, 7)), share(Progress("b.txt", 7, 7))) == (
        "b.txt; file 7 of 7",
        1,
    )


def test_reading_documents_tells_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The callback was there all along, and no command used it."""
    monkeypatch.setattr(patient_progress, "PATIENCE", 0.0)
    (tmp_path / "a.txt").write_text("hello")
    heard = io.StringIO()
    read_with_progress(RunOptions(), [str(tmp_path / "a.txt")], Output(RunOptions(), stderr=heard))
    assert heard.getvalue() == f"reading {tmp_path / 'a.txt'}\n"
