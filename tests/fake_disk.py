"""A session file in memory for the transfer threads, whose calls a test can hold up or let fail.

A gate holds calls until the test opens it, so that no test has to wait by the clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from engine.telemetry import Telemetry
from engine.tiers.disk import PageRun
from engine.tiers.transfer import ReadJob, Transfer
from engine.types import KVGeometry, Part, SegmentId

GEOMETRY = KVGeometry(3, 1, 4, "float32", page_tokens=2, segment_tokens=8)
SEGMENT_PAGES = GEOMETRY.pages_per_segment
BUFFERS = 3

Call = tuple[str, int, Part, int]
"""What ("read" or "write"), segment, half, layer."""


@dataclass
class FakeDisk:
    """A session file in memory whose calls can be held up and can fail."""

    path: Path = Path("fake.kv")
    geometry: KVGeometry = GEOMETRY
    before: Callable[[Call], None] = lambda call: None
    pages: dict[tuple[int, Part, int, int], bytes] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    extents: list[tuple[int, Part, int, range]] = field(default_factory=list)
    """Of every read its segment, half, layer, and pages counted from the start of the segment."""

    def write_pages(
        self, segment: SegmentId, half: Part, layer: int, first: int, data: memoryview
    ) -> None:
        self.before(("write", segment, half, layer))
        size = GEOMETRY.page_slice_bytes
        for i in range(len(data) // size):
            self.pages[segment, half, layer, first + i] = bytes(data[i * size : (i + 1) * size])
        self.calls.append(("write", segment, half, layer))

    def read_pages(
        self, segment: SegmentId, half: Part, layer: int, first: int, count: int, into: memoryview
    ) -> None:
        self.before(("read", segment, half, layer))
        into[:] = b"".join(self.pages[segment, half, layer, first + i] for i in range(count))
        self.calls.append(("read", segment, half, layer))
        self.extents.append((segment, half, layer, range(first, first + count)))

    def fill(self, segments: int) -> None:
        """Put the value of `value_of` into every page of the first segments."""
        for segment in range(segments):
            for half in Part:
                for layer in range(GEOMETRY.num_layers):
                    for page in range(SEGMENT_PAGES):
                        value = torch.full((8,), value_of(segment, half, layer, page))
                        self.pages[segment, half, layer, page] = value.numpy().tobytes()


def value_of(segment: int, half: Part, layer: int, page: int) -> float:
    return float(((segment * 2 + half) * 10 + layer) * 10 + page)


class Gate:
    """Holds calls of one kind until it is opened; knows how many have come."""

    def __init__(self, kind: str) -> None:
        self.kind, self.open, self.arrived = kind, threading.Event(), threading.Semaphore(0)

    def __call__(self, call: Call) -> None:
        if call[0] == self.kind:
            self.arrived.release()
            assert self.open.wait(20)


@contextmanager
def transferring(
    disk: FakeDisk,
    *,
    deadline: float = 20.0,
    depth: int = 2,
    threads: int = 2,
    extent: int = 1 << 20,
) -> Iterator[Transfer]:
    transfer = Transfer(
        disk,  # type: ignore[arg-type]
        GEOMETRY,
        Telemetry(),
        write_buffers=BUFFERS,
        part_pages=8,
        stream_depth=depth,
        io_threads=threads,
        extent_bytes=extent,
        deadline=deadline,
    )
    try:
        yield transfer
    finally:
        transfer.close()


def write(transfer: Transfer, segment: int, half: Part, layer: int) -> None:
    buffer = transfer.writes.take_buffer()
    for page in range(SEGMENT_PAGES):
        buffer.pages[page] = value_of(segment, half, layer, page)
    transfer.writes.write(buffer, PageRun(SegmentId(segment), 0, SEGMENT_PAGES), half, layer)


def jobs(*segments: int) -> list[ReadJob]:
    """One job a layer, each of the pages of these segments."""
    runs = tuple(
        (i * SEGMENT_PAGES, PageRun(SegmentId(segment), 0, SEGMENT_PAGES))
        for i, segment in enumerate(segments)
    )
    return [ReadJob(layer, runs) for layer in range(GEOMETRY.num_layers)]


def check(buffer: object, layer: int, *segments: int) -> None:
    for i, segment in enumerate(segments):
        for half in Part:
            for page in range(SEGMENT_PAGES):
                found = buffer.halves[half].pages[i * SEGMENT_PAGES + page]
                assert found.eq(value_of(segment, half, layer, page)).all()


def in_background(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
