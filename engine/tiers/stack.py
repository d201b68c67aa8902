"""The tier stack: plans what each step reads and writes. Ids only, never a tensor.

Owns the decisions of a step: which new pages enter the device tier, which lie in the host tier,
which segments stream to the writer. `past` says where each earlier page is read from, `residency`
keeps the places; `attention` and `transfer` execute the plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.errors import OverBudget
from engine.memory.page_pool import PagePool
from engine.memory.page_table import CopyOnWrite
from engine.sequence import Sequence
from engine.tiers.past import SINK_TOKENS, PastPlanner
from engine.tiers.plan import DiskPlace, PageSource, PageTarget, PartPlan, SlotCopy, StepPlan
from engine.tiers.residency import Residency
from engine.trace import AccessKind
from engine.types import KVGeometry, PageId, SegmentId, SlotId, Tier

MOST_WEIGHED = 256
"""Pages that are weighed after a question: what the others draw tells nothing."""


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
    past: PastPlanner = field(init=False)
    """Where pages are read from."""

    def __post_init__(self) -> None:
        self.past = PastPlanner(self.geometry, self.part_tokens, self.residency, self.reach)

    # -- before a step -----------------------------------------------------------------------

    def plan_step(self, sequence: Sequence, num_new: int) -> StepPlan:
        """Reserve places for `num_new` tokens and say where every earlier page is read from.

        Raises:
            OverBudget: The host tier has no slot for a page that must lie there; nothing changed.
        """
        table = sequence.table
        self.past.make_room()
        first, before = table.num_tokens, len(table.pages)
        copy = table.reserve(num_new)
        fresh = [(i, table.pages[i]) for i in range(before, len(table.pages))]
        for index, page in [*fresh, *([(copy.index, copy.target)] if copy else [])]:
            pinned = (index + 1) * self.geometry.page_tokens <= SINK_TOKENS
            self.residency.add(page, pinned=pinned)
        busy = set(table.pages[first // self.geometry.page_tokens :])
        try:
            copies = self._plan_copy(copy, busy) if copy else ()
            stored, direct = self._whole_segments(sequence, first, num_new)
            targets = self._plan_targets(sequence, num_new, stored + direct, busy)
        except OverBudget:
            self._undo(sequence, copy)
            raise
        parts = self.past.parts(sequence, first, num_new)
        position = sequence.position(first)
        return StepPlan(first, num_new, parts, targets, copies, direct, stored, position)

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

    def _whole_segments(
        self, sequence: Sequence, first: int, num_new: int
    ) -> tuple[tuple[SegmentId, ...], tuple[SegmentId, ...]]:
        """Segments that the step fills and that need no room in memory: the stored, the new."""
        if not sequence.on_disk:
            return (), ()
        size = self.geometry.segment_tokens
        whole = [SegmentId(i) for i in range(-(-first // size), (first + num_new) // size)]
        num_stored = sum((segment + 1) * size <= sequence.stored_tokens for segment in whole)
        return tuple(whole[:num_stored]), tuple(whole[num_stored:])

    def _plan_targets(
        self,
        sequence: Sequence,
        num_new: int,
        on_disk: tuple[SegmentId, ...],
        busy: set[PageId],
    ) -> tuple[PageTarget, ...]:
        size, first = self.geometry.page_tokens, sequence.table.num_tokens
        pages = sequence.table.pages
        self._admit_new(pages, range(-(-first // size), len(pages)), busy)
        host_is_cache = self.past.host_is_cache
        targets = []
        for index in range(first // size, len(pages)):
            page = pages[index]
            if index // self.geometry.pages_per_segment not in on_disk:
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
        self.past.make_room()
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
        return self.past.gathering(sequence, indices), slots

    # -- after a step ------------------------------------------------------------------------

    def complete(self, sequence: Sequence, plan: StepPlan, pages_in_memory: int = 0) -> None:
        """Count the step's tokens and book its hits.

        Args:
            sequence: Whose step.
            plan: The step.
            pages_in_memory: Pages planned to come from disk that lay in memory after all.
        """
        sources = [source for part in plan.parts for source in part.sources]
        hits = dict.fromkeys(Tier, 0)
        for source in sources:
            hits[source.tier] += 1
            self.residency.touch(source.page, source.tier)
        self.residency.end_step()
        pages_in_memory = min(pages_in_memory, hits[Tier.DISK])  # layers may see different parts
        hits[Tier.HOST] += pages_in_memory
        hits[Tier.DISK] -= pages_in_memory
        self.past.have_read(sources, is_gathered=False)
        if sequence.on_disk:
            begun = [target.page for target in plan.targets if target.offset == 0]
            self.residency.telemetry.trace.begin(AccessKind.NEW, begun)
        sequence.table.advance(plan.num_tokens)
        size = self.geometry.pages_per_segment
        for segment in plan.stored + plan.direct:
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

    def weigh(self, sequence: Sequence, first_page: int, mass: list[float]) -> None:
        """Tell the policies how much attention a question paid to pages of a sequence.

        Args:
            sequence: Whose pages.
            first_page: The page that `mass` begins with.
            mass: Of each page from there on; the heaviest `MOST_WEIGHED` count.
        """
        heaviest = heapq.nlargest(MOST_WEIGHED, range(len(mass)), mass.__getitem__)
        weights = {sequence.table.pages[first_page + index]: mass[index] for index in heaviest}
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
        """Go on with pages that lie on disk, up to `num_tokens` tokens; whole pages stand before.

        The last, partially filled page, if any, gets a host slot for the caller to fill.

        Raises:
            OverBudget: The host tier has no slot for it.
        """
        table, size = sequence.table, self.geometry.pages_per_segment
        page_tokens, before = self.geometry.page_tokens, len(table.pages)
        assert not table.tokens_in_last_page and num_tokens >= table.num_tokens
        more = num_tokens - table.num_tokens
        table.reserve(more)
        table.advance(more)
        for index, page in enumerate(table.pages[before:], start=before):
            self.residency.add(page, pinned=(index + 1) * page_tokens <= SINK_TOKENS)
            if (index + 1) * page_tokens <= num_tokens:
                place = DiskPlace(SegmentId(index // size), index % size)
                self.residency.settle(page, disk=place)
            else:
                self.residency.need_host(page, ())
        self.residency.telemetry.trace.begin(AccessKind.STORED, table.pages[before:])
        self.residency.publish()

    def check_integrity(self) -> None:
        """Recount everything; any test or idle loop may call it."""
        self.residency.check_integrity(self.pool.live())
