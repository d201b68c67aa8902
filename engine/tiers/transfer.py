"""Executes plans: threads that read into bounded buffers, ahead of compute.

Owns the threads that read and the stream buffers; writing is `write_queue`'s. Decides nothing about
which page moves. The threads move, check and decode bytes, each slice by itself; every tensor
operation that joins them stays on the engine's thread, so results do not depend on timing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine.codecs import Codec
from engine.session import SessionFile
from engine.telemetry import Link, Phase, Telemetry
from engine.tiers.coding import SliceCoder, compute_alone
from engine.tiers.disk import PageBuffer, PageRoom, PageRun, read_run, require_numbers
from engine.tiers.extents import cut_run, pages_per_read
from engine.tiers.io_state import IOState
from engine.tiers.plan import DiskPlace
from engine.tiers.write_queue import WriteQueue
from engine.types import KVGeometry, Part


@dataclass(frozen=True, slots=True)
class ReadJob:
    """The pages of one attention part that one layer reads from disk."""

    layer: int
    runs: tuple[tuple[int, PageRun], ...]
    """Each with the index within the part of its first page."""
    halves: tuple[Part, ...] = (Part.KEYS, Part.VALUES)


class StreamBuffer:
    """Keys and values of one part at rest; page i of the part lies at index i.

    Args:
        geometry: Shape of the KV.
        num_pages: Pages per part.
        pinned: Page-lock the memory, for copies to a CUDA device that do not block.
    """

    def __init__(self, geometry: KVGeometry, num_pages: int, *, pinned: bool = False) -> None:
        self.halves = {half: PageBuffer(geometry, num_pages, pinned=pinned) for half in Part}
        self.slices_in_memory = 0
        """Page slices for which the device was not asked: none."""

    def rest(self, half: Part, first_page: int, num_pages: int) -> Tensor:
        """Give `[num_pages, num_kv_heads, page_tokens, head_dim]` of neighbouring pages."""
        return self.halves[half].pages[first_page : first_page + num_pages]


class Staged(Protocol):
    """Keys and values of one part at rest, on their way from disk to compute."""

    slices_in_memory: int
    """Page slices for which the device was not asked."""

    def rest(self, half: Part, first_page: int, num_pages: int) -> Tensor:
        """Give `[num_pages, num_kv_heads, page_tokens, head_dim]` of neighbours from disk."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A job whose reads are under way."""

    buffer: StreamBuffer
    reads: list[Future[None]]
    is_ahead: bool
    """Whether it was begun while an earlier one was still to be taken."""


class Transfer:
    """The I/O of one session file.

    Args:
        file: Where pages lie.
        geometry: Shape of the KV.
        telemetry: Where bytes and waits are booked.
        write_buffers: Slices that may wait for the writer.
        part_pages: Pages of an attention part.
        stream_depth: Parts in flight or in use.
        io_threads: Threads that read.
        extent_bytes: Longest single read; a longer run of pages is cut between two pages.
        deadline: Longest wait for one piece of I/O, seconds.
        pinned: Page-lock the buffers, for copies from and to a CUDA device that do not block.
        codec: Of the file, if its pages are coded.
    """

    def __init__(
        self,
        file: SessionFile,
        geometry: KVGeometry,
        telemetry: Telemetry,
        *,
        write_buffers: int,
        part_pages: int,
        stream_depth: int,
        io_threads: int,
        extent_bytes: int,
        deadline: float,
        pinned: bool = False,
        codec: Codec | None = None,
    ) -> None:
        self._file = file
        self._telemetry = telemetry
        self._geometry = geometry
        self._coder = None if codec is None else SliceCoder(file, codec, io_threads, part_pages)
        alone = None if codec is None else compute_alone
        self._state = IOState(file.path, deadline)
        self._numbers: set[tuple[PageRun, Part, int]] = set()
        self._pages_per_read = pages_per_read(geometry, extent_bytes)
        self._io_threads = io_threads
        self._readers = ThreadPoolExecutor(io_threads, "kv-read", alone)
        self._loader = ThreadPoolExecutor(1, "kv-prefetch", alone)
        self.writes = WriteQueue(
            file,
            geometry,
            telemetry,
            self._state,
            num_buffers=write_buffers,
            pinned=pinned,
            coder=self._coder,
        )
        self._streams = [
            StreamBuffer(geometry, part_pages, pinned=pinned) for _ in range(stream_depth)
        ]

    def stream(self, jobs: Iterable[ReadJob]) -> Generator[Staged]:
        """Read jobs in order, ahead of whoever takes the results.

        Each item is valid until the next is taken; its buffer is then filled for a later job.
        Close the generator to stop early: it waits for the reads in flight.

        Raises:
            PageCorrupt: Bytes fail their checksum.
            StorageError: The device failed or does not answer.
        """
        waiting = iter(jobs)
        free = deque(self._streams)
        flying: deque[_Flight] = deque()
        ahead = self._telemetry.read_ahead
        try:
            while True:
                while free and (job := next(waiting, None)) is not None:
                    flying.append(self._start(job, free.popleft(), is_ahead=bool(flying)))
                    ahead.issued += flying[-1].is_ahead
                if not flying:
                    return
                was_late = self._land(flying[0])
                ahead.useful += flying[0].is_ahead
                ahead.late += flying[0].is_ahead and was_late
                yield flying[0].buffer
                free.append(flying.popleft().buffer)
        finally:
            for flight in list(flying)[1:]:  # the first is in the hands of whoever stops here
                ahead.wasted += flight.is_ahead
            for flight in flying:
                for read in flight.reads:
                    read.cancel()
                wait(flight.reads, timeout=self._state.deadline)

    def load(self, place: DiskPlace, into: list[list[memoryview]]) -> Future[None]:
        """Read a whole page at rest, behind whatever is streamed; see `HostTier.slices_of`.

        The future raises what `stream` would, and can be cancelled until reading has begun.
        """
        return self._loader.submit(self._load, place, into)

    def _load(self, place: DiskPlace, into: list[list[memoryview]]) -> None:
        run = PageRun(place.segment, place.index, 1)
        for layer, halves in enumerate(into):
            for half, memory in zip(Part, halves, strict=True):
                self._fetch([(run, half, PageRoom(memory, self._geometry), 0)], layer)

    def _start(self, job: ReadJob, buffer: StreamBuffer, *, is_ahead: bool) -> _Flight:
        """Deal the reads of a job to the threads.

        Each gets its share at once: what is handed to a thread one by one stops the engine's
        thread one by one, for both want the interpreter.
        """
        reads = [
            (piece, half, at)
            for first, run in job.runs
            for half in job.halves
            for at, piece in self._cut(first, run)
        ]
        shares = [reads[number :: self._io_threads] for number in range(self._io_threads)]
        return _Flight(
            buffer,
            [
                self._readers.submit(self._read, share, job.layer, buffer)
                for share in shares
                if share
            ],
            is_ahead,
        )

    def _cut(self, first: int, run: PageRun) -> Iterator[tuple[int, PageRun]]:
        """Cut a run that goes to page `first` of a buffer; each piece with where it goes."""
        for begin, count in cut_run(run.num_pages, self._pages_per_read):
            yield first + begin, PageRun(run.segment, run.first + begin, count)

    def _land(self, flight: _Flight) -> bool:
        """Wait until everything has been read; gives whether there was anything to wait for."""
        was_late = not all(read.done() for read in flight.reads)
        if was_late:
            with self._telemetry.phase(Phase.READ):
                for read in flight.reads:
                    self._state.wait(read, "read")
        for read in flight.reads:
            read.result()
        return was_late

    def _read(self, reads: list[tuple[PageRun, Part, int]], layer: int, into: StreamBuffer) -> None:
        self._fetch([(run, half, into.halves[half], first) for run, half, first in reads], layer)

    def _fetch(self, reads: list[tuple[PageRun, Part, PageRoom, int]], layer: int) -> None:
        """Read, check and decode runs of one layer, each into room from some page on."""
        for segment in {run.segment for run, *_ in reads}:
            self.writes.settle(segment)
        num_bytes, moves = 0, 0
        with nullcontext() if self._coder is None else self._coder.reading() as coded:
            try:
                with self._telemetry.busy(Link.DISK_TO_HOST):
                    for run, half, room, first in reads:
                        memory = room.bytes_of(first, run.num_pages)
                        pages = room.pages[first : first + run.num_pages]
                        num_bytes += read_run(self._file, run, half, layer, memory, pages, coded)
                        moves += 1
            finally:
                self._telemetry.count_read(num_bytes, moves)
            if coded is not None:
                coded.decode()
        for run, half, room, first in reads:
            memory = room.bytes_of(first, run.num_pages)
            require_numbers(self._file, run, half, layer, memory, self._numbers)

    def close(self) -> None:
        """Stop the threads; queued work is finished first."""
        self.writes.close()
        self._readers.shutdown(wait=True)
        self._loader.shutdown(wait=True)
