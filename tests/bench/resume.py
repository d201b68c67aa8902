"""Resume against reading again: from opening a session file to the first token of an answer.

The page cache is dropped for the file before each run, checksums are on. Also tells the file's size
against its KV, and all that was written to the device in between, commits every few seconds and
their superblocks included. More tokens than the model's window are read exactly all the same.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil

from engine.assembly import identity_of
from engine.config import EngineConfig
from engine.engine import Engine
from engine.session import SessionFile
from engine.telemetry import Phase, Telemetry
from kvcli.prompts import PromptBuilder
from tests.bench.harness import default_model, real_text, report


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=8128)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where the file goes; default: a temporary one")
    options = parser.parse_args()
    model = default_model()
    window = options.tokens + 64
    if window > model.window:  # what it says means nothing then; what it costs is the same
        model = replace(model, window=window)
    ids = real_text(model, options.tokens)
    question = PromptBuilder(model.tokenizer, model.name).first_question(
        "Who is the bridge master?"
    )
    config = EngineConfig(ram_bytes=2 << 30)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "bench.kv"
        written, started = psutil.Process().io_counters().write_bytes, time.perf_counter()
        file = SessionFile.create(path, identity_of(model), model.geometry)
        engine = Engine(model, config, Telemetry(), num_tokens=window, file=file)
        sequence = engine.new_sequence()
        sequence.token_ids.extend(ids)
        engine.compute(sequence)
        engine.commit(sequence, notes={})
        ingest = time.perf_counter() - started
        commits = file.generation
        written = psutil.Process().io_counters().write_bytes - written
        engine.close()
        kv_bytes = len(ids) * model.geometry.token_bytes
        allocated = os.stat(path).st_blocks * 512
        times, samples = [], []
        for _ in range(options.repeats):
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
            telemetry = Telemetry()
            started = time.perf_counter()
            file = SessionFile.open(path, writable=True)
            engine = Engine(model, config, telemetry, num_tokens=window, file=file)
            sequence = engine.resume()
            sequence.token_ids.extend(question)
            int(engine.compute(sequence).argmax())
            times.append(time.perf_counter() - started)
            samples.append(telemetry.sample())
            engine.close()
        median = statistics.median(times)
        last = samples[-1]
        plain = _question_alone(model, question)
    rows = {
        "ingest": {"s": ingest},
        "resume to first token": {"s": median, "times faster": ingest / median},
        "the question's step alone, nothing before it": {"s": plain},
    }
    report(
        "resume", rows, tokens=len(ids), direct_io=True,
        read_MB=round(last.read_bytes / 1e6, 1),
        stall_read_s=round(last.seconds[Phase.READ], 3),
        read_GBps=round(last.read_bytes / median / 1e9, 2),
        file_over_kv=round(allocated / kv_bytes, 4),
        written_over_kv=round(written / kv_bytes, 4), commits=commits,
    )  # fmt: skip


def _question_alone(model, question: list[int]) -> float:  # type: ignore[no-untyped-def]
    engine = Engine(model, EngineConfig(ram_bytes=1 << 30), Telemetry(), num_tokens=512)
    seconds = []
    for _ in range(5):
        sequence = engine.new_sequence()
        sequence.token_ids.extend(question)
        started = time.perf_counter()
        engine.compute(sequence)
        seconds.append(time.perf_counter() - started)
        engine.drop(sequence)
    engine.close()
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
