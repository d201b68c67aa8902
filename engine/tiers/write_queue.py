"""The way to disk: slices wait in bounded buffers for the thread that writes them.

Owns the write buffers, their queue and the thread. Decides nothing about which page moves.

Back-pressure: writing takes a buffer from a bounded pool and waits when there is none, so the queue
can never outgrow its budget and nothing is dropped.
"""

from __future__ import annotations

import queue
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

from engine.session import SessionFile
from engine.telemetry import Link, Phase, Telemetry
from engine.tiers.coding import SliceCoder, compute_alone
from engine.tiers.copies import Point
from engine.tiers.disk import PageBuffer, PageRun, write_run
from engine.tiers.io_state import IOState
from engine.types import KVGeometry, Part, SegmentId


class WriteQueue:
    """Writes of one session file, in the order in which they are queued.

    Args:
        file: Where pages go.
        geometry: Shape of the KV.
        telemetry: Where bytes and waits are booked.
        state: Shared with whoever reads the file.
        num_buffers: Slices that may wait for the writer.
        pinned: Page-lock the buffers, for copies from a CUDA device that do not block.
        coder: Of a file whose pages are coded.
    """

    def __init__(
        self,
        file: SessionFile,
        geometry: KVGeometry,
        telemetry: Telemetry,
        state: IOState,
        *,
        num_buffers: int,
        pinned: bool = False,
        coder: SliceCoder | None = None,
    ) -> None:
        self._file = file
        self._coder = coder
        self._telemetry = telemetry
        self._state = state
        self._writer = ThreadPoolExecutor(1, "kv-write", None if coder is None else compute_alone)
        self._free: queue.SimpleQueue[PageBuffer] = queue.SimpleQueue()
        for _ in range(num_buffers):
            self._free.put(PageBuffer(geometry, geometry.pages_per_segment, pinned=pinned))
        self._queued: deque[tuple[SegmentId, Future[None]]] = deque()

    def take_buffer(self) -> PageBuffer:
        """Take a free write buffer; waits while the writer is behind.

        Raises:
            StorageError: An earlier write failed, or the writer does not answer.
        """
        self._state.check()
        try:
            return self._free.get_nowait()
        except queue.Empty:
            pass
        with self._telemetry.phase(Phase.WRITE):
            try:
                return self._free.get(timeout=self._state.deadline)
            except queue.Empty:
                raise self._state.give_up("write") from None

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
            self._state.check()
            with self._telemetry.busy(Link.HOST_TO_DISK):
                num_bytes = write_run(self._file, run, half, layer, buffer, self._coder)
            self._telemetry.count_written(num_bytes)
        except BaseException as error:
            self._state.failure = error
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
                self._state.wait(write, "write")
        self._queued.clear()
        self._state.check()

    def is_being_written(self, segment: SegmentId) -> bool:
        """Whether pages of a segment wait for the writer, or are on their way."""
        return any(each == segment and not write.done() for each, write in tuple(self._queued))

    def settle(self, segment: SegmentId) -> None:
        """Wait until what was queued of a segment can be read; on an I/O thread.

        Raises:
            StorageError: A write failed.
        """
        for queued, write in tuple(self._queued):
            if queued == segment:
                write.result()
        self._state.check()

    def close(self) -> None:
        """Stop the thread; queued work is finished first."""
        self._writer.shutdown(wait=True)
