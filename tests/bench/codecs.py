"""Codecs beside raw: rates of coding, bytes, and what they do for ingest and disk-bound decode.

Rates are of raw bytes on one thread, on runs of eight pages as the tiers read and write them,
beside a plain copy of the same bytes, by the time of the processor: who else uses it does not
count. Decode is exact, of the default model, with an eighth of the pages in memory: everything else
is read from the session at each token. `--disk` slows reads down to so many MB/s, all threads
together, to show a slower disk than the machine's; it sleeps in the place of the device and changes
nothing else. Goals: decode 1.6 times as fast as raw with int8, 2.5 times with int4, where the disk
is the limit; ingest at least 0.95 of raw; int8 1.85 times smaller, int4 3.5 times.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from engine.assembly import new_session
from engine.codecs import CODECS
from engine.config import KVCodecs
from engine.engine import Engine
from engine.model.load import LoadedModel
from engine.session import compact_session, describe, extents_bytes
from engine.session.block_file import BlockFile
from engine.telemetry import Telemetry
from engine.tiers.coding import buffer_bytes, recoding_to
from engine.types import KVGeometry, Part
from tests.bench.harness import alternate, default_model, real_text, report
from tests.bench.pressure import (
    config_for,
    decode_seconds,
    engine_config,
    make_session,
    read_alone,
    resumed,
)  # fmt: skip

RUN_PAGES = 8
MANY = 30
"""Calls of one measurement."""


def rates(geometry: KVGeometry, repeats: int) -> None:
    """GB/s of raw bytes, one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    shape = (RUN_PAGES, geometry.num_kv_heads, geometry.page_tokens, geometry.head_dim)
    pages = torch.randn(shape).to(getattr(torch, geometry.dtype))
    out = torch.empty_like(pages)

    def rate(call: Callable[[], object]) -> float:
        started = time.thread_time()
        for _ in range(MANY):
            call()
        return MANY * pages.nbytes / (time.thread_time() - started) / 1e9

    def measure(name: str) -> dict[str, float]:
        codec, row = CODECS[name], {}
        for part in Part:
            coded = codec.encode(part, pages)
            half = part.name.lower()
            row[f"encode {half}, GB/s"] = rate(lambda part=part: codec.encode(part, pages))  # type: ignore[misc]
            row[f"decode {half}, GB/s"] = rate(
                lambda part=part, coded=coded: codec.decode(part, coded, out)  # type: ignore[misc]
            )
        return row

    things: dict[str, Callable[[], dict[str, float]]] = {
        name: lambda name=name: measure(name)  # type: ignore[misc]
        for name in CODECS
        if name != "raw"
    }
    things["plain copy"] = lambda: {"decode keys, GB/s": rate(lambda: out.copy_(pages))}
    rows = alternate(things, repeats)
    torch.set_num_threads(threads)
    report(f"codecs, runs of {RUN_PAGES} pages, one thread", rows)


def sizes(geometry: KVGeometry) -> None:
    """Bytes of a page, and of whole files with their raw segment and padding."""
    rows = {}
    for name, codec in CODECS.items():
        coded = codec.sizes(geometry)
        page = (
            geometry.page_bytes if coded is None
            else geometry.num_layers * (coded.keys + coded.values)
        )  # fmt: skip
        rows[name] = {"page, kB": page / 1e3, "page, raw of it": geometry.page_bytes / page}
        for label, tokens in (("8k", 8192), ("64k", 65536), ("1M", 1_000_000)):
            whole = extents_bytes(geometry, coded, tokens)
            rows[name][f"{label} tokens, GB"] = whole / 1e9
            rows[name][f"{label}, raw of it"] = extents_bytes(geometry, None, tokens) / whole
    report("bytes at rest", rows)


@contextmanager
def slow_disk(mb_per_second: float) -> Iterator[None]:
    """Reads of any file take at least so long, all threads together; 0: as long as they take."""
    if not mb_per_second:
        yield
        return
    real, lock, free_at = BlockFile.read, threading.Lock(), 0.0

    def read(self: BlockFile, into: memoryview, offset: int) -> int:
        nonlocal free_at
        with lock:
            free_at = max(free_at, time.perf_counter()) + len(into) / (mb_per_second * 1e6)
            until = free_at
        got = real(self, into, offset)
        time.sleep(max(0.0, until - time.perf_counter()))
        return got

    BlockFile.read = read  # type: ignore[method-assign]
    try:
        yield
    finally:
        BlockFile.read = real  # type: ignore[method-assign]


def decoding(model: LoadedModel, folder: Path, tokens: int, disk: float, repeats: int) -> None:
    """Exact decode while most pages are on disk; the coded sessions are made of the raw one."""
    raw = folder / "raw.kv"
    if not raw.exists():
        make_session(model, raw, real_text(model, tokens))
    paths = {"raw": raw}
    for name in CODECS:
        path = paths.setdefault(name, folder / f"{name}.kv")
        if not path.exists():
            shutil.copyfile(raw, path)
            compact_session(path, lambda *_: None, recoding_to(name, model.geometry))
    eighth = config_for(model, tokens + 64, model.geometry.num_pages(tokens) // 8)

    def measure(name: str) -> dict[str, float]:
        config = replace(eighth, kv_codecs=KVCodecs(name))
        if name != "raw":
            more = buffer_bytes(model.geometry, config.io_threads, config.part_tokens)
            config = replace(config, ram_bytes=config.ram_bytes + more)
        with slow_disk(disk):
            row, _ = decode_seconds(model, paths[name], config)
            with resumed(model, paths[name], config) as (engine, sequence):
                sequence.token_ids.append(100)
                engine.compute(sequence)
                layers = list(range(model.geometry.num_layers))
                seconds = read_alone(engine, sequence, layers, tuple(Part), tokens - 64)
        return {**row, "reading alone, s": seconds}

    rows = alternate({name: lambda name=name: measure(name) for name in paths}, repeats)  # type: ignore[misc]
    for row in rows.values():
        row["times raw"] = rows["raw"]["s/token"] / row["s/token"]
        row["reading, times raw"] = rows["raw"]["reading alone, s"] / row["reading alone, s"]
    allocated = {name: describe(path).allocated_bytes for name, path in paths.items()}
    for name, row in rows.items():
        row["file, MB"] = allocated[name] / 1e6
    limit = f"reads at most {disk:g} MB/s" if disk else "the machine's disk"
    report(f"exact decode at {tokens:,} tokens, 1/8 of the pages in memory, {limit}", rows)


def ingest(model: LoadedModel, folder: Path, tokens: int, repeats: int) -> None:
    """Tokens per second into a session, the last commit included."""
    ids, path = real_text(model, tokens), folder / "ingest.kv"

    def measure(name: str) -> dict[str, float]:
        file = new_session(path, model, name, overwrite=True)
        config = engine_config(2 << 30, kv_codecs=KVCodecs(name))
        engine = Engine(model, config, Telemetry(), num_tokens=tokens + 64, file=file)
        sequence = engine.new_sequence()
        sequence.local_window = 1024
        sequence.token_ids.extend(ids)
        started = time.perf_counter()
        engine.compute(sequence)
        engine.commit(sequence)
        seconds = time.perf_counter() - started
        engine.close()
        return {"tokens/s": tokens / seconds}

    names = ("raw", "int8", "int4")
    runs: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            runs[name].append(measure(name)["tokens/s"])
    rows = {
        name: {
            "tokens/s": statistics.median(found),
            "of raw beside it": statistics.median(
                one / raw for one, raw in zip(found, runs["raw"], strict=True)
            ),
        }
        for name, found in runs.items()
    }
    report(f"ingest of {tokens:,} tokens, bounded", rows)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path.home(), help="on the disk to measure")
    parser.add_argument("--tokens", type=int, default=6144, help="of the session that is decoded")
    parser.add_argument("--disk", type=float, nargs="*", default=[0], help="MB/s; 0: as it is")
    parser.add_argument("--ingest", type=int, default=8192, help="tokens; 0: not")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    model = default_model()
    rates(model.geometry, options.repeats)
    sizes(model.geometry)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.tokens:
            for disk in options.disk:
                decoding(model, Path(folder), options.tokens, disk, options.repeats)
        if options.ingest:
            ingest(model, Path(folder), options.ingest, options.repeats)


if __name__ == "__main__":
    main()
