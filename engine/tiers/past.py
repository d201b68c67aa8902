"""Where a step, a scan or a gathering reads the pages of the past from. Ids only, never a tensor.

Owns the choice of tier for each page that is read, and what comes up on the way. A step reads every
page of its past that some layer sees, each once. Where they all fit a tier, those that it lacks
come up and others leave, as the policy says. Where they do not, to admit one would push out another
that the same step needs: missing pages are streamed, and take only what room is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from engine.memory.budget import least_host_pages
from engine.sequence import Sequence
from engine.tiers.plan import PageSource, PartPlan
from engine.tiers.residency import Residency
from engine.types import KVGeometry, PageId, Tier

SINK_TOKENS = 128
"""Leading tokens whose pages are never evicted (arXiv 2309.17453)."""


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


class PagePrefetcher(Protocol):
    """Brings pages in before they are read (`prefetch`); the stack only knows that it does."""

    def make_room(self) -> None:
        """Slots of the host tier are about to be needed."""

    def need(self, pages: Collection[PageId]) -> None:
        """Pages are about to be read."""

    def read(self, sources: Iterable[PageSource], *, is_gathered: bool) -> None:
        """Pages were planned to be read together, from where the sources say."""


@dataclass(slots=True)
class PastPlanner:
    """Plans reading the pages of every sequence.

    Args:
        geometry: Shape of the KV.
        part_tokens: Tokens per attention part.
        residency: Places of all pages.
        reach: Tokens that the layer which sees furthest sees back, its own included; None for all.
        prefetcher: Brings pages in before they are read, if anything does.
    """

    geometry: KVGeometry
    part_tokens: int
    residency: Residency
    reach: int | None = None
    prefetcher: PagePrefetcher | None = None

    @property
    def host_is_cache(self) -> bool:
        """Whether the host tier has slots for pages that lie on disk, too."""
        return self.residency.host.slots.capacity > least_host_pages(self.geometry)

    def make_room(self) -> None:
        """Slots are about to be needed."""
        if self.prefetcher is not None:
            self.prefetcher.make_room()

    def parts(self, sequence: Sequence, first: int, num_new: int) -> tuple[PartPlan, ...]:
        """Cut what the step that begins at token `first` sees of its past into parts.

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
        if self.prefetcher is not None:
            self.prefetcher.need(admission.busy)
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

    def scan(
        self, sequence: Sequence, num_tokens: int, first_token: int = 0
    ) -> tuple[PartPlan, ...]:
        """Say where the keys at rest of tokens `[first_token, num_tokens)` are read from, by parts;
        the first token begins a page."""
        page_tokens, pages = self.geometry.page_tokens, sequence.table.pages
        assert num_tokens <= sequence.num_tokens and first_token % page_tokens == 0
        parts = []
        for begin in range(first_token, num_tokens, self.part_tokens):
            stop = min(begin + self.part_tokens, num_tokens)
            indices = range(begin // page_tokens, -(-stop // page_tokens))
            sources = tuple(self._source_at_rest(pages[index]) for index in indices)
            parts.append(PartPlan(begin, stop - begin, False, sources, 0, 0))
        return tuple(parts)

    def gathering(self, sequence: Sequence, indices: list[int]) -> tuple[PartPlan, ...]:
        """Say where pages at rest are copied from, by parts; what comes from disk may stay.

        Args:
            sequence: Whose pages.
            indices: Which, all full.
        """
        originals = [sequence.table.pages[index] for index in indices]
        busy = set(originals)
        if self.prefetcher is not None:
            self.prefetcher.need(busy)
        evict = len(busy) <= self.residency.host.slots.capacity // 2
        sources = [self._kept(self._source_at_rest(page), busy, evict=evict) for page in originals]
        for source in sources:
            self.residency.touch(source.page, source.tier)
        self.residency.end_step()
        self.residency.telemetry.count_hits(Counter(source.tier for source in sources))
        self.have_read(sources, is_gathered=True)
        size = self.geometry.page_tokens
        each = self.part_tokens // size
        groups = [tuple(sources[i : i + each]) for i in range(0, len(sources), each)]
        return tuple(PartPlan(0, len(g) * size, False, g, 0, 0) for g in groups)

    def have_read(self, sources: list[PageSource], *, is_gathered: bool) -> None:
        """Tell whoever learns from it what was read together."""
        self.residency.telemetry.trace.read(source.page for source in sources)
        if self.prefetcher is not None:
            self.prefetcher.read(sources, is_gathered=is_gathered)

    def _source_at_rest(self, page: PageId) -> PageSource:
        place = self.residency.of(page)
        if place.host is not None:
            return PageSource(page, Tier.HOST, place.host, place.disk, None)
        assert place.disk is not None, "every page lies at rest in the host tier or on disk"
        return PageSource(page, Tier.DISK, None, place.disk, None)

    def _kept(self, source: PageSource, busy: Collection[PageId], *, evict: bool) -> PageSource:
        """Have a page from disk kept in the host tier, if there is or can be made room."""
        if source.tier is not Tier.DISK or not self.host_is_cache:
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
