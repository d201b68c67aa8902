"""Summaries beyond the window: notes on sections, kept as they are made, and never made twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from child_kit import Spawn, mark
from cli_kit import BOOK_LINES as LINES
from cli_kit import Kvcli, check_refused, kv_tokens, stored_ids

from engine.session import SessionFile
from kvcli import run
from kvcli.prompts import SUMMARY_QUESTION
from kvcli.sections import Section
from kvcli.side_reader import SideReader, SideText
from kvcli.summary import SectionSummary

SHORT = ("--max-tokens", 12)


@pytest.fixture
def read_sections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """References of the sections that are read, as it happens."""
    seen: list[str] = []
    real = SideReader.section

    @contextmanager
    def section(reader: SideReader, section: Section) -> Iterator[SideText]:
        seen.append(section.reference)
        with real(reader, section) as reading:
            yield reading

    monkeypatch.setattr(SideReader, "section", section)
    return seen


def stored_notes(path: str) -> list[dict[str, Any]]:
    with SessionFile.open(Path(path), writable=False) as file:
        notes: list[dict[str, Any]] = file.notes.get("sections", [])
        return notes


# -- what comes out --------------------------------------------------------------------------------


def test_documents_beyond_the_window_are_summarised_by_sections(kvcli: Kvcli, book: Path) -> None:
    """Every line is in one of the sections, in order; the sources are sections."""
    ran = kvcli("summarize", *SHORT, book, "--json")
    assert ran.code == 0, ran.err
    result = ran.json
    assert result["answer"]
    assert result["mode"] == "focus"
    sections = result["sections"]
    assert len(sections) == 3
    assert sections[0]["lines"][0] == 1 and sections[-1]["lines"][1] == LINES
    assert all(set(one) == {"reference", "path", "page", "lines", "text"} for one in sections)
    known = {tuple(one["lines"]) for one in sections}
    assert result["citations"]
    assert {tuple(found["lines"]) for found in result["citations"]} <= known
    assert "so they are read section by section" in ran.err
    assert "notes: 3 sections to read" in ran.err


def test_notes_are_printed_under_the_summary_when_asked_for(kvcli: Kvcli, book: Path) -> None:
    plain = kvcli("summarize", *SHORT, book)
    shown = kvcli("summarize", *SHORT, book, "--sections")
    sections = kvcli("summarize", *SHORT, book, "--json").json["sections"]
    assert shown.out.startswith(plain.out)
    lines = shown.out[len(plain.out) :].splitlines()
    assert [line for line in lines if line.startswith("book.txt:")] == [
        section["reference"] for section in sections
    ]
    assert "book.txt:" not in plain.out


def test_inside_the_window_one_request_does_unless_sections_are_asked_for(
    kvcli: Kvcli, notes: Path, read_sections: list[str]
) -> None:
    plain = kvcli("summarize", *SHORT, notes, "--json").json
    assert (plain["mode"], plain["sections"], read_sections) == ("exact", [], [])
    for more in (["--sections"], ["--attention", "focus"]):
        read_sections.clear()
        noted = kvcli("summarize", *SHORT, notes, "--json", *more).json
        assert (
            [one["reference"] for one in noted["sections"]] == read_sections == ["notes.txt:1-20"]
        )


def test_notes_that_cannot_be_read_at_once_are_summarised_in_rounds(
    kvcli: Kvcli, book: Path
) -> None:
    """A window of 400 tokens: sections of 192, and rounds of notes on notes."""
    ran = kvcli("summarize", *SHORT, book, "--window", 400, "--page-tokens", 16, "--json")
    assert ran.code == 0, ran.err
    assert len(ran.json["sections"]) > 10
    assert "round 2: " in ran.err
    for found in ran.json["citations"]:
        assert 1 <= found["lines"][0] <= found["lines"][1] <= LINES


def test_sections_can_be_given_by_their_stored_kv(kvcli: Kvcli, book: Path) -> None:
    """The documents are read as a whole first, and no section is read again."""
    stored = kvcli("summarize", *SHORT, book, "--attention", "stored", "--json")
    assert stored.code == 0, stored.err
    reread = kvcli("summarize", *SHORT, book, "--json").json
    references = [section["reference"] for section in stored.json["sections"]]
    assert references == [section["reference"] for section in reread["sections"]]
    assert stored.json["timings"]["ingest_s"] is not None
    assert reread["timings"]["ingest_s"] is None


def test_exact_attention_beyond_the_window_is_still_refused(
    kvcli: Kvcli, book: Path, tmp_path: Path
) -> None:
    ran = kvcli("summarize", book, "--attention", "exact")
    check_refused(ran, 4, "more than the window of 2,048", tmp_path)


def test_a_window_too_small_for_sections_is_refused(kvcli: Kvcli, book: Path) -> None:
    ran = kvcli("summarize", book, "--window", 100)
    assert ran.code == 4
    assert "leaves no room to read sections" in ran.error[0]


# -- sessions --------------------------------------------------------------------------------------


def test_a_second_summary_of_a_session_reads_no_section_again(
    kvcli: Kvcli, book: Path, read_sections: list[str]
) -> None:
    first = kvcli("summarize", *SHORT, book, "--session", "s.kv", "--json").json
    assert len(read_sections) == 3
    assert kv_tokens(Path("s.kv")) == len(stored_ids(Path("s.kv")))
    again = kvcli("summarize", *SHORT, "s.kv", "--json").json
    assert len(read_sections) == 3
    for name in ("answer", "citations", "sections"):
        assert again[name] == first[name]
    assert again["usage"]["recomputed_tokens"] == 0


def test_notes_on_notes_are_kept_as_well(
    kvcli: Kvcli, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time nothing but the summary is written."""
    small = ("--window", 400, "--page-tokens", 16)
    first = kvcli("summarize", *SHORT, *small, book, "--session", "s.kv", "--json").json
    written: list[str] = []
    real = SideReader.write

    def write(reader: SideReader, text: SideText, request: str, *more: Any) -> Any:
        written.append(request)
        return real(reader, text, request, *more)

    monkeypatch.setattr(SideReader, "write", write)
    again = kvcli("summarize", *SHORT, "--window", 400, "s.kv", "--json").json
    assert written == [SUMMARY_QUESTION]
    assert again["answer"] == first["answer"]


def test_a_session_gives_the_summary_of_its_documents(kvcli: Kvcli, book: Path) -> None:
    assert kvcli("ingest", book, "-o", "s.kv").code == 0
    kept = kvcli("summarize", *SHORT, "s.kv", "--json").json
    direct = kvcli("summarize", *SHORT, book, "--json").json
    assert (kept["answer"], kept["sections"]) == (direct["answer"], direct["sections"])


def test_a_session_inside_the_window_is_summarised_by_one_request(
    kvcli: Kvcli, notes: Path
) -> None:
    kvcli("ingest", notes, "-o", "s.kv")
    kept = kvcli("summarize", *SHORT, "s.kv", "--json").json
    assert (kept["mode"], kept["sections"]) == ("exact", [])
    assert kept["answer"] == kvcli("summarize", *SHORT, notes, "--json").json["answer"]


def test_a_session_without_room_for_the_request_is_summarised_by_sections(
    kvcli: Kvcli, notes: Path
) -> None:
    kvcli("ingest", notes, "-o", "s.kv")
    ran = kvcli("summarize", "s.kv", "--max-tokens", 500, "--window", 1200, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["sections"]


def test_a_session_among_other_paths_is_refused(kvcli: Kvcli, notes: Path, tmp_path: Path) -> None:
    kvcli("ingest", notes, "-o", "kept.kv")
    for more in ([notes], ["--session", "other.kv"]):
        ran = kvcli("summarize", "kept.kv", *more)
        check_refused(ran, 2, "kept.kv is a session with documents of its own", tmp_path)


def test_other_sections_are_read_for_another_window(
    kvcli: Kvcli, book: Path, read_sections: list[str]
) -> None:
    """Notes belong to the tokens that they are about."""
    kvcli("summarize", *SHORT, book, "--session", "s.kv")
    read_sections.clear()
    assert kvcli("summarize", *SHORT, "s.kv", "--window", 1500).code == 0
    assert len(read_sections) > 3


# -- interrupted -----------------------------------------------------------------------------------


def marked_notes() -> None:
    """Say each note when it has been handed over to be kept."""
    real, count = SectionSummary._keep, 0

    def keep(summary: SectionSummary, *arguments: Any) -> str:
        nonlocal count
        text = real(summary, *arguments)
        count += 1
        mark(f"note{count}")
        return text

    SectionSummary._keep = keep  # type: ignore[method-assign]


def committed_notes() -> None:
    run.NOTE_SECONDS = 0.0
    marked_notes()


@pytest.mark.parametrize(
    ("number", "scenario"), [(signal.SIGINT, marked_notes), (signal.SIGKILL, committed_notes)]
)
def test_an_interrupted_summary_goes_on_where_it_was(
    spawn: Spawn,
    kvcli: Kvcli,
    book: Path,
    read_sections: list[str],
    number: signal.Signals,
    scenario: Any,
) -> None:
    """No note is made twice, and the summary is that of a run that nobody stopped."""
    child = spawn("summarize", *SHORT, book, "--session", "s.kv", scenario=scenario)
    child.wait_for("note1")
    child.send(number)
    ran = child.end()
    assert ran.out == ""
    kept = stored_notes("s.kv")
    assert 1 <= len(kept) <= 2
    if number is signal.SIGINT:
        assert ran.code == 130
        assert f"tokens are kept in s.kv and {len(kept)} of 3 notes" in ran.error[0]
        assert ran.error[1] == "  Go on with: kvcli summarize s.kv"
    resumed = kvcli("summarize", *SHORT, "s.kv", "--json").json
    assert len(read_sections) == 3 - len(kept)
    assert stored_notes("s.kv")[: len(kept)] == kept
    direct = kvcli("summarize", *SHORT, book, "--json").json
    assert (resumed["answer"], resumed["sections"]) == (direct["answer"], direct["sections"])


def test_an_unfinished_ingest_is_finished_before_its_summary(
    kvcli: Kvcli, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("kvcli.run.Run.read", lambda _: None)
        assert kvcli("ingest", book, "-o", "s.kv").code == 0
    assert kv_tokens(Path("s.kv")) == 0
    result = kvcli("summarize", *SHORT, "s.kv", "--json").json
    assert result["usage"]["recomputed_tokens"] == len(stored_ids(Path("s.kv")))
    assert kv_tokens(Path("s.kv")) == len(stored_ids(Path("s.kv")))
    assert len(result["sections"]) == 3
