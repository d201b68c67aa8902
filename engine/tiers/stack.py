"""The tier stack: plans what each step reads and writes. Ids only, never a tensor.

Owns the decisions of a step: which new pages enter the device tier, which lie in the host tier,
which segments stream to the writer, where each earlier page is read from. `residency` keeps the
places; `attention` and `transfer` execute the plan.

A step reads every page of its past that some layer sees, each once. Where they all fit a tier,
those that it lacks come up and others leave, as the policy says. Where they do not, to admit one
would push out another that the same step needs: missing pages are streamed, and take only what room
is free.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from engine.errors import OverBudget
from engine.memory.budget import least_host_pages
from engine.memory.page_pool import PagePool
from engine.memory.page_table import CopyOnWrite
from engine.sequence import Sequence
from engine.tiers.plan import DiskPlace, PageSource, PageTarget, PartPlan, SlotCopy, StepPlan
from engine.tiers.residency import Residency
from engine.trace import AccessKind
from engine.types import KVGeometry, PageId, SegmentId, SlotId, Tier

SINK_TOKENS = 128
"""Leading tokens whose pages are never evicted (arXiv 2309.17453)."""

MOST_WEIGHED = 256
"""Pages that are weighed after a question: what the others draw tells nothing."""


@dataclass(frozen=True, slots=True)
class _Admission:
    """What may leave so that pages which a step reads can come up."""

    busy: set[PageId]
    """Pages that the step reads or writes."""
    below: set[PageId]
    """Those of them that did not lie in the device tier: what it reads from the host tier, or keeps
    there."""
    fits_device: bool
    """Whether all of the busy ones fit the device tier, so that others may leave it."""
    fits_host: bool
    """Whether all of those below fit the host tier."""


@dataclass(slots=True)
class TierStack:
    """Plans steps over the pages of every sequence.

    Args:
        geometry: Shape of the KV.
        part_tokens: Tokens per attention part.
        residency: Places of all pages.
        reach: Tokens that the layer which sees furthest sees back, its own included; None for all.
    """

    geometry: KVGeometry
    part_tokens: int
    residency: Residency
    reach: int | None = None
    pool: PagePool = field(default_factory=PagePool)

    # -- before a step -----------------------------------------------------------------------

    def plan_step(self, sequence: Sequence, num_new: int) -> StepPlan:
        """Reserve places for `num_new` tokens and say where every earlier page is read from.

        Raises:
            OverBudget: The host tier has no slot for a page that must lie there; nothing changed.
        """
        table = sequence.table
        first, before = table.num_tokens, len(table.pages)
        copy = table.reserve(num_new)
        fresh = [(i, table.pages[i]) for i in range(before, len(table.pages))]
        for index, page in [*fresh, *([(copy.index, copy.target)] if copy else [])]:
            pinned = (index + 1) * self.geometry.page_tokens <= SINK_TOKENS
            self.residency.add(page, pinned=pinned)
        busy = set(table.pages[first // self.geometry.page_tokens :])
        try:
            copies = self._plan_copy(copy, busy) if copy else ()
            direct = self._direct_segments(sequence, first, num_new)
            targets = self._plan_targets(sequence, num_new, direct, busy)
        except OverBudget:
            self._undo(sequence, copy)
            raise
        parts = self._plan_parts(sequence, first, num_new)
        position = sequence.position(first)
        return StepPlan(first, num_new, parts, targets, copies, direct, position)

    def _undo(self, sequence: Sequence, copy: CopyOnWrite | None) -> None:
        self.residency.forget(sequence.table.trim())
        if copy is not None:
            sequence.table.undo(copy)
            self.residency.forget([copy.target])

    def _plan_copy(self, copy: CopyOnWrite, busy: set[PageId]) -> tuple[SlotCopy, ...]:
        source = self.residency.of(copy.source)
        busy = busy | {copy.source}
        assert source.host is not None, "a partially filled page always lies in the host tier"
        target = self.residency.need_host(copy.target, busy)
        copies = [SlotCopy(Tier.HOST, source.host, target)]
        if source.device is not None:
            slot = self.residency.take_device(copy.target, None, busy)
            if slot is not None:
                copies.append(SlotCopy(Tier.DEVICE, source.device, slot))
        return tuple(copies)

    def _direct_segments(
        self, sequence: Sequence, first: int, num_new: int
    ) -> tuple[SegmentId, ...]:
        if not sequence.on_disk:
            return ()
        size = self.geometry.segment_tokens
        return tuple(SegmentId(i) for i in range(-(-first // size), (first + num_new) // size))

    def _plan_targets(
        self,
        sequence: Sequence,
        num_new: int,
        direct: tuple[SegmentId, ...],
        busy: set[PageId],
    ) -> tuple[PageTarget, ...]:
        size, first = self.geometry.page_tokens, sequence.table.num_tokens
        pages = sequence.table.pages
        self._admit_new(pages, range(-(-first // size), len(pages)), busy)
        host_is_cache = self._host_is_cache
        targets = []
        for index in range(first // size, len(pages)):
            page = pages[index]
            if index // self.geometry.pages_per_segment not in direct:
                self.residency.need_host(page, busy)
            elif host_is_cache:  # where the device tier has it too, it is not worth another's place
                is_above = self.residency.of(page).device is not None
                self.residency.take_host(page, busy, evict=not is_above)
            place = self.residency.of(page)
            begin, end = max(first, index * size), min(first + num_new, (index + 1) * size)
            offset = begin - index * size
            targets.append(PageTarget(page, offset, end - begin, begin, place.device, place.host))
        return tuple(targets)

    def _admit_new(self, pages: list[PageId], new: range, busy: set[PageId]) -> None:
        """Give device slots to the sinks and to the newest of the new pages, in ascending order."""
        residency = self.residency
        room = residency.device.slots.num_free + sum(
            residency.may_leave_device(page, busy) for page in residency.device.policy.pages()
        )
        sinks = [index for index in new if residency.of(pages[index]).pinned][:room]
        others = [index for index in new if index not in sinks]
        newest = others[max(0, len(others) - (room - len(sinks))) :]
        for index in sinks + newest:
            previous = residency.of(pages[index - 1]).device if index else None
            residency.take_device(pages[index], previous, busy)

    def _plan_parts(self, sequence: Sequence, first: int, num_new: int) -> tuple[PartPlan, ...]:
        """Cut what the step sees of its past into parts.

        Of a bounded sequence it sees the sinks and the local window, at compact positions (arXiv
        2309.17453); as long as nothing lies between the two, the whole past.
        """
        page_tokens, size = self.geometry.page_tokens, self.part_tokens
        own = num_new == 1
        seen = 0 if self.reach is None else max(0, first + 1 - self.reach)
        start, sinks, parts = seen // size * size, range(0), []
        if sequence.local_window is not None:
            border = (first - sequence.local_window) // page_tokens * page_tokens
            if border > SINK_TOKENS:
                start, sinks = border, range(-(-SINK_TOKENS // page_tokens))
        end = first + 1 if own else first
        admission = self._admission(
            sequence, sinks, range(start // page_tokens, end // page_tokens)
        )
        if sinks:
            sources = tuple(self._source(sequence, index, admission) for index in sinks)
            compact = first - start + SINK_TOKENS
            parts.append(PartPlan(0, SINK_TOKENS, False, sources, 0, compact))
        while start < end:
            stop = min(start + size, end, sequence.turn_end(start))
            past = range(start // page_tokens, -(-min(stop, first) // page_tokens))
            sources = tuple(self._source(sequence, index, admission) for index in past)
            position = sequence.position(start)
            turned = position + first - start
            is_last = own and stop == end
            parts.append(PartPlan(start, stop - start, is_last, sources, position, turned))
            start = stop
        return tuple(parts)

    def plan_scan(self, sequence: Sequence, num_tokens: int) -> tuple[PartPlan, ...]:
        """Say where the keys at rest of the first `num_tokens` tokens are read from, by parts."""
        assert num_tokens <= sequence.num_tokens
        page_tokens, pages = self.geometry.page_tokens, sequence.table.pages
        parts = []
        for begin in range(0, num_tokens, self.part_tokens):
            stop = min(begin + self.part_tokens, num_tokens)
            indices = range(begin // page_tokens, -(-stop // page_tokens))
            sources = tuple(self._source_at_rest(pages[index]) for index in indices)
            parts.append(PartPlan(begin, stop - begin, False, sources, 0, 0))
        return tuple(parts)

    def plan_gather(
        self, sequence: Sequence, indices: list[int], into: Sequence
    ) -> tuple[tuple[PartPlan, ...], list[SlotId]]:
        """Give an empty sequence host slots for copies of some pages of another.

        Args:
            sequence: Whose pages are copied.
            indices: Which, all full.
            into: The empty sequence.

        Returns:
            Where the pages lie at rest, by parts, and the slot of each copy.

        Raises:
            OverBudget: The host tier has no room for the copies; nothing changed.
        """
        assert not into.table.pages and not into.on_disk
        size = self.geometry.page_tokens
        into.table.reserve(len(indices) * size)
        for index, page in enumerate(into.table.pages):
            self.residency.add(page, pinned=(index + 1) * size <= SINK_TOKENS)
        try:
            slots = [self.residency.need_host(page, ()) for page in into.table.pages]
        except OverBudget:
            self.residency.forget(into.table.trim())
            raise
        # Only now: making room may have pushed the originals out of the host tier.
        originals = [sequence.table.pages[index] for index in indices]
        busy = set(originals)
        evict = len(busy) <= self.residency.host.slots.capacity // 2
        sources = [self._kept(self._source_at_rest(page), busy, evict=evict) for page in originals]
        for source in sources:
            self.residency.touch(source.page, source.tier)
        self.residency.end_step()
        self.residency.telemetry.trace.read(originals)
        each = self.part_tokens // size
        groups = [tuple(sources[i : i + each]) for i in range(0, len(sources), each)]
        return tuple(PartPlan(0, len(g) * size, False, g, 0, 0) for g in groups), slots

    def _source_at_rest(self, page: PageId) -> PageSource:
        place = self.residency.of(page)
        if place.host is not None:
            return PageSource(page, Tier.HOST, place.host, place.disk, None)
        assert place.disk is not None, "every page lies at rest in the host tier or on disk"
        return PageSource(page, Tier.DISK, None, place.disk, None)

    @property
    def _host_is_cache(self) -> bool:
        return self.residency.host.slots.capacity > least_host_pages(self.geometry)

    def _kept(self, source: PageSource, busy: Collection[PageId], *, evict: bool) -> PageSource:
        """Have a page from disk kept in the host tier, if there is or can be made room."""
        if source.tier is not Tier.DISK or not self._host_is_cache:
            return source
        return replace(source, keep=self.residency.take_host(source.page, busy, evict=evict))

    def _admission(self, sequence: Sequence, *past: range) -> _Admission:
        """Say what may leave for the pages that a step reads and the tiers lack."""
        pages = sequence.table.pages
        busy = {pages[index] for part in past for index in part}
        busy.update(pages[sequence.num_tokens // self.geometry.page_tokens :])
        below = {page for page in busy if self.residency.of(page).device is None}
        device, host = self.residency.device.slots, self.residency.host.slots
        return _Admission(busy, below, len(busy) <= device.capacity, len(below) <= host.capacity)

    def _source(self, sequence: Sequence, index: int, admission: _Admission) -> PageSource:
        pages = sequence.table.pages
        page = pages[index]
        place = self.residency.of(page)
        tier = place.fastest
        assert tier is not None, "a page of the past lies somewhere"
        if tier is Tier.DEVICE:
            return PageSource(page, tier, place.device, place.disk, None)
        previous = self.residency.of(pages[index - 1]).device if index else None
        promote = self.residency.take_device(
            page, previous, admission.busy, evict=admission.fits_device
        )
        source = PageSource(page, tier, place.host, place.disk, promote)
        if promote is not None:
            return source
        return self._kept(source, admission.below, evict=admission.fits_host)

    # -- after a step ------------------------------------------------------------------------

    def complete(self, sequence: Sequence, plan: StepPlan) -> None:
        """Count the step's tokens and book its hits."""
        hits = dict.fromkeys(Tier, 0)
        for part in plan.parts:
            for source in part.sources:
                hits[source.tier] += 1
                self.residency.touch(source.page, source.tier)
        self.residency.end_step()
        trace = self.residency.telemetry.trace
        if trace.is_on:
            trace.read(source.page for part in plan.parts for source in part.sources)
            if sequence.on_disk:
                trace.begin(AccessKind.NEW, [t.page for t in plan.targets if t.offset == 0])
        sequence.table.advance(plan.num_tokens)
        size = self.geometry.pages_per_segment
        for segment in plan.direct:
            for index in range(size):
                page = sequence.table.pages[segment * size + index]
                self.residency.settle(page, disk=DiskPlace(segment, index))
        self.residency.telemetry.count_hits(hits)
        self.residency.publish()

    def abort(self, sequence: Sequence, plan: StepPlan) -> None:
        """Undo a plan whose step failed: nothing it reserved remains, nothing it read is lost.

        Pages that were coming up leave the tier they came to, for they may be half filled.
        """
        for part in plan.parts:
            self.give_up(part.sources)
        self.residency.forget(sequence.table.trim())
        self.residency.publish()

    def give_up(self, sources: Iterable[PageSource]) -> None:
        """Take pages that were coming up out of the tiers they came to."""
        for source in sources:
            if source.promote is not None:
                self.residency.drop_device(source.page)
            if source.keep is not None:
                self.residency.drop_host(source.page)

    def weigh(self, sequence: Sequence, mass: list[float]) -> None:
        """Tell the policies how much attention a question paid to pages of a sequence.

        Args:
            sequence: Whose pages.
            mass: Of each page from the first on; the heaviest `MOST_WEIGHED` count.
        """
        heaviest = heapq.nlargest(MOST_WEIGHED, range(len(mass)), mass.__getitem__)
        weights = {sequence.table.pages[index]: mass[index] for index in heaviest}
        for page, weight in weights.items():
            self.residency.weigh(page, weight)
        self.residency.telemetry.trace.weigh(weights)

    def unsaved(self, sequence: Sequence, end_page: int) -> list[int]:
        """Indices below `end_page` of the pages that do not lie on disk yet, ascending."""
        pages = sequence.table.pages
        indices: list[int] = []
        for index in range(end_page - 1, -1, -1):
            if self.residency.of(pages[index]).disk is not None:
                break
            indices.append(index)
        return indices[::-1]

    def adopt(self, sequence: Sequence, num_tokens: int) -> None:
        """Fill an empty table with pages that lie on disk.

        The last, partially filled page, if any, gets a host slot for the caller to fill.

        Raises:
            OverBudget: The host tier has no slot for it.
        """
        table, size = sequence.table, self.geometry.pages_per_segment
        assert not table.pages
        table.reserve(num_tokens)
        table.advance(num_tokens)
        for index, page in enumerate(table.pages):
            self.residency.add(page, pinned=(index + 1) * self.geometry.page_tokens <= SINK_TOKENS)
            if (index + 1) * self.geometry.page_tokens <= num_tokens:
                place = DiskPlace(SegmentId(index // size), index % size)
                self.residency.settle(page, disk=place)
            else:
                self.residency.need_host(page, ())
        self.residency.telemetry.trace.begin(AccessKind.STORED, table.pages)
        self.residency.publish()

    def check_integrity(self) -> None:
        """Recount everything; any test or idle loop may call it."""
        self.residency.check_integrity(self.pool.live())
