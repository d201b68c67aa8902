"""Streaming through the transfer threads and a session file, against bare calls for the same bytes.

No model: pages of random numbers are written in a step's order, layer by layer, and read back part
by part. The bare calls write and read the same extents in the same order, with as many threads
and as much memory (a buffer that is used over and over stays in the processor's cache), straight to
the device: reads from the very session file, writes to a fresh file beside it, because
a file written twice would not be given its place twice. Both bypass the page cache (the bench
refuses a folder where that cannot be) and writes end with a barrier, the session's with a commit.
Threads, extent and depth are what the probe of the folder chooses, unless given. The ratio is the
cost of checksums, tables, buffers and Python; goals: reads at least 0.9 of the bare ones, writes
0.85.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.config import EngineConfig
from engine.memory.budget import WRITE_QUEUE_MAX, slice_buffer_bytes
from engine.session import Identity, SessionFile, aligned_buffer
from engine.telemetry import Telemetry
from engine.tiers.disk import PageRun
from engine.tiers.extents import cut_run, enough_depth, pages_per_read
from engine.tiers.transfer import ReadJob, Transfer
from engine.types import KVGeometry, Part, SegmentId
from kvcli.disk_probe import probe_disk
from tests.bench.harness import alternate, report

IDENTITY = Identity("bench", "", "", "", "", "bfloat16")
Extent = tuple[int, int]
"""Offset and bytes."""


@dataclass(frozen=True)
class Shape:
    """What is streamed, and how."""

    geometry: KVGeometry
    segments: int
    config: EngineConfig

    @property
    def num_bytes(self) -> int:
        return self.segments * self.geometry.segment_bytes

    def slices(self, step: int) -> list[tuple[int, Part, int]]:
        """Layer, half and segment of every slice, as steps of so many segments go through them."""
        return [
            (layer, half, segment)
            for first in range(0, self.segments, step)
            for layer in range(self.geometry.num_layers)
            for half in Part
            for segment in range(first, min(first + step, self.segments))
        ]

    def jobs(self) -> list[ReadJob]:
        """Every layer's parts, in a step's order."""
        size, part = self.geometry.pages_per_segment, self._part_segments
        return [
            ReadJob(layer, tuple(
                (i * size, PageRun(SegmentId(first + i), 0, size))
                for i in range(min(part, self.segments - first))
            ))
            for layer in range(self.geometry.num_layers)
            for first in range(0, self.segments, part)
        ]  # fmt: skip

    @property
    def write_buffers(self) -> int:
        """Slices that may wait for the writer."""
        return WRITE_QUEUE_MAX // slice_buffer_bytes(self.geometry)

    @property
    def stream_bytes(self) -> int:
        """Memory of the stream's buffers."""
        part = self.config.part_tokens * self.geometry.token_bytes // self.geometry.num_layers
        return self.config.stream_depth * part

    @property
    def _part_segments(self) -> int:
        return self.config.part_tokens // self.geometry.segment_tokens

    def read_extents(self, file: SessionFile) -> list[Extent]:
        """Where the reads of `jobs` lie in the file, in the order they are made."""
        size = self.geometry.page_slice_bytes
        most = pages_per_read(self.geometry, self.config.extent_bytes)
        return [
            (place(file, half, job.layer, run.segment) + first * size, count * size)
            for job in self.jobs()
            for _, run in job.runs
            for half in job.halves
            for first, count in cut_run(run.num_pages, most)
        ]


def place(file: SessionFile, half: Part, layer: int, segment: int) -> int:
    """Offset of a slice in the file."""
    segments = file._state.segments
    extent = segments.extent(segment)
    assert extent is not None
    return extent + segments.layout(segment).page_offset(half, layer, 0)


def transfer_of(file: SessionFile, shape: Shape) -> Transfer:
    """The engine's threads over a file."""
    return Transfer(
        file,
        shape.geometry,
        Telemetry(),
        write_buffers=shape.write_buffers,
        part_pages=shape.config.part_tokens // shape.geometry.page_tokens,
        stream_depth=shape.config.stream_depth,
        io_threads=shape.config.io_threads,
        extent_bytes=shape.config.extent_bytes,
        deadline=shape.config.io_deadline_seconds,
    )


def write_session(path: Path, shape: Shape) -> SessionFile:
    """Write every slice through the queue and commit; the caller closes the file."""
    file = SessionFile.create(path, IDENTITY, shape.geometry, overwrite=True)
    if not file.direct:
        sys.exit(f"{path.parent}: no direct I/O here; choose another --folder")
    numbers = torch.randn(shape.geometry.slice_bytes // 2).to(torch.bfloat16)
    step = shape.config.step_tokens // shape.geometry.segment_tokens
    with closing(transfer_of(file, shape)) as transfer:
        for layer, half, segment in shape.slices(step):
            buffer = transfer.writes.take_buffer()
            buffer.pages.copy_(numbers.view_as(buffer.pages))
            run = PageRun(SegmentId(segment), 0, shape.geometry.pages_per_segment)
            transfer.writes.write(buffer, run, half, layer)
        transfer.writes.drain()
    tokens = shape.segments * shape.geometry.segment_tokens
    file.commit(kv_tokens=tokens, token_ids=[0] * tokens)
    return file


def write_bare(path: Path, extents: list[Extent], buffers: int) -> None:
    """Write the same extents, one after another, from as much memory as the session's queue has."""
    largest = max(size for _, size in extents)
    data = aligned_buffer(buffers * largest)
    data[:] = os.urandom(len(data))
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
    try:
        for number, (offset, size) in enumerate(extents):
            begin = number % buffers * largest
            assert os.pwritev(handle, [data[begin : begin + size]], offset) == size
        os.fdatasync(handle)
    finally:
        os.close(handle)


def read_bare(path: Path, extents: list[Extent], threads: int, num_bytes: int) -> None:
    """Read the same extents with so many threads, into as much memory as the stream's buffers."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    left, lock = iter(extents), threading.Lock()

    def work() -> None:
        largest = max(size for _, size in extents)
        buffers = max(1, num_bytes // threads // largest)
        memory, turn = aligned_buffer(buffers * largest), 0
        while True:
            with lock:
                extent = next(left, None)
            if extent is None:
                return
            begin, turn = turn % buffers * largest, turn + 1
            into = memory[begin : begin + extent[1]]
            assert os.preadv(handle, [into], extent[0]) == extent[1]

    readers = [threading.Thread(target=work) for _ in range(threads)]
    try:
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    finally:
        os.close(handle)


def read_session(file: SessionFile, shape: Shape) -> None:
    """Read every part of every layer through the stream buffers."""
    with closing(transfer_of(file, shape)) as transfer:
        for _ in transfer.stream(shape.jobs()):
            pass


def compare(folder: Path, shape: Shape, repeats: int) -> dict[str, dict[str, float]]:
    """Alternate the four; GB/s of each."""
    session, bare = folder / "stream.kv", folder / "stream.raw"

    def timed(work: Callable[[], object]) -> dict[str, float]:
        started = time.perf_counter()
        work()
        return {"GB/s": shape.num_bytes / (time.perf_counter() - started) / 1e9}

    def write() -> None:
        write_session(session, shape).close()

    with closing(write_session(session, shape)) as file:
        reads = shape.read_extents(file)
        step = shape.config.step_tokens // shape.geometry.segment_tokens
        slices = shape.slices(step)
        writes = [
            (place(file, half, layer, segment), shape.geometry.slice_bytes)
            for layer, half, segment in slices
        ]
        rows = alternate(
            {
                "read, bare": lambda: timed(
                    lambda: read_bare(session, reads, shape.config.io_threads, shape.stream_bytes)
                ),
                "read, session": lambda: timed(lambda: read_session(file, shape)),
            },
            repeats,
        )
    return rows | alternate(
        {
            "write, bare": lambda: timed(lambda: write_bare(bare, writes, shape.write_buffers)),
            "write, session": lambda: timed(write),
        },
        repeats,
    )


def shape_of(arguments: argparse.Namespace, folder: Path) -> Shape:
    """What was asked for; the rest by the probe."""
    geometry = KVGeometry(
        arguments.layers, arguments.kv_heads, arguments.head_dim, "bfloat16",
        arguments.page_tokens,
    )  # fmt: skip
    probe = probe_disk(folder)
    print(f"probe: {probe.describe(geometry.slice_bytes)}")
    chosen = probe.choice(geometry.slice_bytes)
    threads = arguments.threads or chosen.readers
    extent = (arguments.extent_kib << 10) or chosen.extent_bytes
    part_tokens = EngineConfig(ram_bytes=0).part_tokens
    depth = arguments.depth or enough_depth(
        geometry, part_tokens=part_tokens, io_threads=threads, extent_bytes=extent
    )
    config = EngineConfig(ram_bytes=0, io_threads=threads, stream_depth=depth, extent_bytes=extent)
    return Shape(geometry, geometry.num_segments(arguments.tokens), config)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--layers", type=int, default=30, help="the default model's, as the next")
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--page-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0, help="0: as probed")
    parser.add_argument("--extent-kib", type=int, default=0, help="0: as probed")
    parser.add_argument("--depth", type=int, default=0, help="0: as the threads need")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        shape = shape_of(arguments, Path(folder))
        rows = compare(Path(folder), shape, arguments.repeats)
    for kind in ("read", "write"):
        bare, session = rows[f"{kind}, bare"], rows[f"{kind}, session"]
        session["of bare"] = session["GB/s"] / bare["GB/s"]
    config, size = shape.config, shape.geometry.slice_bytes
    report(
        "streaming", rows, threads=config.io_threads, extent_bytes=min(config.extent_bytes, size),
        depth=config.stream_depth, bytes=shape.num_bytes,
    )  # fmt: skip


if __name__ == "__main__":
    main()
