"""What comes back from a session is read, or computed again where that is measured to be faster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_kit import Kvcli, stored_kv

from kvcli import estimate, known_disks
from kvcli.disk_probe import DiskProbe, ReadPoint
from kvcli.fetch import cache_dir

SHORT = ("--max-tokens", 12)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was measured of this machine does not count."""
    monkeypatch.setenv("KVCLI_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()


def measured(*, disk: float | None = None, flops: float | None = None) -> None:
    """Make believe that so many bytes and operations per second were measured here."""
    if disk is not None:
        grid = (ReadPoint(2, 256 << 10, disk),)
        known_disks.remember(Path.cwd(), DiskProbe(grid, disk, is_direct=True))
    if flops is not None:
        (cache_dir() / estimate.SPEED_FILE).write_text(json.dumps({"cpu": flops}))


def test_on_a_slow_disk_the_beginning_is_computed_again_and_the_answer_is_the_same(
    kvcli: Kvcli, notes: Path
) -> None:
    kvcli("ingest", notes, "-o", "s.kv")
    kvcli("ingest", notes, "-o", "t.kv")
    read = kvcli("resume", *SHORT, "s.kv", "Which pier?", "--json").json
    measured(disk=1e3, flops=1e9)
    ran = kvcli("resume", *SHORT, "t.kv", "Which pier?", "--json")
    assert "the first 512 tokens are computed again" in ran.err
    assert f"{read['usage']['reused_tokens'] - 512:,} tokens reused, 512 recomputed" in ran.err
    assert ran.json["answer"] == read["answer"]
    assert stored_kv(Path("t.kv")) == stored_kv(Path("s.kv"))


@pytest.mark.parametrize(
    "rates", [{}, {"disk": 1e3}, {"flops": 1e15}, {"disk": 1e9, "flops": 1e9}], ids=str
)
def test_what_was_not_measured_does_not_decide_and_a_fast_disk_is_read(
    kvcli: Kvcli, notes: Path, rates: dict[str, float]
) -> None:
    kvcli("ingest", notes, "-o", "s.kv")
    (cache_dir() / estimate.SPEED_FILE).unlink(missing_ok=True)
    measured(**rates)
    usage = kvcli("resume", *SHORT, "s.kv", "Which pier?", "--json").json["usage"]
    assert usage["recomputed_tokens"] == 0


def test_the_tokens_count_once(kvcli: Kvcli, notes: Path) -> None:
    kvcli("ingest", notes, "-o", "s.kv")
    measured(disk=1e3, flops=1e12)
    usage = kvcli("resume", *SHORT, "s.kv", "Which pier?", "--json").json["usage"]
    assert usage["recomputed_tokens"] == 512
    assert usage["reused_tokens"] + 512 <= usage["prompt_tokens"]
