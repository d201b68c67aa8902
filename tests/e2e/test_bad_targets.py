"""Session files and folders that cannot be used: refused by name, and left as they are."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Kvcli, check_refused, prose, stored_ids

SHORT = ("--max-tokens", 4)


# -- session files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"no session\n", bytes(9000), os.urandom(9000)])
def test_a_foreign_session_file_is_refused_and_not_touched(
    kvcli: Kvcli, tmp_path: Path, notes: Path, content: bytes
) -> None:
    path = tmp_path / "foreign.kv"
    path.write_bytes(content)
    check_refused(kvcli("resume", path, "Why?"), 5, "foreign.kv", tmp_path)
    check_refused(kvcli("ask", "--session", path, "Why?"), 5, "foreign.kv", tmp_path)
    over = kvcli("ingest", notes, "-o", path, "--force")
    check_refused(over, 2, "exists and is not a session file", tmp_path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.3, 0.7, 0.97])
def test_a_cut_session_opens_to_a_whole_commit_or_not_at_all(
    kvcli: Kvcli, tmp_path: Path, notes: Path, share: float
) -> None:
    """What can still be opened gives the answer that the whole file gives."""
    question = ["Why?", *SHORT, "--json"]
    kvcli("ingest", notes, "-o", "whole.kv")
    content = Path("whole.kv").read_bytes()
    Path("cut.kv").write_bytes(content[: int(len(content) * share)])
    ran = kvcli("resume", "cut.kv", *question)
    assert "Traceback" not in ran.err
    if ran.code == 5:
        assert "cut.kv" in ran.json["error"]["message"]
    else:
        assert ran.code == 0
        assert ran.json["warnings"]
        assert ran.json["answer"] == kvcli("resume", "whole.kv", *question).json["answer"]


def test_a_flipped_bit_in_a_page_is_never_served(kvcli: Kvcli, tmp_path: Path) -> None:
    Path("long.txt").write_text(prose(40))
    kvcli("ingest", "long.txt", "-o", "flipped.kv")
    content = bytearray(Path("flipped.kv").read_bytes())
    content[len(content) // 3] ^= 1
    Path("flipped.kv").write_bytes(content)
    check_refused(kvcli("resume", "flipped.kv", "Why?"), 5, "flipped.kv", tmp_path)


# -- where things go -------------------------------------------------------------------------------


def test_a_folder_where_a_file_is_expected_is_refused(
    kvcli: Kvcli, notes: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    check_refused(kvcli("ingest", notes, "-o", folder), 2, "folder: is a folder", tmp_path)
    check_refused(
        kvcli("ask", "--doc", notes, "--session", folder, "Why?"), 2, "is a folder", tmp_path
    )
    check_refused(kvcli("resume", folder, "Why?"), 5, "folder: not a file", tmp_path)
    check_refused(
        kvcli("summarize", notes, "--metrics", folder), 2, "cannot write --metrics", tmp_path
    )
    assert list(folder.iterdir()) == []


def test_a_missing_output_folder_is_refused_before_anything_is_read(
    kvcli: Kvcli, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvcli.documents.read_corpus", lambda *_, **__: pytest.fail("read"))
    ran = kvcli("ingest", notes, "-o", tmp_path / "nowhere" / "s.kv")
    check_refused(ran, 1, "nowhere: no such folder", tmp_path)
    ran = kvcli("ingest", notes, "-o", notes / "s.kv")
    check_refused(ran, 1, "notes.txt: no such folder", tmp_path)


def test_missing_metrics_folder_is_refused(kvcli: Kvcli, notes: Path, tmp_path: Path) -> None:
    ran = kvcli("summarize", notes, "--metrics", tmp_path / "nowhere" / "m.jsonl")
    check_refused(ran, 2, "cannot write --metrics", tmp_path)


@pytest.mark.parametrize("where", ["asked", "made"])
def test_a_read_only_output_folder_is_refused(
    kvcli: Kvcli, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """By the system when asked, or only when the file is made: root may write everywhere."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    if where == "asked":
        monkeypatch.setattr(os, "access", lambda *_: False)
    else:
        monkeypatch.setattr("tempfile.mkstemp", refuse)
    ran = kvcli("ingest", notes, "-o", "s.kv")
    check_refused(ran, 1, "not writable" if where == "asked" else "Read-only", tmp_path)


def test_an_existing_session_is_replaced_only_by_force(
    kvcli: Kvcli, notes: Path, tmp_path: Path
) -> None:
    kvcli("ingest", notes, "-o", "kept.kv")
    before = Path("kept.kv").read_bytes()
    check_refused(kvcli("ingest", notes, "-o", "kept.kv"), 2, "already exists", tmp_path)
    check_refused(kvcli("summarize", notes, "--session", "kept.kv"), 2, "already exists", tmp_path)
    check_refused(
        kvcli("ask", "--doc", notes, "--session", "kept.kv", "Why?"), 2, "already exists", tmp_path
    )
    assert Path("kept.kv").read_bytes() == before
    Path("more.txt").write_text(prose(5))
    assert kvcli("ingest", "more.txt", "-o", "kept.kv", "--force").code == 0
    assert len(stored_ids(Path("kept.kv"))) < 300


def test_a_failed_replacement_leaves_the_old_session(
    kvcli: Kvcli, notes: Path, tmp_path: Path
) -> None:
    """Too large for the window, or for the RAM: the file that was to be replaced is as it was."""
    kvcli("ingest", notes, "-o", "kept.kv")
    before = Path("kept.kv").read_bytes()
    Path("huge.txt").write_text(prose(300))
    again = ["-o", "kept.kv", "--force", "--attention", "exact"]
    check_refused(kvcli("ingest", "huge.txt", *again), 4, "the window of 2,048", tmp_path)
    check_refused(kvcli("ingest", notes, *again, "--ram", "1KiB"), 4, "the RAM budget", tmp_path)
    assert Path("kept.kv").read_bytes() == before
