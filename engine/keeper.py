"""Keeping a sequence: which pages go to the session file when, and what a commit holds.

Owns the way from the host tier to the file and the rhythm of commits. The file owns their order on
disk; the stack owns which pages lie only in memory.
"""

from __future__ import annotations

import time

import numpy as np

from engine.assembly import Assembly
from engine.lookup import PageLookup
from engine.sequence import Sequence
from engine.telemetry import Phase, Telemetry
from engine.tiers.disk import PageRun
from engine.tiers.finite import require_finite_to_keep
from engine.tiers.plan import DiskPlace
from engine.types import KVGeometry, Part, SegmentId


class Keeper:
    """Writes the main sequence behind the compute, and commits it.

    Args:
        assembly: The engine's parts.
        lookup: Whose sketch is kept beside the pages.
        telemetry: Where waits are booked.
        is_named: Whether the file is a session to keep, rather than a place to spill to.
        checkpoint_seconds: Longest time between commits while steps run.
    """

    def __init__(
        self,
        assembly: Assembly,
        lookup: PageLookup,
        telemetry: Telemetry,
        *,
        is_named: bool,
        checkpoint_seconds: float,
    ) -> None:
        self._file = assembly.file
        self._stack = assembly.stack
        self._memory = assembly.memory
        self._lookup = lookup
        self._telemetry = telemetry
        self._is_named = is_named
        self._interval = checkpoint_seconds
        self._last_commit = time.monotonic()
        self._committed_ids = len(assembly.file.token_ids) if assembly.file and is_named else 0

    @property
    def _geometry(self) -> KVGeometry:
        return self._memory.geometry

    def after_step(self, sequence: Sequence) -> None:
        """Queue segments that became full, and commit if it is time.

        Raises:
            StorageError: The disk is full or failed; the last commit stands.
        """
        if not sequence.on_disk:
            return
        full = sequence.num_tokens // self._geometry.segment_tokens
        self._save(sequence, full * self._geometry.pages_per_segment)
        if self._is_named and time.monotonic() - self._last_commit > self._interval:
            self.commit(sequence)

    def commit(
        self,
        sequence: Sequence,
        *,
        spans: list[dict[str, object]] | None = None,
        notes: dict[str, object] | None = None,
    ) -> None:
        """Make everything computed so far durable; does nothing without a session to keep.

        Args:
            sequence: The main sequence.
            spans: Source map entries to append, JSON.
            notes: The caller's own state, replaced whole; None leaves it.

        Raises:
            StorageError: The disk is full or failed; the last commit stands.
        """
        if self._file is None or not self._is_named:
            return
        if sequence.num_tokens < sequence.stored_tokens:
            return  # it is being computed again: the file has more
        assert self._memory.transfer is not None
        assert sequence.on_disk, "forks stay in memory"
        self._save(sequence, sequence.num_tokens // self._geometry.page_tokens)
        self._memory.transfer.writes.drain()
        with self._telemetry.phase(Phase.COMMIT):
            self._lookup.save()
            self._file.commit(
                token_ids=sequence.token_ids[self._committed_ids :],
                kv_tokens=sequence.num_tokens,
                spans=spans or [],
                notes=notes,
                tail=self._tail(sequence),
            )
        self._committed_ids = len(sequence.token_ids)
        self._last_commit = time.monotonic()
        self._stack.residency.publish()

    def _save(self, sequence: Sequence, end_page: int) -> None:
        """Queue every full page below `end_page` that lies only in memory."""
        size = self._geometry.pages_per_segment
        indices = self._stack.unsaved(sequence, end_page)
        for segment in sorted({index // size for index in indices}):
            members = [index for index in indices if index // size == segment]
            with self._telemetry.phase(Phase.COMPUTE):
                self._queue(sequence, PageRun(SegmentId(segment), members[0] % size, len(members)))
            for index in members:
                place = DiskPlace(SegmentId(segment), index % size)
                self._stack.residency.settle(sequence.table.pages[index], disk=place)
        if indices:
            self._stack.residency.publish()

    def _queue(self, sequence: Sequence, run: PageRun) -> None:
        geometry, memory = self._geometry, self._memory
        assert memory.transfer is not None
        first = run.segment * geometry.pages_per_segment + run.first
        pages = sequence.table.pages[first : first + run.num_pages]
        slots = [self._stack.residency.need_host(page, ()) for page in pages]
        for half in Part:
            for layer in range(geometry.num_layers):
                buffer = memory.transfer.writes.take_buffer()
                for row, slot in enumerate(slots):
                    page = memory.host.view(layer, half, slot, 0, geometry.page_tokens)
                    buffer.pages[row].copy_(page)
                memory.transfer.writes.write(buffer, run, half, layer)

    def _tail(self, sequence: Sequence) -> memoryview | None:
        """A copy of the last, partially filled page, zeros behind its tokens."""
        used, geometry = sequence.table.tokens_in_last_page, self._geometry
        if not used:
            return None
        slot = self._stack.residency.need_host(sequence.table.pages[-1], ())
        page = np.array(self._memory.host.bytes_of(slot))
        token_bytes = geometry.head_dim * geometry.itemsize
        page.reshape(-1, geometry.page_tokens, token_bytes)[:, used:] = 0
        where = f"keys or values of the last {used} tokens"
        require_finite_to_keep(page.data, geometry.dtype, where)
        return page.data
