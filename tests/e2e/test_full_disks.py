"""Full disks and closed pipes: said in one line, and what was committed before is kept."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from child_kit import Spawn
from cli_kit import Kvcli, check_refused, kv_tokens, prose, stored_ids, stored_kv

from engine.session import verify
from engine.session.block_file import BlockFile

ROOT = Path(__file__).parents[2]
SHORT = ("--max-tokens", 4)


def limit_files(num_bytes: int) -> None:
    """No file may grow beyond this: what a full disk does, for this process alone."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))


def no_room_for_a_commit() -> None:
    limit_files(8192)


def no_room_for_the_pages() -> None:
    limit_files(600_000)


def no_room_for_the_answer() -> None:
    limit_files(os.path.getsize("kept.kv") + 4096)


def test_a_disk_that_is_full_from_the_start_leaves_nothing(
    spawn: Spawn, notes: Path, tmp_path: Path
) -> None:
    ran = spawn("ingest", notes, "-o", "s.kv", scenario=no_room_for_a_commit).end()
    check_refused(ran, 1, "the disk is full or over its limit", tmp_path)


def test_a_disk_that_fills_up_keeps_the_last_commit(
    spawn: Spawn, kvcli: Kvcli, tmp_path: Path, notes: Path
) -> None:
    """With room again, resume finishes what the full disk stopped."""
    Path("long.txt").write_text(prose(45))
    ran = spawn("ingest", "long.txt", "-o", "full.kv", scenario=no_room_for_the_pages).end()
    check_refused(ran, 1, "the disk is full or over its limit", tmp_path)
    assert "what was committed before is kept" in ran.error[1]
    expected = kvcli("ask", "--doc", "long.txt", *SHORT, "Why?", "--json").json["answer"]
    assert kvcli("resume", "full.kv", *SHORT, "Why?", "--json").json["answer"] == expected


def test_a_disk_without_room_is_refused_before_any_compute(
    kvcli: Kvcli, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For documents, and for a question to a session that exists."""
    kvcli("ingest", notes, "-o", "kept.kv")
    before = Path("kept.kv").read_bytes()
    monkeypatch.setattr(BlockFile, "free_space", lambda _: 1000)
    monkeypatch.setattr("engine.engine.Engine.compute", lambda *_, **__: pytest.fail("computed"))
    check_refused(kvcli("ingest", notes, "-o", "s.kv"), 1, "bytes needed, 1,000 free", tmp_path)
    check_refused(kvcli("resume", "kept.kv", "Why?"), 1, "bytes needed, 1,000 free", tmp_path)
    assert Path("kept.kv").read_bytes() == before


def test_a_spill_disk_without_room_is_refused_before_any_compute(
    kvcli: Kvcli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200,000 files without a session would have read for hours until the disk was full."""
    (tmp_path / "long.txt").write_text(prose(45))
    monkeypatch.setattr(BlockFile, "free_space", lambda _: 1000)
    monkeypatch.setattr("engine.engine.Engine.compute", lambda *_, **__: pytest.fail("computed"))
    ran = kvcli("ask", "--doc", "long.txt", "--ram", "3MiB", *SHORT, "Why?")
    check_refused(ran, 1, "bytes needed, 1,000 free", tmp_path)


def test_a_disk_that_is_full_after_the_answer_costs_the_turn_only(
    spawn: Spawn, kvcli: Kvcli, notes: Path
) -> None:
    """The answer has been printed, the failure is said, and the session is as it was before."""
    kvcli("ingest", notes, "-o", "kept.kv")
    tokens = len(stored_ids(Path("kept.kv")))

    question = ("resume", "kept.kv", "--max-tokens", 300, "Which pier?")
    ran = spawn(*question, scenario=no_room_for_the_answer).end()
    assert ran.code == 1
    assert ran.out.strip()
    assert len(ran.error) == 2
    assert "the disk is full or over its limit" in ran.error[0]
    assert kv_tokens(Path("kept.kv")) == tokens
    assert kvcli(*question).out == ran.out


def no_room_for_the_update() -> None:
    limit_files(os.path.getsize("kept.kv") + 300_000)


def test_a_disk_that_fills_up_in_an_update_loses_nothing_that_is_still_true(
    spawn: Spawn, kvcli: Kvcli
) -> None:
    """With room again, the same command finishes it, and it is as an ingest of now."""
    Path("long.txt").write_text(prose(45))
    assert kvcli("ingest", "long.txt", "-o", "kept.kv").code == 0
    Path("long.txt").write_text("New.\n" + prose(45))
    ran = spawn("update", "kept.kv", scenario=no_room_for_the_update).end()
    assert ran.code == 1 and "the disk is full or over its limit" in ran.error[0]
    assert "what was committed before is kept" in ran.error[1]
    assert verify(Path("kept.kv"), lambda done, total: None).faults == ()
    assert kvcli("update", "kept.kv").code == 0
    assert kvcli("ingest", "long.txt", "-o", "fresh.kv").code == 0
    assert stored_ids(Path("kept.kv")) == stored_ids(Path("fresh.kv"))
    assert stored_kv(Path("kept.kv")) == stored_kv(Path("fresh.kv"))


@pytest.mark.parametrize("command", [("export", "kept.kv", "copy.kv"), ("compact", "kept.kv")])
def test_a_disk_that_fills_up_while_a_session_is_copied_leaves_the_session(
    kvcli: Kvcli, tool: Kvcli, tmp_path: Path, command: tuple[str, ...]
) -> None:
    Path("long.txt").write_text(prose(45))
    assert kvcli("ingest", "long.txt", "-o", "kept.kv").code == 0
    before = Path("kept.kv").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, limits[1]))
    try:
        ran = tool(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ran.code == 1 and "the disk is full or over its limit" in ran.error[0], ran.err
    assert Path("kept.kv").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} <= {"kept.kv", "long.txt", "cache", "home"}


def test_a_full_spill_disk_is_one_line(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(prose(45))
    ran = spawn("summarize", "long.txt", "--ram", "3MiB", scenario=no_room_for_the_pages).end()
    check_refused(ran, 1, "the disk is full or over its limit", tmp_path)


def test_a_cache_that_cannot_be_written_stops_only_a_run_that_spills(
    kvcli: Kvcli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spill folder is in the cache, which is a file here."""
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("KVCLI_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "long.txt").write_text(prose(45))
    given = ["ask", *SHORT, "--doc", "long.txt", "Why?"]
    assert kvcli(*given).code == 0
    assert kvcli(*given, "--ram", "3MiB", "--session", "kept.kv").code == 0
    check_refused(kvcli(*given, "--ram", "3MiB"), 1, "spill: no such folder", tmp_path)


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_disk_behind_stdout_is_one_line(
    notes: Path, tiny_model: Path, tmp_path: Path, more: list[str]
) -> None:
    with open("/dev/full", "w") as full:
        ran = kvcli_process(["ask", *more, "--doc", str(notes), "Why?"], tiny_model, stdout=full)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-2:] == [
        "kvcli: error: No space left on device",
        "  Free some space and run it again.",
    ]
    assert "Traceback" not in ran.stderr


def test_a_pipe_that_closes_early_is_quiet_and_keeps_the_documents(
    kvcli: Kvcli, notes: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """`kvcli ask ... | head -c 1`: the reading is in the session; nothing is said."""
    read, write = os.pipe()
    os.close(read)
    given = ["ask", "--doc", str(notes), "--session", "s.kv", "--quiet", "Why?"]
    ran = kvcli_process(given, tiny_model, stdout=write, cwd=tmp_path)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert kv_tokens(tmp_path / "s.kv") == len(stored_ids(tmp_path / "s.kv"))
    assert kvcli("resume", "s.kv", *SHORT, "Why?").code == 0


def kvcli_process(
    arguments: list[str], model: Path, **more: Any
) -> subprocess.CompletedProcess[str]:
    """A real process: the interpreter's last flush counts."""
    command = [sys.executable, "-m", "kvcli.app", arguments[0], "--model", str(model)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *arguments[1:]], env=environment, text=True, stderr=subprocess.PIPE, timeout=120,
        **more,
    )  # fmt: skip
