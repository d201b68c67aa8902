"""Unified memory on a CPU: pages at rest are the session file itself, mapped; they come on fault.

Owns what of the file is kept in the process's memory, and the advice that has the kernel read ahead
of compute. Writing is `transfer`'s. There is no host tier to plan for: the kernel's page cache is
it, and may keep more than the budget as long as nobody else wants the memory. What the process
itself maps stays within the budget: the slices used longest ago are let go first.

Explicit paging reads into memory of its own and knows what it will find there; unified paging reads
nothing itself, and learns at each part whether the kernel still has it. It copies neighbours in a
part that lie apart in the file: to rotate them one by one takes longer.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Generator, Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from engine.session import PageMap, PageSlices, SessionFile
from engine.telemetry import Phase, Telemetry
from engine.tiers.finite import place, require_finite_to_serve
from engine.tiers.transfer import ReadJob, StreamBuffer, Transfer
from engine.types import KVGeometry, Part, SegmentId


class MappedPart:
    """Keys and values of one part at rest, where the file is mapped.

    Args:
        joined: Where neighbours that do not lie side by side in the file are put together.
    """

    def __init__(self, joined: StreamBuffer) -> None:
        self._joined = joined
        self._halves: dict[tuple[Part, int], Tensor] = {}
        self.slices_in_memory = 0
        """Page slices for which the device was not asked."""

    def put(self, half: Part, first_page: int, pages: Tensor, *, was_present: bool) -> None:
        """Take in neighbouring pages, from page `first_page` of the part on."""
        self._halves[half, first_page] = pages
        self.slices_in_memory += len(pages) if was_present else 0

    def rest(self, half: Part, first_page: int, num_pages: int) -> Tensor:
        """Give `[num_pages, num_kv_heads, page_tokens, head_dim]` of neighbouring pages.

        Runs that make them up are whole: one lies in the mapped file, several are copied together.
        """
        pages, joined = self._halves[half, first_page], 0
        if len(pages) == num_pages:
            return pages
        target = self._joined.rest(half, first_page, num_pages)
        while joined < num_pages:
            pages = self._halves[half, first_page + joined]
            target[joined : joined + len(pages)] = pages
            joined += len(pages)
        return target


class UnifiedTransfer(Transfer):
    """As `Transfer`, but what is read is mapped.

    Args:
        file: Where pages lie.
        geometry: Shape of the KV.
        telemetry: Where bytes and waits are booked.
        mapped_bytes: Bytes of the file that may lie in the process's memory, above the parts that
            are in use or on their way; a buffer in which a part is put together counts with them.
        ahead: Parts that the kernel is told of before they are wanted.
        settings: As for `Transfer`; there are no stream buffers.
    """

    def __init__(
        self,
        file: SessionFile,
        geometry: KVGeometry,
        telemetry: Telemetry,
        *,
        mapped_bytes: int,
        ahead: int,
        **settings: Any,
    ) -> None:
        super().__init__(file, geometry, telemetry, stream_depth=0, **settings)
        self._geometry = geometry
        self._dtype = getattr(torch, geometry.dtype)
        self._map: PageMap = file.page_map()
        part_pages = settings["part_pages"]
        self._joined = StreamBuffer(geometry, part_pages)
        part_bytes = part_pages * len(Part) * geometry.page_slice_bytes
        self._most = max((mapped_bytes - part_bytes) // geometry.slice_bytes, 1)
        self._ahead = ahead
        self._mapped: OrderedDict[tuple[SegmentId, Part, int], None] = OrderedDict()
        """Layers of segments in the process's memory, those used longest ago first."""

    def stream(self, jobs: Iterable[ReadJob]) -> Generator[MappedPart]:
        """As `Transfer.stream`; the kernel reads ahead, and the caller waits for what it has not.

        Raises:
            PageCorrupt: Bytes fail their checksum.
            StorageError: The device failed.
        """
        waiting = iter(jobs)
        coming: deque[tuple[ReadJob, set[PageSlices]]] = deque()
        while True:
            while len(coming) <= self._ahead and (job := next(waiting, None)) is not None:
                coming.append((job, self._advise(job)))
            if not coming:
                return
            yield self._bring(*coming.popleft())

    def _advise(self, job: ReadJob) -> set[PageSlices]:
        """Have the kernel begin to read what it lacks of a job; gives what that is."""
        lacking = set()
        for _, slices in _slices(job):
            if not self.writes.is_being_written(slices.segment) and self._count_missing(slices):
                self._map.advise(slices)
                lacking.add(slices)
        return lacking

    def _count_missing(self, slices: PageSlices) -> int:
        missing = self._map.missing_bytes(slices)
        if missing:
            self._telemetry.count_read(missing)
        return missing

    def _bring(self, job: ReadJob, advised: set[PageSlices]) -> MappedPart:
        part = MappedPart(self._joined)
        for first, slices in _slices(job):
            if self.writes.is_being_written(slices.segment):
                self.writes.drain()
            self._state.check()
            if slices in advised:
                missing = self._map.missing_bytes(slices)
            else:
                missing = self._count_missing(slices)
            was_present = not missing and slices not in advised
            waiting = self._telemetry.phase(Phase.READ) if missing else nullcontext()
            with waiting:
                memory = self._map.read(slices, is_present=was_present)
            if not was_present:
                self._require_finite(memory, slices)
            self._use(slices)
            part.put(slices.part, first, self._tensor(memory, slices), was_present=was_present)
        return part

    def _require_finite(self, memory: memoryview, slices: PageSlices) -> None:
        geometry = self._geometry
        first = slices.segment * geometry.pages_per_segment + slices.first_page
        where = place(self._file.path, first, slices.part, slices.layer)
        require_finite_to_serve(memory, geometry.dtype, where)

    def _tensor(self, memory: memoryview, slices: PageSlices) -> Tensor:
        geometry = self._geometry
        shape = (geometry.num_kv_heads, geometry.page_tokens, geometry.head_dim)
        return torch.frombuffer(memory, dtype=self._dtype).view(slices.num_pages, *shape)

    def _use(self, slices: PageSlices) -> None:
        """Count a layer of a segment as the one used last, and let go of those beyond the budget.

        A part that is still in use may be let go of as well: touched again, it comes back.
        """
        key = (slices.segment, slices.part, slices.layer)
        self._mapped[key] = None
        self._mapped.move_to_end(key)
        while len(self._mapped) > self._most:
            self._map.release(*self._mapped.popitem(last=False)[0])


def _slices(job: ReadJob) -> list[tuple[int, PageSlices]]:
    """What a job reads, each with the index within its part of the first page."""
    return [
        (first, PageSlices(run.segment, half, job.layer, run.first, run.num_pages))
        for first, run in job.runs
        for half in job.halves
    ]
