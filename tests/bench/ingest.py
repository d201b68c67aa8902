"""Reading a long document by the command line, beside the floor taken in the same run.

`kvcli ingest` runs as a user would run it, in the terminal this was started from. Every
`--floor-every` seconds it is stopped for a moment and the floor is timed with nothing else running:
the model without attention, and unmasked attention over as many keys as a step sees. Those moments
do not count as reading time. Peak memory is the process's own high-water mark; what the run is
without pages is its resident size when the first step begins.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from engine.model.load import LoadedModel
from kernels.attention import attention_part
from kvcli.ingest_settings import LOCAL_WINDOW
from tests.bench.floor import forward_seconds
from tests.bench.harness import ROOT, default_model, report

SINK_TOKENS = 128
STEP = 1024
SPAN = 100_000
"""Tokens over which the beginning and the end are compared."""


@torch.inference_mode()
def floor_rate(model: LoadedModel, repeats: int = 3) -> float:
    """Tokens per second of a step that does nothing else: forward, and attention to its keys."""
    geometry, dtype = model.geometry, getattr(torch, model.geometry.dtype)
    queries = torch.randn(model.num_heads, STEP, geometry.head_dim).to(dtype)
    seen = SINK_TOKENS + LOCAL_WINDOW + STEP // 2
    keys, values = torch.randn(2, geometry.num_kv_heads, seen, geometry.head_dim).to(dtype)
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        for _ in range(geometry.num_layers):
            attention_part(queries, keys, values, scaling=0.125, first_query=seen, first_key=0)
        attention = time.perf_counter() - started
        seconds.append(forward_seconds(model, STEP, STEP) + attention)
    return STEP / statistics.median(seconds)


@dataclass
class Watch:
    """What is seen of the process from outside."""

    process: subprocess.Popen[bytes]
    metrics: Path
    begun: float = field(default_factory=time.monotonic)
    paused_s: float = 0.0
    seen: list[tuple[float, int]] = field(default_factory=list)
    """Reading time and tokens read by then."""
    rss_before: int = 0
    rss_peak: int = 0

    def look(self) -> None:
        """Take a sample of progress and memory."""
        memory = _memory(self.process.pid)
        self.rss_peak = max(self.rss_peak, memory.get("VmHWM", 0))
        done = _tokens_done(self.metrics)
        if not done:
            self.rss_before = memory.get("VmRSS", self.rss_before)
        if done and (not self.seen or done > self.seen[-1][1]):
            self.seen.append((time.monotonic() - self.begun - self.paused_s, done))

    def pause(self, model: LoadedModel) -> float:
        """Stop the process, time the floor, let it go on."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGSTOP)
        try:
            return floor_rate(model)
        finally:
            self.process.send_signal(signal.SIGCONT)
            self.paused_s += time.monotonic() - started

    def rate(self, first: int, last: int) -> float:
        """Tokens per second between two counts of tokens."""
        within = [(at, done) for at, done in self.seen if first <= done <= last]
        (begin, fewer), (end, more) = within[0], within[-1]
        return (more - fewer) / (end - begin)


def _memory(pid: int) -> dict[str, int]:
    """Bytes by name, of `/proc/PID/status`; empty once the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    found = (re.match(r"(Vm\w+):\s+(\d+) kB", line) for line in lines)
    return {match[1]: int(match[2]) * 1024 for match in found if match}


def _tokens_done(metrics: Path) -> int:
    """Tokens read, by the last whole line of the metrics."""
    if not metrics.exists():
        return 0
    with metrics.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
        lines = file.read().splitlines()
    return int(json.loads(lines[-2])["tokens_done"]) if len(lines) > 2 else 0


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("document", type=Path)
    parser.add_argument("session", type=Path)
    parser.add_argument("--ram", default="2GiB")
    parser.add_argument("--floor-every", type=float, default=240.0, help="seconds")
    options = parser.parse_args()
    model, metrics = default_model(), options.session.with_suffix(".jsonl")
    metrics.unlink(missing_ok=True)
    floors = [floor_rate(model)]
    command = [sys.executable, "-m", "kvcli.app", "ingest", str(options.document)]
    command += ["-o", str(options.session), "--ram", options.ram, "--metrics", str(metrics)]
    watch = Watch(subprocess.Popen(command, cwd=ROOT), metrics)
    last = time.monotonic()
    while watch.process.poll() is None:
        watch.look()
        if watch.seen and time.monotonic() - last > options.floor_every:
            floors.append(watch.pause(model))
            last = time.monotonic()
        time.sleep(0.5)
    if watch.process.returncode:
        sys.exit(watch.process.returncode)
    floors.append(floor_rate(model))
    total, floor = watch.seen[-1][1], statistics.median(floors)
    kv_bytes = total * model.geometry.token_bytes
    written = json.loads(metrics.read_text().splitlines()[-1])["written_bytes"]
    rates = {
        "first 100,000": watch.rate(0, SPAN),
        "last 100,000": watch.rate(total - SPAN, total),
        "all": watch.rate(0, total),
        "floor": floor,
    }
    report(
        f"ingest of {total:,} tokens, --ram {options.ram}",
        {name: {"tok/s": rate, "of floor": rate / floor} for name, rate in rates.items()},
        wall_s=round(watch.seen[-1][0]),
        floors=[round(rate) for rate in floors],
        written_of_kv=round(written / kv_bytes, 4),
        file_of_kv=round(options.session.stat().st_size / kv_bytes, 4),
        peak_rss_mb=watch.rss_peak // 10**6,
        rss_before_first_step_mb=watch.rss_before // 10**6,
    )  # fmt: skip


if __name__ == "__main__":
    main()
