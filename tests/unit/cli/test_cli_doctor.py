"""`kvcli doctor` and `kvcli models`."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvcli.commands import doctor, models
from kvcli.commands.doctor import Mark
from kvcli.disk_probe import DEFAULT, DiskProbe, ReadPoint
from kvcli.known_disks import recall
from kvcli.models import ModelEntry, ModelState

FAST = DiskProbe(
    (
        ReadPoint(1, 64 << 10, 8.9e8),
        ReadPoint(2, 64 << 10, 1.4e9),
        ReadPoint(2, 256 << 10, 1.9e9),
    ),
    1.1e9,
    is_direct=True,
)


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose slow checks are answered at once; returns its cache folder."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("KVCLI_CACHE_DIR", str(cache))
    monkeypatch.setattr(doctor, "probe_disk", lambda folder: FAST)
    monkeypatch.setattr(doctor, "cpu_flags", lambda: frozenset({"avx2", "avx512_bf16"}))
    return cache


def report(kvcli) -> dict[str, dict[str, Any]]:
    checks = json.loads(kvcli("doctor", "--json").out)["checks"]
    return {check["name"]: check for check in checks}


def test_a_healthy_machine_is_exit_0_with_a_line_for_everything(kvcli, healthy: Path) -> None:
    ran = kvcli("doctor")
    assert ran.code == 0
    for name in ("python", "packages", "cpu", "ram", "devices", "cache", "disk free",
                 "disk speed", "model", "grammars", "config"):  # fmt: skip
        assert name in ran.out
    assert "avx512_bf16" in ran.out
    assert "torch 2." in ran.out


def test_the_default_model_that_is_missing_is_a_note_with_advice(kvcli, healthy: Path) -> None:
    model = report(kvcli)["model"]
    assert model["mark"] == Mark.NOTE.value
    assert "93 MB" in model["advice"]


def test_a_cache_that_cannot_be_written_fails(
    kvcli, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy.write_text("a file where the folder should be")
    ran = kvcli("doctor")
    assert ran.code == 1
    assert "KVCLI_CACHE_DIR" in ran.out
    found = json.loads(kvcli("doctor", "--json").out)
    assert found["healthy"] is False
    assert found["checks"][-1]["name"] == "config"  # the other checks still ran


def test_a_slow_disk_is_a_note(kvcli, healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = DiskProbe((ReadPoint(*DEFAULT, 9e7),), 1e9, is_direct=False)
    monkeypatch.setattr(doctor, "probe_disk", lambda folder: slow)
    speed = report(kvcli)["disk speed"]
    assert speed["mark"] == Mark.NOTE.value
    assert "90 MB/s" in speed["found"]
    assert "page cache" in speed["found"]
    assert speed["advice"]


def test_the_disk_is_shown_as_measured_and_kept_for_later_runs(kvcli, healthy: Path) -> None:
    said = kvcli("doctor").out
    assert "2 threads x 256 KiB: 1.9 GB/s random reads; writes 1.1 GB/s" in said
    assert "64 KiB: 890 MB/s by 1, 1.4 GB/s by 2; 256 KiB: 1.9 GB/s by 2 (threads)" in said
    assert recall(healthy) == FAST
    figures = report(kvcli)["disk speed"]["figures"]
    assert figures["choice"] == {"threads": 2, "extent_bytes": 262144, "rate": 1.9e9}
    assert figures["grid"][0] == {"threads": 1, "extent_bytes": 65536, "rate": 8.9e8}
    assert figures["write"] == 1.1e9 and figures["is_direct"] is True


def test_little_ram_is_a_note(kvcli, healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    low = types.SimpleNamespace(available=10**9, total=8 * 10**9)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: low)
    assert report(kvcli)["ram"]["mark"] == Mark.NOTE.value


def test_a_cpu_without_bf16_is_a_note(
    kvcli, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "cpu_flags", lambda: frozenset({"avx2"}))
    assert report(kvcli)["cpu"]["mark"] == Mark.NOTE.value


def test_models_lists_what_is_ready_and_what_is_not(
    kvcli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entries = [
        ModelEntry("a", "PyPI a==1", ModelState.FETCHABLE, 93_000_000, None, "Apache-2.0"),
        ModelEntry("org/[b]", "hub", ModelState.CACHED, 5 * 10**9, tmp_path, "see its card"),
    ]
    monkeypatch.setattr(models, "list_models", lambda: entries)
    lines = kvcli("models").out.splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [["a", "to"], ["org/[b]", "ready"]]
    listed = json.loads(kvcli("models", "--json").out)["models"]
    assert listed[1] == {
        "name": "org/[b]",
        "source": "hub",
        "state": "cached",
        "size_bytes": 5 * 10**9,
        "path": str(tmp_path),
        "licence": "see its card",
    }
