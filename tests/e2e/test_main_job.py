"""The main job in one command: documents in, an answer with its sources out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli_kit import WINDOW, Kvcli, stored_ids
from reportlab.pdfgen.canvas import Canvas
from tiny_models import END, tiny_tokenizer

from kvcli.output import clean

FIELDS = {
    "answer": str,
    "found": bool,
    "citations": list,
    "sections": list,
    "usage": dict,
    "tiers": list,
    "io": dict,
    "timings": dict,
    "session": (str, type(None)),
    "model": str,
    "mode": str,
    "skipped": list,
    "warnings": list,
}
SHORT = ("--max-tokens", 12)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PDF of three pages, labelled i, ii, 1."""
    monkeypatch.chdir(tmp_path)
    path = Path("report.pdf")
    canvas = Canvas(str(path))
    for number, style in enumerate(("ROMAN_LOWER", "ROMAN_LOWER", "ARABIC")):
        canvas.drawString(72, 700, f"Page {number + 1} says that pier {number} is sound.")
        if number in (0, 2):
            canvas.addPageLabel(number, style=style, start=1)
        canvas.showPage()
    canvas.save()
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "src").mkdir(parents=True)
    (root / "README.md").write_text("# Bridges\n\nHow to inspect a bridge.\n")
    (root / "src" / "pier.py").write_text(
        "def paint(pier):\n    return pier\n\n\ndef dry():\n    pass\n"
    )
    (root / "ignored.txt").write_text("never read\n")
    (root / ".gitignore").write_text("ignored.txt\n")
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


# -- answers and sources ---------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["summarize", "ask"])
def test_stdout_carries_the_answer_alone(kvcli: Kvcli, notes: Path, command: str) -> None:
    """The answer streamed as text is the answer of the JSON object, and ends with one newline."""
    given = [notes] if command == "summarize" else ["--doc", notes, "Which pier was painted?"]
    spoken = kvcli(command, *SHORT, *given)
    written = kvcli(command, *SHORT, *given, "--json")
    assert (spoken.code, written.code) == (0, 0)
    assert spoken.out.strip() == clean(written.json["answer"]).strip()
    assert spoken.out.endswith("\n") and not spoken.out.endswith("\n\n")
    assert "tokens" in spoken.err
    assert clean(written.json["answer"]) not in spoken.err


def test_json_has_every_field_and_nothing_else_is_on_stdout(kvcli: Kvcli, notes: Path) -> None:
    result = kvcli("ask", *SHORT, "--doc", notes, "--json", "Which pier?").json
    assert list(result) == list(FIELDS)
    assert all(isinstance(result[name], kind) for name, kind in FIELDS.items())
    assert set(result["usage"]) == {
        "prompt_tokens",
        "reused_tokens",
        "recomputed_tokens",
        "new_tokens",
    }
    assert set(result["io"]) == {
        "read_bytes", "written_bytes", "stall_s", "compute_s", "idle_s", "stalls",
        "prefetch", "read_ahead", "major_faults",
    }  # fmt: skip
    assert sum(result["io"]["stalls"].values()) == pytest.approx(result["io"]["stall_s"], abs=0.01)
    assert set(result["timings"]) == {"load_s", "ingest_s", "first_token_s", "decode_s"}
    assert all(
        set(tier) == {"name", "capacity_bytes", "used_bytes", "pages"} for tier in result["tiers"]
    )
    assert all(
        set(found) == {"path", "page", "label", "lines", "name", "weight"}
        for found in result["citations"]
    )


def test_usage_counts_every_token_once(kvcli: Kvcli, notes: Path) -> None:
    result = kvcli("ask", *SHORT, "--doc", notes, "--session", "s.kv", "--json", "Which pier?").json
    ids = stored_ids(Path("s.kv"))
    ended = ids[-1] in tiny_tokenizer().convert_tokens_to_ids([END, "<|endoftext|>"])
    usage = result["usage"]
    assert usage["prompt_tokens"] + usage["new_tokens"] + ended == len(ids)
    assert (usage["reused_tokens"], usage["recomputed_tokens"]) == (0, 0)


def test_a_repository_a_document_and_standard_input_are_read_in_that_order(
    kvcli: Kvcli, repository: Path, report: Path
) -> None:
    """Documents first, then repositories; ignored files are not there."""
    ran = kvcli("ask", *SHORT, "--repo", repository, "--doc", report, "--doc", "-", "--session",
                "s.kv", "Which pier?", stdin=b"From the pipe.\n")  # fmt: skip
    assert ran.code == 0
    seen = kvcli("inspect", "s.kv", "--json").json["notes"]["sources"]
    assert seen == [str(report), "stdin", "README.md", ".gitignore", "src/pier.py"]


@pytest.mark.parametrize("command", ["summarize", "ask"])
def test_citations_name_pages_and_lines_that_exist(
    kvcli: Kvcli, notes: Path, report: Path, command: str
) -> None:
    given = (
        [notes, report] if command == "summarize" else ["--doc", notes, "--doc", report, "Pier?"]
    )
    found = kvcli(command, *SHORT, *given, "--json").json["citations"]
    assert found
    lines = len(notes.read_text().splitlines())
    for citation in found:
        if citation["path"] == str(notes):
            first, last = citation["lines"]
            assert 1 <= first <= last <= lines
        else:
            assert citation["path"] == str(report)
            assert (citation["page"], citation["label"]) in {(1, "i"), (2, "ii"), (3, "1")}
    weights = [citation["weight"] for citation in found]
    assert weights == sorted(weights, reverse=True)
    assert sum(weights) <= 1.0001


def test_citations_are_listed_on_stderr(kvcli: Kvcli, notes: Path) -> None:
    given = ["ask", *SHORT, "--doc", notes, "Which pier?"]
    listed = kvcli(*given).err.splitlines()
    found = kvcli(*given, "--json").json["citations"]
    for citation in found:
        first, last = citation["lines"]
        assert f"  {citation['weight']:4.0%}  {notes}:{first}-{last}" in listed


def test_an_answer_that_was_cut_is_said_to_be(kvcli: Kvcli, notes: Path) -> None:
    given = ["ask", "--max-tokens", 1, "--doc", notes, "Which pier?"]
    told = "the answer was cut at --max-tokens 1"
    assert f"warning: {told}" in kvcli(*given).err.splitlines()
    assert told in kvcli(*given, "--json").json["warnings"]


# -- what is said ----------------------------------------------------------------------------------


def test_quiet_leaves_the_answer_alone(kvcli: Kvcli, notes: Path) -> None:
    ran = kvcli("ask", *SHORT, "--doc", notes, "--quiet", "Which pier?")
    assert ran.code == 0
    assert ran.out.strip()
    assert ran.err == ""


def test_the_plan_line_says_mode_and_why(kvcli: Kvcli, notes: Path) -> None:
    ran = kvcli("ingest", notes, "-o", "s.kv")
    tokens = len(stored_ids(Path("s.kv")))
    assert f"{tokens:,} tokens, exact attention: they fit the window of {WINDOW:,}" in ran.err
    assert "device tier" not in ran.err
    assert "pages in the device tier" in kvcli("resume", *SHORT, "s.kv", "Why?", "--verbose").err


def test_strict_refuses_what_would_be_skipped(kvcli: Kvcli, tmp_path: Path, notes: Path) -> None:
    """Without it the skip is said, in the JSON as well."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "a.txt").write_text("text\n")
    (folder / "b.bin").write_bytes(bytes(range(256)))
    lenient = kvcli("ask", *SHORT, "--repo", folder, "Which?", "--json")
    strict = kvcli("ask", *SHORT, "--repo", folder, "Which?", "--strict")
    assert (lenient.code, strict.code) == (0, 6)
    assert lenient.json["skipped"] == [{"path": "b.bin", "reason": "binary"}]
    assert "skipped 1 input: b.bin (binary)" in lenient.err
    assert "b.bin (binary)" in strict.error[0]


def test_an_empty_file_that_was_named_is_said_to_be_skipped(kvcli: Kvcli, notes: Path) -> None:
    Path("empty.txt").write_text("")
    ran = kvcli("summarize", *SHORT, notes, "empty.txt")
    assert ran.code == 0
    assert "skipped 1 input: empty.txt (empty)" in ran.err


def test_debug_shows_a_traceback_and_nothing_else_does(
    kvcli: Kvcli, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("kvcli.model_choice.load_model", fail)
    plain, debug = (kvcli("ask", "--doc", notes, "Why?", *more) for more in ([], ["--debug"]))
    assert (plain.code, debug.code) == (1, 1)
    assert plain.error[0] == "kvcli: error: internal error: RuntimeError: a bug"
    assert "Traceback" not in plain.err
    assert "Traceback" in debug.err
