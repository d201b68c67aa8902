"""The dry run over documents and the description of a session."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from reportlab.pdfgen import canvas
from rich.console import Console

from engine.session import Identity, SessionFile, aligned_buffer
from engine.types import KVGeometry, Part, SegmentId
from kvcli import estimate
from kvcli.commands.token_tree import token_tree
from kvcli.dry_run import FileCount
from kvcli.model_outline import outline_model

PAGE_BYTES = 3 * 2 * 2 * 4 * 2 * 64
"""Layers, K and V, KV heads, head dimension, bytes, tokens of the model in conftest.py."""


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "src").mkdir(parents=True)
    (folder / "notes.txt").write_text("x" * 99 + "\n")
    (folder / "src" / "[id].txt").write_text("y" * 29 + "\n")
    return folder


def make_session(path: Path, *, kv_tokens: int, notes: dict[str, object]) -> None:
    geometry = KVGeometry(2, 1, 8, "float16", page_tokens=4, segment_tokens=16)
    identity = Identity("tiny", "w1", "t1", "c1", "r1", "float16")
    with SessionFile.create(path, identity, geometry) as file:
        for page in range(kv_tokens // 4):
            segment, first = divmod(page, 4)
            buffer = aligned_buffer(geometry.page_slice_bytes)
            for layer in range(2):
                for part in Part:
                    file.write_pages(SegmentId(segment), part, layer, first, buffer)
        file.commit(token_ids=range(20), kv_tokens=kv_tokens, notes=notes)


def test_a_dry_run_counts_tokens_pages_and_bytes(
    kvcli, documents: Path, model_folder: Path
) -> None:
    ran = kvcli("inspect", documents, "--model", model_folder, "--json", "--ram", "64MiB")
    found = json.loads(ran.out)
    assert found["kind"] == "documents"
    assert (found["tokens"], found["pages"], found["kv_bytes"]) == (213, 4, 4 * PAGE_BYTES)
    assert {file["path"]: file["tokens"] for file in found["files"]} == {
        "notes.txt": 100 + len('<document path="notes.txt">\n</document>\n'),
        "src/[id].txt": 30 + len('<document path="src/[id].txt">\n</document>\n'),
    }
    assert sum(tier["pages"] for tier in found["tiers"]) == found["pages"]
    assert (found["window"], found["mode"]) == (256, "focus"), "more than fits with an answer"
    assert found["session_bytes"] == 8 * PAGE_BYTES  # one segment of 512 tokens
    assert found["disk_free_bytes"] > 0


def test_how_each_language_was_cut_is_told(kvcli, tmp_path: Path, model_folder: Path) -> None:
    """A grammar that cannot be had makes citations worse; nobody would notice by the answers."""
    files = {
        "a.py": "x = 1\n",
        "b.py": "def f(: ((\n" * 9,
        "c.lua": "x = 1\n",
        "d.log": "x\n",
        ".kvcliignore": "*.log\n",
    }
    folder = tmp_path / "code"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    found = json.loads(kvcli("inspect", folder, "--model", model_folder, "--json").out)
    errors = "its grammar cannot explain more than 10% of it"
    assert found["languages"] == [
        {"name": "python", "files": 2, "by_lines": {errors: 1}},
        {"name": "lua", "files": 1, "by_lines": {"no grammar for this language": 1}},
    ]
    assert found["hidden"] == 1
    told = {file["path"]: (file["language"], file["by_lines"]) for file in found["files"]}
    assert told["a.py"] == ("python", None)
    assert told["b.py"] == ("python", errors)
    shown = " ".join(kvcli("inspect", folder, "--model", model_folder).out.split())
    assert f"python 2 (1 by lines: {errors}); lua 1 (1 by lines: no grammar" in shown
    assert f"cut by lines 1 b.py: {errors}" in shown
    assert "1 by .kvcliignore" in shown


def test_what_reading_left_out_of_a_text_is_shown(
    kvcli, tmp_path: Path, model_folder: Path
) -> None:
    """Running headers were left out, and only --json said so."""
    sheet = canvas.Canvas(str(tmp_path / "a.pdf"))
    for number in range(1, 7):
        sheet.drawString(72, 800, f"Tide tables {number + 4}")
        for line in range(4):
            sheet.drawString(72, 700 - 14 * line, f"Line {line} of {number} says more of {number}.")
        sheet.showPage()
    sheet.save()
    told = kvcli("inspect", tmp_path / "a.pdf", "--model", model_folder).out
    assert "a.pdf: 5 running headers and footers left out of 5 pages" in " ".join(told.split())


def test_a_document_that_leaves_no_room_for_an_answer_does_not_fit(
    kvcli, documents: Path, model_folder: Path
) -> None:
    """213 tokens fit the window of 256, but not with 256 for an answer."""
    ran = kvcli("inspect", documents, "--model", model_folder, "--ram", "64MiB")
    assert ran.code == 0
    assert "no: 213 tokens and 256 for an answer are 213 over the window of 256" in ran.out


def test_window_can_be_narrowed_not_widened(kvcli, documents: Path, model_folder: Path) -> None:
    for asked, used in ((100, 100), (9999, 256)):
        ran = kvcli("inspect", documents, "--model", model_folder, "--json", "--window", asked)
        assert json.loads(ran.out)["window"] == used


def test_pages_go_down_the_tiers_as_budgets_shrink(
    kvcli, tmp_path: Path, model_folder: Path
) -> None:
    (tmp_path / "big.txt").write_text("z" * 300_000)
    ran = kvcli("inspect", tmp_path / "big.txt", "--model", model_folder, "--json",
                "--ram", "8MiB", "--vram", "1MiB")  # fmt: skip
    found = json.loads(ran.out)
    tiers = {tier["name"]: tier["pages"] for tier in found["tiers"]}
    assert tiers["device"] == (1 << 20) // PAGE_BYTES
    assert tiers["host"] > 0
    assert tiers["disk"] > 0
    assert sum(tiers.values()) == -(-found["tokens"] // 64) > 300_000 // 64


def test_a_budget_below_one_segment_is_refused(kvcli, documents: Path, model_folder: Path) -> None:
    ran = kvcli("inspect", documents, "--model", model_folder, "--ram", "10kB")
    assert (ran.code, ran.out) == (4, "")
    assert "10,000 bytes" in ran.err


def test_the_tree_shows_names_with_brackets(kvcli, documents: Path, model_folder: Path) -> None:
    ran = kvcli("inspect", documents, "--model", model_folder)
    assert "[id].txt  73  30 B" in ran.out
    assert "2 files  213" in ran.out


def test_what_was_skipped_is_listed_with_its_reason(
    kvcli, documents: Path, model_folder: Path
) -> None:
    (documents / "empty.txt").touch()
    ran = kvcli("inspect", documents, "--model", model_folder)
    assert "empty.txt: empty, " in ran.out
    as_json = json.loads(kvcli("inspect", documents, "--model", model_folder, "--json").out)
    assert as_json["skipped"] == [{"path": "empty.txt", "reason": "empty"}]


def test_strict_turns_a_skip_into_exit_6(kvcli, documents: Path, model_folder: Path) -> None:
    """As it does for ask, where an empty file of a folder is no loss."""
    (documents / "empty.txt").touch()
    assert kvcli("inspect", documents, "--model", model_folder, "--strict").code == 0
    (documents / "noise.bin").write_bytes(bytes(9))
    ran = kvcli("inspect", documents, "--model", model_folder, "--strict")
    assert ran.code == 6
    assert "1 of 3 inputs" in ran.err


def test_control_strings_in_a_document_count_as_text(model_folder: Path) -> None:
    model = outline_model(str(model_folder), page_tokens=64, offline=True)
    assert model.count_tokens(["<|end|>"]) == 7


@pytest.mark.parametrize("arguments", [["nowhere"], ["docs", "--model", "nowhere/."]])
def test_what_is_not_there_is_named(
    kvcli, documents: Path, model_folder: Path, arguments: list[str], monkeypatch
) -> None:
    monkeypatch.chdir(documents.parent)
    ran = kvcli("inspect", "--model", model_folder, *arguments)
    assert ran.code in (1, 2)
    assert "nowhere" in ran.err.splitlines()[0]


def test_a_config_without_the_figures_is_refused_by_name(
    kvcli, documents: Path, model_folder: Path
) -> None:
    (model_folder / "config.json").write_text('{"n_layer": 3}')
    ran = kvcli("inspect", documents, "--model", model_folder)
    assert ran.code == 1
    assert "names no num_attention_heads" in ran.err


def test_a_damaged_tokenizer_is_one_line(kvcli, documents: Path, model_folder: Path) -> None:
    (model_folder / "tokenizer.json").write_text("{")
    ran = kvcli("inspect", documents, "--model", model_folder)
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 2


def test_a_finished_session_is_described(kvcli, tmp_path: Path) -> None:
    notes = {"sources": ["a.pdf", "b\x1b[2J"], "model": "tiny", "turns": 2, "mode": "exact"}
    make_session(tmp_path / "s.kv", kv_tokens=20, notes=notes)
    ran = kvcli("inspect", tmp_path / "s.kv")
    assert (ran.code, ran.err) == (0, "")
    for part in ("20 (finished)", "5 of 4 tokens", "a.pdf, b[2J", "weights w1", "turns"):
        assert part in ran.out, part
    assert "\x1b" not in ran.out


def test_an_unfinished_session_says_how_to_go_on(kvcli, tmp_path: Path) -> None:
    make_session(tmp_path / "s.kv", kv_tokens=8, notes={})
    assert "ingest unfinished, 12 to go" in kvcli("inspect", tmp_path / "s.kv").out
    found = json.loads(kvcli("inspect", tmp_path / "s.kv", "--json").out)
    assert (found["kind"], found["finished"]) == ("session", False)
    assert (found["tokens"], found["kv_tokens"], found["pages"]) == (20, 8, 2)
    assert found["identity"]["weights"] == "w1"


def test_a_session_under_another_name_is_recognised(kvcli, tmp_path: Path) -> None:
    make_session(tmp_path / "s.bak", kv_tokens=8, notes={})
    assert json.loads(kvcli("inspect", tmp_path / "s.bak", "--json").out)["kind"] == "session"


def test_a_session_among_documents_is_refused(kvcli, tmp_path: Path, documents: Path) -> None:
    ran = kvcli("inspect", documents, tmp_path / "s.kv")
    assert ran.code == 2
    assert "s.kv" in ran.err


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89kvcli\r\n" + bytes(100)])
def test_a_foreign_or_cut_session_is_exit_5(kvcli, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.kv").write_bytes(content)
    ran = kvcli("inspect", tmp_path / "s.kv")
    assert (ran.code, ran.out) == (5, "")
    assert "s.kv" in ran.err


def test_a_missing_session_is_exit_5(kvcli, tmp_path: Path) -> None:
    assert kvcli("inspect", tmp_path / "none.kv").code == 5


# -- the tree and the estimate ---------------------------------------------------------------------


def tree_lines(files: list[FileCount], *, show_all: bool = False) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    with console.capture() as capture:
        console.print(token_tree(files, show_all=show_all))
    return capture.get()


def test_small_files_are_counted_not_lost() -> None:
    files = [FileCount(f"a/f{i}.py", "code", 10, i) for i in range(100)]
    files += [FileCount(f"b/g{i}.py", "code", 10, 1) for i in range(5)]
    text = tree_lines(files)
    assert f"105 files  {sum(range(100)) + 5:,}" in text
    assert "... 60 smaller  1,770" in text
    assert "... 5 smaller  5" in text
    assert "smaller" not in tree_lines(files, show_all=True)


def test_folders_without_files_share_a_line() -> None:
    text = tree_lines([FileCount("src/main/java/A.java", "code", 1, 3)])
    assert "└── src/main/java/  3\n    └── A.java  3  1 B" in text


def test_a_file_named_from_the_root_has_one_slash_there() -> None:
    """A document given by its whole path was shown below `//usr/share/`."""
    shown = tree_lines([FileCount("/usr/share/a.txt", "text", 1, 1)])
    assert "/usr/share/  1" in shown and "//" not in shown


def test_a_tree_a_thousand_folders_deep_is_drawn() -> None:
    assert "deep.txt" in tree_lines([FileCount("d/" * 1000 + "deep.txt", "text", 1, 1)])


def test_a_measured_speed_replaces_the_guess(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("KVCLI_CACHE_DIR", str(tmp_path))
    guessed = estimate.machine_speed("cpu")
    estimate.remember_speed("cpu", flops=1e12, seconds=10.0)
    estimate.remember_speed("cuda", flops=1e12, seconds=0.5)  # too short to tell
    assert guessed > 0
    assert estimate.machine_speed("cpu") == 1e11
    assert estimate.machine_speed("cuda") != 2e12


@pytest.mark.parametrize("content", ["", "[]", '{"cpu": null}', "\x00"])
def test_a_damaged_speed_file_is_ignored(tmp_path: Path, monkeypatch, content: str) -> None:
    monkeypatch.setenv("KVCLI_CACHE_DIR", str(tmp_path))
    (tmp_path / estimate.SPEED_FILE).write_text(content)
    assert estimate.machine_speed("cpu") > 0
