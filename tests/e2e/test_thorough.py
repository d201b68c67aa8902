"""Thorough answers: every section is asked, and what was said comes with its source."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from child_kit import Spawn, Terminal, slow_steps
from cli_kit import BOOK_LINES as LINES
from cli_kit import Kvcli, stored_ids

from kvcli import thorough
from kvcli.thorough import ThoroughSearch
from kvcli.visits import Visit

SHORT = ("--max-tokens", 12)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """References of the sections that are asked."""
    seen: list[str] = []
    real = ThoroughSearch._line

    def line(search: ThoroughSearch, visit: Visit, *arguments: object) -> object:
        seen.append(visit.section.reference)
        return real(search, visit, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ThoroughSearch, "_line", line)
    return seen


def test_every_section_is_asked(kvcli: Kvcli, book: Path, asked: list[str]) -> None:
    ran = kvcli("ask", *SHORT, "--doc", book, "--thorough", "Which pier?", "--json")
    assert ran.code == 0, ran.err
    assert len(asked) == 3
    assert asked[0].startswith("book.txt:1-") and asked[-1].endswith(f"-{LINES}")
    assert "sections: 3 sections to read" in ran.err
    result = ran.json
    assert result["answer"]
    said = {tuple(one["lines"]) for one in result["sections"]}
    assert said and {tuple(found["lines"]) for found in result["citations"]} == said
    assert sum(found["weight"] for found in result["citations"]) == pytest.approx(1.0, abs=0.001)


def test_a_session_is_asked_thoroughly_without_remembering_it(
    kvcli: Kvcli, book: Path, asked: list[str]
) -> None:
    direct = kvcli("ask", *SHORT, "--doc", book, "--thorough", "Which pier?", "--json").json
    kvcli("ingest", book, "-o", "s.kv")
    before = stored_ids(Path("s.kv"))
    for command in (["resume", "s.kv"], ["ask", "--session", "s.kv"]):
        asked.clear()
        ran = kvcli(*command, *SHORT, "--thorough", "--json", "Which pier?")
        assert (ran.json["answer"], ran.json["sections"]) == (direct["answer"], direct["sections"])
        assert ran.json["usage"]["recomputed_tokens"] == 0
        assert len(asked) == 3
    assert stored_ids(Path("s.kv")) == before


def test_documents_inside_the_window_can_be_asked_thoroughly(
    kvcli: Kvcli, notes: Path, asked: list[str]
) -> None:
    ran = kvcli("ask", *SHORT, "--doc", notes, "--thorough", "Which pier?", "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["mode"], asked) == ("exact", ["notes.txt:1-20"])


def test_when_no_section_answers_it_says_so(
    kvcli: Kvcli, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thorough, "is_worth_something", lambda *_: False)
    ran = kvcli("ask", *SHORT, "--doc", book, "--thorough", "Which pier?")
    assert ran.code == 0
    assert ran.out == "Not found: none of 3 sections gave an answer.\n"
    assert "sources" not in ran.err
    result = kvcli("ask", *SHORT, "--doc", book, "--thorough", "Which pier?", "--json").json
    assert (result["found"], result["sections"], result["citations"]) == (False, [], [])


def test_a_section_that_stands_out_is_asked_again_without_a_way_out(
    kvcli: Kvcli, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manners: list[str] = []
    real = ThoroughSearch._ask

    def ask(search: ThoroughSearch, *arguments: object) -> str:
        manners.append(str(arguments[2]))
        real(search, *arguments)  # type: ignore[arg-type]
        return "" if arguments[2] == thorough.OR_NONE else "pier 7"

    monkeypatch.setattr(ThoroughSearch, "_ask", ask)
    monkeypatch.setattr(thorough, "STANDS_OUT", 1.0)
    result = kvcli("ask", *SHORT, "--doc", book, "--thorough", "Which pier?", "--json").json
    assert manners.count(thorough.OR_NONE) == 3
    assert manners.count(thorough.IN_ONE_LINE) == 1
    assert [one["text"] for one in result["sections"]] == ["pier 7"]


def test_an_answer_too_long_for_the_window_is_refused_before_any_section(
    kvcli: Kvcli, book: Path, asked: list[str]
) -> None:
    ran = kvcli("ask", "--max-tokens", 1500, "--doc", book, "--thorough", "Which pier?")
    assert ran.code == 4
    assert "more than the window of 2,048" in ran.error[0]
    assert asked == []


def test_an_interrupted_search_keeps_what_was_read(spawn: Spawn, kvcli: Kvcli, book: Path) -> None:
    kvcli("ingest", book, "-o", "s.kv")
    child = spawn("resume", "s.kv", "--thorough", "Which pier?", scenario=slow_steps)
    child.wait_for("step4")
    child.send(signal.SIGINT)
    ran = child.end()
    assert (ran.code, ran.out) == (130, "")
    assert "tokens are kept in s.kv" in ran.error[0]
    assert ran.error[1] == "  Go on with: kvcli resume s.kv"


def test_a_chat_can_be_thorough(
    spawn: Spawn, kvcli: Kvcli, notes: Path, terminal: Terminal
) -> None:
    kvcli("ingest", notes, "-o", "s.kv")
    child = spawn("resume", "s.kv", "--thorough", "--max-tokens", 6, "--dashboard", "off",
                  "--color", "never", terminal=terminal.name)  # fmt: skip
    terminal.read_until("> ")
    terminal.type("Which pier?\n")
    terminal.read_until("> ", 2)
    terminal.type("/exit\n")
    assert child.end().code == 0
    assert "sections: 1 section to read" in terminal.screen
