"""What is kept of a disk, how long, and when a run measures one."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.telemetry import Link
from engine.types import KVGeometry
from kvcli import disk_probe, known_disks
from kvcli.disk_probe import DiskProbe, ReadPoint
from kvcli.known_disks import DISKS_FILE, limits, recall, remember, suit_disk

GEOMETRY = KVGeometry(30, 3, 64, "bfloat16")
PROBE = DiskProbe((ReadPoint(1, 65536, 1e9), ReadPoint(4, 262144, 2e9)), 1e9, is_direct=True)
LONG = 100_000
"""Tokens: 2.3 GB of KV."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("KVCLI_CACHE_DIR", str(folder))
    return folder


def suit(
    folder: Path, said: list[str], *, streams: bool = True, tokens: int = LONG
) -> EngineConfig:
    plan: Any = SimpleNamespace(streams=streams)
    return suit_disk(EngineConfig(1 << 30), GEOMETRY, plan, tokens, folder, said.append)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that were probed; each gives the same figures."""
    probed: list[Path] = []

    def probe(folder: Path) -> DiskProbe:
        probed.append(folder)
        return PROBE

    monkeypatch.setattr(known_disks, "probe_disk", probe)
    return probed


def test_the_rates_of_a_known_disk_are_the_limits_of_its_links(cache: Path, tmp_path: Path) -> None:
    assert limits(tmp_path) == {}
    remember(tmp_path, PROBE)
    assert limits(tmp_path) == {Link.DISK_TO_HOST: 2e9, Link.HOST_TO_DISK: 1e9}


def test_what_is_remembered_is_recalled(cache: Path, tmp_path: Path) -> None:
    assert recall(tmp_path) is None
    remember(tmp_path, PROBE)
    assert recall(tmp_path) == PROBE
    assert recall(tmp_path / "missing") is None
    assert [path.name for path in cache.iterdir()] == [DISKS_FILE]


def test_each_device_has_its_own(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(tmp_path, PROBE)
    monkeypatch.setattr(known_disks, "_device", lambda _: "another")
    assert recall(tmp_path) is None
    other = replace(PROBE, write=5e8)
    remember(tmp_path, other)
    assert recall(tmp_path) == other
    monkeypatch.undo()
    monkeypatch.setenv("KVCLI_CACHE_DIR", str(cache))
    assert recall(tmp_path) == PROBE


@pytest.mark.parametrize(("days", "is_kept"), [(0, True), (29, True), (31, False), (-1, False)])
def test_figures_older_than_a_month_or_from_the_future_are_not_used(
    cache: Path, tmp_path: Path, days: int, is_kept: bool
) -> None:
    remember(tmp_path, PROBE)
    known = json.loads((cache / DISKS_FILE).read_text())
    (entry,) = known.values()
    entry["measured"] = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    (cache / DISKS_FILE).write_text(json.dumps(known))
    assert (recall(tmp_path) is not None) is is_kept


DAMAGED_ENTRIES = {
    "no object": 7,
    "nothing": {},
    "no date": {"measured": "soon"},
    "a date without a zone": {"measured": "2026-01-01T00:00:00"},
    "no grid": {"grid": []},
    "a thread too many": {"grid": [[100_000, 65536, 1e9]]},
    "an odd extent": {"grid": [[1, 1000, 1e9]]},
    "no rate": {"grid": [[1, 65536, "fast"]]},
    "no number": {"grid": [[1, 65536, float("nan")]]},
    "endless": {"write": float("inf")},
    "beyond a float": {"write": 10**400},
    "two fields": {"grid": [[1, 65536]]},
}


@pytest.mark.parametrize("damage", DAMAGED_ENTRIES.values(), ids=DAMAGED_ENTRIES)
def test_a_damaged_entry_is_measured_again(
    cache: Path, tmp_path: Path, probes: list[Path], damage: Any
) -> None:
    remember(tmp_path, PROBE)
    path = cache / DISKS_FILE
    ((name, entry),) = json.loads(path.read_text()).items()
    whole = isinstance(damage, dict) and damage
    path.write_text(json.dumps({name: {**entry, **damage} if whole else damage, "x": damage}))
    assert recall(tmp_path) is None
    suit(tmp_path, [])
    assert probes == [tmp_path] and recall(tmp_path) == PROBE
    assert list(json.loads(path.read_text())) == [name], "what cannot be used is not kept"


@pytest.mark.parametrize("content", ["", "{", "[]", "7", "\x00\xff", "[" * 100_000])
def test_a_damaged_file_is_measured_again(
    cache: Path, tmp_path: Path, probes: list[Path], content: str
) -> None:
    (cache / DISKS_FILE).write_text(content, encoding="latin-1")
    assert suit(tmp_path, []).io_threads == 5
    assert probes and recall(tmp_path) == PROBE


def test_a_run_that_streams_measures_once_says_so_and_takes_the_choice(
    cache: Path, tmp_path: Path, probes: list[Path]
) -> None:
    said: list[str] = []
    config = suit(tmp_path, said)
    assert (config.io_threads, config.extent_bytes, config.stream_depth) == (5, 262144, 4)
    assert said == [
        "measured the disk: 4 threads x 256 KiB: 2.0 GB/s random reads; writes 1.0 GB/s"
    ]
    assert suit(tmp_path, said) == config
    assert suit(tmp_path, said, streams=False) == config, "what is known is used"
    assert len(probes) == len(said) == 1


def test_a_run_that_fits_or_is_short_measures_nothing(
    cache: Path, tmp_path: Path, probes: list[Path]
) -> None:
    said: list[str] = []
    assert suit(tmp_path, said, streams=False) == EngineConfig(1 << 30)
    assert suit(tmp_path, said, tokens=2000) == EngineConfig(1 << 30)
    remember(tmp_path, PROBE)
    assert suit(tmp_path, said, tokens=2000) == EngineConfig(1 << 30)
    assert not probes and not said


def test_a_disk_that_cannot_be_measured_leaves_the_defaults(cache: Path, tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "file").write_text("")
    assert suit(tmp_path / "file" / "below", said) == EngineConfig(1 << 30)
    assert suit(tmp_path / "missing", said) == EngineConfig(1 << 30)
    assert not said and not (cache / DISKS_FILE).exists()


def test_a_disk_without_direct_reads_leaves_the_defaults_and_is_known(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = DiskProbe((ReadPoint(*disk_probe.DEFAULT, 9e9),), 1e9, is_direct=False)
    probed = []
    monkeypatch.setattr(known_disks, "probe_disk", lambda _: probed.append(1) or cached)
    said: list[str] = []
    for _ in range(2):
        assert suit(tmp_path, said) == EngineConfig(1 << 30)
    assert len(probed) == 1 and "page cache" in said[0]


def test_a_cache_that_cannot_be_written_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probes: list[Path]
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("KVCLI_CACHE_DIR", str(tmp_path / "cache"))
    assert suit(tmp_path, []).io_threads == 5
    assert os.path.isfile(tmp_path / "cache")


def test_the_defaults_of_the_probe_are_those_of_the_engine() -> None:
    config = EngineConfig(1)
    assert (config.io_threads, config.extent_bytes) == disk_probe.DEFAULT
