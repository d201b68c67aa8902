"""`kvcli doctor` and `kvcli models`."""

from __future__ import annotations

import json
import types
from pathlib import Path

import psutil
import pytest

from kvcli.commands import doctor, models
from kvcli.commands.doctor import Mark
from kvcli.disk_probe import DiskSpeed, probe_disk
from kvcli.models import ModelEntry, ModelState


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose slow checks are answered at once; returns its cache folder."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("KVCLI_CACHE_DIR", str(cache))
    monkeypatch.setattr(doctor, "probe_disk", lambda folder: DiskSpeed(2e9, 1e9, True))
    monkeypatch.setattr(doctor, "cpu_flags", lambda: frozenset({"avx2", "avx512_bf16"}))
    return cache


def report(kvcli) -> dict[str, dict[str, str]]:
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
    monkeypatch.setattr(doctor, "probe_disk", lambda folder: DiskSpeed(9e7, 1e9, False))
    speed = report(kvcli)["disk speed"]
    assert speed["mark"] == Mark.NOTE.value
    assert "90 MB/s" in speed["found"]
    assert "page cache" in speed["found"]


def test_little_ram_is_a_note(kvcli, healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    low = types.SimpleNamespace(available=10**9, total=8 * 10**9)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: low)
    assert report(kvcli)["ram"]["mark"] == Mark.NOTE.value


def test_a_cpu_without_bf16_is_a_note(
    kvcli, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "cpu_flags", lambda: frozenset({"avx2"}))
    assert report(kvcli)["cpu"]["mark"] == Mark.NOTE.value


def test_the_probe_measures_and_leaves_nothing_behind(tmp_path: Path) -> None:
    speed = probe_disk(tmp_path)
    assert speed.read > 1e6
    assert speed.write > 1e6
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


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
