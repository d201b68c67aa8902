"""Executes plans: threads that read and write, bounded buffers, reads that run ahead of compute.

Owns the I/O threads, the write queue and the stream buffers. Decides nothing about which page
moves. The threads only move and check bytes; every tensor operation stays on the engine's thread,
which keeps results independent of timing.

Back-pressure: writing takes a buffer from a bounded pool and waits when there is none, so the write
queue can never outgrow its budget and nothing is dropped.

A write that failed, or a call that was given up, ends the use of the file: pages believed to lie on
disk may not, and a buffer may still be in the hands of a thread. Every later call says so again.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine.errors import StorageError
from engine.session import SessionFile
from engine.telemetry import Link, Phase, Telemetry
from engine.tiers.copies import Point
from engine.tiers.disk import PageBuffer, PageRun, read_run, write_run
from engine.tiers.extents import cut_run, pages_per_read
from engine.tiers.plan import DiskPlace
from engine.types import KVGeometry, Part, SegmentId


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
    ) -> None:
        self._file = file
        self._telemetry = telemetry
        self._deadline = deadline
        self._pages_per_read = pages_per_read(geometry, extent_bytes)
        self._io_threads = io_threads
        self._readers = ThreadPoolExecutor(io_threads, thread_name_prefix="kv-read")
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="kv-prefetch")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kv-write")
        self._free: queue.SimpleQueue[PageBuffer] = queue.SimpleQueue()
        for _ in range(write_buffers):
            self._free.put(PageBuffer(geometry, geometry.pages_per_segment, pinned=pinned))
        self._queued: deque[tuple[SegmentId, Future[None]]] = deque()
        self._failure: BaseException | None = None
        self._streams = [
            StreamBuffer(geometry, part_pages, pinned=pinned) for _ in range(stream_depth)
        ]

    # -- writing -----------------------------------------------------------------------------

    def take_buffer(self) -> PageBuffer:
        """Take a free write buffer; waits while the writer is behind.

        Raises:
            StorageError: An earlier write failed, or the writer does not answer.
        """
        self._raise_failure()
        try:
            return self._free.get_nowait()
        except queue.Empty:
            pass
        with self._telemetry.phase(Phase.WRITE):
            try:
                return self._free.get(timeout=self._deadline)
            except queue.Empty:
                raise self._give_up("write") from None

    def write(
        self,
        buffer: PageBuffer,
        run: PageRun,
        half: Part,
        layer: int,
        *,
        filled: Point | None = None,
    ) -> None:
        """Queue a buffer; it returns to the pool when its bytes are handed to the file.

        Args:
            buffer: The pages, in its front.
            run: Which pages they are.
            half: Keys or values.
            layer: Layer of the model.
            filled: Where the copies are done that fill the buffer; None: they are.
        """
        while self._queued and self._queued[0][1].done():
            self._queued.popleft()
        write = self._writer.submit(self._write, buffer, run, half, layer, filled)
        self._queued.append((run.segment, write))

    def _write(
        self, buffer: PageBuffer, run: PageRun, half: Part, layer: int, filled: Point | None
    ) -> None:
        try:
            if filled is not None:  # waited for in any case: the buffer goes back to the pool
                filled.synchronize()
            self._raise_failure()
            with self._telemetry.busy(Link.HOST_TO_DISK):
                num_bytes = write_run(self._file, run, half, layer, buffer)
            self._telemetry.count_written(num_bytes)
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._free.put(buffer)

    def drain(self) -> None:
        """Wait until every queued write is with the file, for a commit.

        Raises:
            StorageError: A write failed, or the writer does not answer.
        """
        with self._telemetry.phase(Phase.COMMIT):
            for _, write in self._queued:
                self._wait(write, "write")
        self._queued.clear()
        self._raise_failure()

    def is_being_written(self, segment: SegmentId) -> bool:
        """Whether pages of a segment wait for the writer, or are on their way."""
        return any(each == segment and not write.done() for each, write in tuple(self._queued))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # -- reading -----------------------------------------------------------------------------

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
                wait(flight.reads, timeout=self._deadline)

    def load(self, place: DiskPlace, into: list[list[memoryview]]) -> Future[None]:
        """Read a whole page at rest, behind whatever is streamed; see `HostTier.slices_of`.

        The future raises what `stream` would, and can be cancelled until reading has begun.
        """
        return self._loader.submit(self._load, place, into)

    def _load(self, place: DiskPlace, into: list[list[memoryview]]) -> None:
        run = PageRun(place.segment, place.index, 1)
        for layer, halves in enumerate(into):
            for half, memory in zip(Part, halves, strict=True):
                self._await_writes(run.segment)
                with self._telemetry.busy(Link.DISK_TO_HOST):
                    self._file.read_pages(run.segment, half, layer, run.first, 1, memory)
                self._telemetry.count_read(len(memory))

    def _await_writes(self, segment: SegmentId) -> None:
        """Wait until what was queued of a segment can be read; on an I/O thread."""
        for queued, write in tuple(self._queued):
            if queued == segment:
                write.result()
        self._raise_failure()

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
                    self._wait(read, "read")
        for read in flight.reads:
            read.result()
        return was_late

    def _read(self, reads: list[tuple[PageRun, Part, int]], layer: int, into: StreamBuffer) -> None:
        for segment in {run.segment for run, _, _ in reads}:
            self._await_writes(segment)
        num_bytes, moves = 0, 0
        try:
            with self._telemetry.busy(Link.DISK_TO_HOST):
                for run, half, first in reads:
                    num_bytes += read_run(self._file, run, half, layer, into.halves[half], first)
                    moves += 1
        finally:
            self._telemetry.count_read(num_bytes, moves)

    def _wait(self, future: Future[None], what: str) -> None:
        try:
            future.result(timeout=self._deadline)
        except FutureTimeout:
            raise self._give_up(what) from None

    def _give_up(self, what: str) -> StorageError:
        failure = StorageError(
            f"{self._file.path}: the disk did not answer a {what} within {self._deadline:g} s",
            "Check the disk; the session is safe up to its last checkpoint.",
        )
        self._failure = failure
        return failure

    def close(self) -> None:
        """Stop the threads; queued work is finished first."""
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True)
        self._loader.shutdown(wait=True)
