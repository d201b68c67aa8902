"""`--lookup`: the sketch from the command line, from ingest to a later question."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Kvcli, Ran
from session_faults import flip

from engine.attention import sketch
from engine.lookup import BASIS, CODES
from engine.session import SessionFile

TEXT = "\n\n".join(
    f"Chapter {number}. The ferry {number} leaves when the lamp is lit. " + "It rains. " * 12
    for number in range(60)
)
QUESTION = ("resume", "s.kv", "When does the ferry leave?", "--max-tokens", 4, "--json")


@pytest.fixture(autouse=True)
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sketch, "BASIS_TOKENS", 512)
    Path("a.txt").write_text(TEXT)


def attachments() -> list[tuple[str, int]]:
    with SessionFile.open(Path("s.kv"), writable=False) as file:
        return [(attachment.name, attachment.offset) for attachment in file.attachments]


def ingest(kvcli: Kvcli, *options: object) -> None:
    assert kvcli("ingest", "a.txt", "-o", "s.kv", "--attention", "focus", *options).code == 0


def sketch_warnings(ran: Ran) -> list[str]:
    return [warning for warning in ran.json["warnings"] if "sketch" in warning]


def read_bytes(kvcli: Kvcli, lookup: str) -> int:
    """Ask a copy of the session; gives the bytes that were read for it."""
    kept = Path("s.kv").read_bytes()
    ran = kvcli(*QUESTION, "--lookup", lookup)
    Path("s.kv").write_bytes(kept)
    assert ran.code == 0 and sketch_warnings(ran) == []
    read: int = ran.json["io"]["read_bytes"]
    return read


def test_a_resumed_question_takes_the_sketch_instead_of_the_keys(kvcli: Kvcli) -> None:
    ingest(kvcli)
    assert {name for name, _ in attachments()} == {BASIS, CODES}
    assert read_bytes(kvcli, "auto") == read_bytes(kvcli, "sketch") < read_bytes(kvcli, "scan")


def test_scan_makes_no_sketch(kvcli: Kvcli) -> None:
    ingest(kvcli, "--lookup", "scan")
    assert attachments() == []
    assert read_bytes(kvcli, "sketch") == read_bytes(kvcli, "scan")


def test_documents_read_exactly_have_no_sketch(kvcli: Kvcli) -> None:
    Path("a.txt").write_text(TEXT[:1500])
    assert kvcli("ingest", "a.txt", "-o", "s.kv").code == 0
    assert attachments() == []


def test_a_damaged_sketch_is_a_warning(kvcli: Kvcli) -> None:
    ingest(kvcli)
    flip(Path("s.kv"), dict(attachments())[CODES] + 9)
    ran = kvcli(*QUESTION)
    assert ran.code == 0 and ran.json["answer"] is not None
    (warning,) = sketch_warnings(ran)
    assert warning.startswith("part of the key sketch is lost, keys are read instead: ")


def test_another_word_is_refused(kvcli: Kvcli) -> None:
    assert kvcli("ingest", "a.txt", "-o", "s.kv", "--lookup", "guess").code == 2
