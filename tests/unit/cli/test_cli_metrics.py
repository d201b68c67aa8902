"""`--metrics`: every line is JSON, the last sample is always there, a bad path stops the start."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from engine.errors import ConfigError
from engine.telemetry import Phase, Telemetry, TierUse
from kvcli import metrics
from kvcli.metrics import MetricsFile
from kvcli.options import RunOptions
from kvcli.output import Output


def output(err: io.StringIO | None = None) -> Output:
    return Output(RunOptions(), io.StringIO(), err or io.StringIO())


def test_samples_and_the_last_state_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "SAMPLE_SECONDS", 0.01)
    telemetry, path = Telemetry(), tmp_path / "m.jsonl"
    with MetricsFile(path, telemetry, output()):
        patience = time.monotonic() + 20
        while path.read_text().count("\n") < 2 and time.monotonic() < patience:
            time.sleep(0.01)
        telemetry.publish_tiers((TierUse("device", 8, 4, 2, 1, hot_pages=1, hot_bytes=2),), 2, (5,))
        telemetry.publish_task("ingest", 5, 9)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) >= 3
    last = lines[-1]
    assert (last["task"], last["tokens_done"], last["tokens_total"]) == ("ingest", 5, 9)
    assert last["tiers"] == [
        {
            "name": "device", "capacity_bytes": 8, "used_bytes": 4, "pages": 2, "evictions": 1,
            "hot_pages": 1, "hot_bytes": 2,
        }
    ]  # fmt: skip
    assert last["reuse"] == [5]
    assert last["links"]["host_to_disk"] == {"moved_bytes": 0, "moves": 0, "busy_s": 0.0}
    assert set(last["seconds"]) == {phase.value for phase in Phase}
    assert sum(last["seconds"].values()) == pytest.approx(last["wall_s"], abs=0.01)


def test_every_field_of_a_sample_is_written_and_documented() -> None:
    sample = Telemetry().sample()
    fields = set(metrics.sample_json(sample))
    assert fields == {*sample.__dataclass_fields__, "read_bytes", "written_bytes"}
    assert all(f"`{name}`" in (metrics.__doc__ or "") for name in fields)


def test_a_new_file_is_private_and_an_old_one_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    for runs in (1, 2):
        with MetricsFile(path, Telemetry(), output()):
            pass
        assert len(path.read_text().splitlines()) == runs
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("path", ["missing/m.jsonl", "."])
def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="--metrics"):
        MetricsFile(tmp_path / path, Telemetry(), output())


def test_a_disk_that_fills_up_costs_the_samples_not_the_run() -> None:
    err = io.StringIO()
    with MetricsFile(Path("/dev/full"), Telemetry(), output(err)):
        pass
    assert err.getvalue() == "warning: --metrics /dev/full ends early: No space left on device\n"
