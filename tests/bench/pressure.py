"""The tiers under pressure: exact decode with an eighth of the KV resident, and the probe's scan.

Each is timed four ways on one session file: as it is, with nothing read ahead (`serial`), its
compute alone (the same pages at rest in RAM), and its reading alone (the same reads, nothing done
with them). Overlap efficiency is (serial - measured) / (serial - max(compute, reading)). Reads go
around the page cache where the file system can do that; those of unified memory cannot, so that its
figure is for a file that the kernel still has, unless `--drop` drops it before every token.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine.assembly import identity_of
from engine.attention.layout import layout_part
from engine.attention.recorder import QueryRecorder
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import OverBudget
from engine.lookup import ProbeWay
from engine.memory.budget import MemoryPlan, plan_memory
from engine.model.load import LoadedModel
from engine.sequence import Sequence
from engine.session import SessionFile
from engine.telemetry import Phase, Telemetry
from engine.tiers.transfer import ReadJob
from engine.types import Part
from tests.bench.harness import default_model, real_text, report

DECODED = 8
AMPLE = 8 << 30


def engine_config(ram_bytes: int, **settings: Any) -> EngineConfig:
    """Settings that commit nothing by themselves: every run must find the same session."""
    return EngineConfig(ram_bytes=ram_bytes, checkpoint_seconds=1e9, **settings)


def config_for(model: LoadedModel, num_tokens: int, pages: int, **settings: Any) -> EngineConfig:
    """A RAM budget whose tiers hold `pages` pages, an eighth of them rotated."""
    config = engine_config(0, **settings)
    page = model.geometry.page_bytes
    config = replace(config, device_bytes=max(1, pages // 8) * page)
    while (plan := _plan(model, config, num_tokens)) is None or (
        plan.device_pages + plan.host_pages + plan.mapped_bytes // page < pages
    ):
        config = replace(config, ram_bytes=config.ram_bytes + page)
    return config


def _plan(model: LoadedModel, config: EngineConfig, num_tokens: int) -> MemoryPlan | None:
    try:
        return plan_memory(
            model.geometry, num_tokens=num_tokens, ram_bytes=config.ram_bytes,
            device_bytes=config.device_bytes, shared_memory=True, has_file=True,
            part_tokens=config.part_tokens, stream_depth=config.stream_depth,
            is_mapped=config.pager == "unified",
        )  # fmt: skip
    except OverBudget:
        return None


def make_session(model: LoadedModel, path: Path, ids: list[int]) -> None:
    """Read ids exactly, with room for all, and keep them."""
    file = SessionFile.create(path, identity_of(model), model.geometry, overwrite=True)
    engine = Engine(model, engine_config(AMPLE), Telemetry(), num_tokens=len(ids) + 64, file=file)
    sequence = engine.new_sequence()
    sequence.token_ids.extend(ids)
    engine.compute(sequence)
    engine.commit(sequence)
    engine.close()


@contextmanager
def resumed(model: LoadedModel, path: Path, config: EngineConfig) -> Iterator[tuple]:
    """An engine over a copy-free reopening of the session; nothing is committed to it."""
    file = SessionFile.open(path, writable=True)
    engine = Engine(model, config, Telemetry(), num_tokens=len(file.token_ids) + 64, file=file)
    try:
        yield engine, engine.resume()
    finally:
        engine.close()


def decode_seconds(
    model: LoadedModel, path: Path, config: EngineConfig, *, drop: bool = False
) -> tuple[dict[str, float], list[int]]:
    """Median seconds of a decoded token, after two that warm up, and what it read and waited."""
    with resumed(model, path, config) as (engine, sequence):
        sequence.token_ids.append(100)
        logits, seconds, tokens = engine.compute(sequence), [], []
        before = None
        for number in range(DECODED + 1):
            if drop:
                os.posix_fadvise(engine._parts.file._file._fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if number == 1:
                before = engine.telemetry.sample()
            tokens.append(int(logits.argmax()))
            sequence.token_ids.append(tokens[-1])
            started = time.perf_counter()
            logits = engine.compute(sequence)
            seconds.append(time.perf_counter() - started)
        after = engine.telemetry.sample()
        assert before is not None
        row = {
            "s/token": statistics.median(seconds[1:]),
            "read MB/token": (after.read_bytes - before.read_bytes) / DECODED / 1e6,
            "stall s/token": (after.stall_s - before.stall_s) / DECODED,
        }
        return row, tokens


def read_alone(
    engine: Engine, sequence: Sequence, layers: list[int], halves: tuple[Part, ...], num_tokens: int
) -> float:
    """Seconds to stream what lies on disk of the first tokens, doing nothing with it."""
    parts = engine._stack.past.scan(sequence, num_tokens)
    layouts = [layout_part(None, part) for part in parts]
    jobs = [ReadJob(layer, one.runs, halves) for layer in layers for one in layouts if one.runs]
    transfer = engine._memory.transfer
    assert transfer is not None
    started = time.perf_counter()
    for _ in transfer.stream(jobs):
        pass
    return time.perf_counter() - started


def median(times: int, once: Callable[[], float]) -> float:
    """The median of several runs."""
    return statistics.median(once() for _ in range(times))


def efficiency(serial: float, measured: float, compute: float, reading: float) -> float:
    """How much of what could be hidden was."""
    return (serial - measured) / max(serial - max(compute, reading), 1e-9)


def decoding(model: LoadedModel, path: Path, repeats: int, drop: bool) -> None:
    """Exact decode with an eighth of the pages in memory."""
    with SessionFile.open(path, writable=False) as file:
        num_tokens = len(file.token_ids)
    pages = model.geometry.num_pages(num_tokens)
    page = model.geometry.page_bytes
    eighth = config_for(model, num_tokens + 64, pages // 8)
    things = {
        "all rotated": (engine_config(AMPLE), False),
        "all at rest in RAM (compute)": (engine_config(AMPLE, device_bytes=page), False),
        "1/8, serial": (config_for(model, num_tokens + 64, pages // 8, stream_depth=1), False),
        "1/8, explicit": (eighth, False),
        "1/8, unified": (config_for(model, num_tokens + 64, pages // 8, pager="unified"), False),
    }
    if drop:
        things["1/8, unified, file dropped"] = (things["1/8, unified"][0], True)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in things}
    said: dict[str, list[int]] = {}
    reading = []
    for _ in range(repeats):
        for name, (config, drops) in things.items():
            row, said[name] = decode_seconds(model, path, config, drop=drops)
            runs[name].append(row)
        with resumed(model, path, eighth) as (engine, sequence):
            sequence.token_ids.append(100)
            engine.compute(sequence)
            layers = list(range(model.geometry.num_layers))
            reading.append(read_alone(engine, sequence, layers, tuple(Part), num_tokens - 64))
    rows = {
        name: {key: statistics.median(row[key] for row in seen) for key in seen[0]}
        for name, seen in runs.items()
    }
    rows["reading alone"] = {"s/token": statistics.median(reading)}
    time_of = {name: row["s/token"] for name, row in rows.items()}
    compute, alone = time_of["all at rest in RAM (compute)"], time_of["reading alone"]
    measured, serial = time_of["1/8, explicit"], time_of["1/8, serial"]
    for row in rows.values():
        row["of max(compute, reading)"] = row["s/token"] / max(compute, alone)
    report(
        f"exact decode at {num_tokens:,} tokens, 1/8 of {pages} pages in memory",
        rows,
        overlap_efficiency=round(efficiency(serial, measured, compute, alone), 3),
        same_tokens=len({tuple(tokens) for tokens in said.values()}) == 1,
        pages_in_memory={
            name: _room(model, config, num_tokens) for name, (config, _) in things.items()
        },
    )


def _room(model: LoadedModel, config: EngineConfig, num_tokens: int) -> str:
    plan = _plan(model, config, num_tokens + 64)
    assert plan is not None
    mapped = plan.mapped_bytes // model.geometry.page_bytes
    return f"{plan.device_pages} + {plan.host_pages}" + (f" + {mapped} mapped" if mapped else "")


def scanning(model: LoadedModel, path: Path, num_tokens: int, repeats: int) -> None:
    """The probe over the keys of a long session."""
    rows: dict[str, dict[str, float]] = {}
    least = config_for(model, num_tokens, 32)
    sure = min(num_tokens, 200_000)  # what is held in RAM to time the compute alone

    def scan(config: EngineConfig, tokens: int) -> dict[str, float]:
        with resumed(model, path, config) as (engine, sequence):
            sequence.local_window = 1024
            recorder = QueryRecorder(model.lookup_layers)
            fork = engine.fork(sequence)
            fork.token_ids += list(range(100, 120))
            engine.compute(fork, recorder=recorder)
            engine.drop(fork)
            before = engine.telemetry.sample()
            started = time.perf_counter()
            engine.probe(sequence, tokens, recorder, ProbeWay.SCAN)
            seconds = time.perf_counter() - started
            after = engine.telemetry.sample()
            alone = read_alone(engine, sequence, list(model.lookup_layers), (Part.KEYS,), tokens)
            return {
                "s": seconds,
                "reading alone s": alone,
                "stall s": after.seconds[Phase.READ] - before.seconds[Phase.READ],
                "read MB": (after.read_bytes - before.read_bytes) / 1e6,
            }

    runs: dict[str, list[dict[str, float]]] = {"as it is": [], "serial": []}
    for _ in range(repeats):
        runs["as it is"].append(scan(least, sure))
        runs["serial"].append(scan(config_for(model, num_tokens, 32, stream_depth=1), sure))
    for name, seen in runs.items():
        rows[name] = {key: statistics.median(row[key] for row in seen) for key in seen[0]}
    compute = rows["serial"]["s"] - rows["serial"]["stall s"]
    alone = rows["as it is"]["reading alone s"]
    rows["compute alone"] = {"s": compute}
    report(
        f"probe scan of {sure:,} tokens, {len(model.lookup_layers)} layers",
        rows,
        overlap_efficiency=round(
            efficiency(rows["serial"]["s"], rows["as it is"]["s"], compute, alone), 3
        ),
        of_max=round(rows["as it is"]["s"] / max(compute, alone), 3),
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--drop", action="store_true", help="unified memory from a cold file, too")
    parser.add_argument("--session", type=Path, help="a long session, for the scan")
    options = parser.parse_args()
    model = default_model()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        path = Path(folder) / "s.kv"
        make_session(model, path, real_text(model, options.tokens))
        decoding(model, path, options.repeats, options.drop)
    if options.session:
        with SessionFile.open(options.session, writable=False) as file:
            num_tokens = len(file.token_ids)
        scanning(model, options.session, num_tokens, options.repeats)


if __name__ == "__main__":
    main()
