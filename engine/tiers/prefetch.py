"""Prefetching: pages brought from disk into the host tier before anybody asks for them.

Owns what is on its way, the room that it may take, and the books: what was issued, what proved
useful, what came late, what was wasted. Which pages is the policies' choice; a thread of `transfer`
moves the bytes. Everything but that runs on the engine's thread, between steps.

A prefetched page takes a slot that is free or whose page may leave, never one that the step at hand
or the last one reads, and prefetched pages that were not read yet take at most a share of the tier.
What a policy may send for follows from what became of its earlier pages: one whose pages are not
read is soon not asked any more (Srinath et al., "Feedback directed prefetching", HPCA 2007).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

from engine.errors import KVError
from engine.policies.prefetch import PrefetchPolicy
from engine.telemetry import Phase, Telemetry
from engine.tiers.host import HostTier
from engine.tiers.plan import PageSource
from engine.tiers.residency import Residency
from engine.tiers.transfer import Transfer
from engine.types import PageId, Tier

MOST_SHARE = 4
"""Prefetched pages that were not read yet take at most one in so many slots of the host tier."""

MOST_FLYING = 16
"""Pages on their way at once: later ones may be wanted more urgently."""

LEARNING = 8
"""Pages that every policy may send for in a run although none of them is ever read."""

UNREAD_SHARE = 10
"""Beyond those, one in so many of a policy's pages may not have been read."""


@dataclass(slots=True)
class Record:
    """What became of the pages that one policy named."""

    issued: int = 0
    useful: int = 0

    @property
    def room(self) -> int:
        """Pages that it may send for now."""
        return LEARNING + self.issued // UNREAD_SHARE - (self.issued - self.useful)


@dataclass(frozen=True, slots=True)
class _Flight:
    """A page on its way."""

    load: Future[None]
    record: Record
    """Of the policy that named it."""


class Prefetcher:
    """Brings in what the policies want, as far as there is room.

    Args:
        policies: Asked in this order.
        residency: Places of all pages.
        host: Where pages are brought to.
        transfer: Reads them.
        telemetry: Where waits are booked.
    """

    def __init__(
        self,
        policies: Sequence[PrefetchPolicy],
        residency: Residency,
        host: HostTier,
        transfer: Transfer,
        telemetry: Telemetry,
    ) -> None:
        self._policies = policies
        self._records = [Record() for _ in policies]
        self._residency, self._host = residency, host
        self._transfer, self._telemetry = transfer, telemetry
        self._flying: dict[PageId, _Flight] = {}
        self._unread: dict[PageId, Record] = {}
        self._last: set[PageId] = set()
        """Pages of the last step: likely those of the next one, too."""
        self.counts = telemetry.prefetch

    @property
    def policies(self) -> Sequence[PrefetchPolicy]:
        """Told by whoever knows of what they care for."""
        return self._policies

    def read(self, sources: Iterable[PageSource], *, is_gathered: bool) -> None:
        """Learn what was read, from where."""
        sources = list(sources)
        pages = [source.page for source in sources]
        for source in sources:
            if source.page in self._unread and source.tier is Tier.HOST:
                self._unread.pop(source.page).useful += 1
                self.counts.useful += 1
        self._last = set(pages)
        for policy in self._policies:
            policy.read(pages, is_gathered=is_gathered)

    def run(self) -> None:
        """Let in what has come, and send for what is wanted next."""
        self._land(page for page, flight in list(self._flying.items()) if flight.load.done())
        self._give_up(page for page in self._unread if self._residency.of(page).host is None)
        room = self._residency.host.slots.capacity // MOST_SHARE
        room = min(room - len(self._unread) - len(self._flying), MOST_FLYING - len(self._flying))
        busy = self._last.union(self._unread)
        for policy, record in zip(self._policies, self._records, strict=True):
            wanted = policy.wanted()
            while min(room, record.room) > 0 and (page := next(wanted, None)) is not None:
                room -= self._send_for(page, busy, record)

    def _send_for(self, page: PageId, busy: set[PageId], record: Record) -> bool:
        """Have a page read if it lies on disk alone and a slot can be had."""
        if page in self._flying or not self._residency.is_live(page):
            return False
        place = self._residency.of(page)
        if place.fastest is not Tier.DISK:
            return False
        slot = self._residency.reserve_host(page, busy)
        if slot is None:
            return False
        assert place.disk is not None
        load = self._transfer.load(place.disk, self._host.slices_of(slot))
        self._flying[page] = _Flight(load, record)
        record.issued += 1
        self.counts.issued += 1
        return True

    def need(self, pages: Collection[PageId]) -> None:
        """Pages are about to be read: wait for those that have begun to come, give up the rest."""
        self._settle([page for page in self._flying if page in pages])

    def make_room(self) -> None:
        """Slots are about to be needed: have none that a page is on its way to, if none is free."""
        if not self._residency.host.slots.num_free:
            self._settle(list(self._flying))

    def _settle(self, pages: list[PageId]) -> None:
        loads = [self._flying[page].load for page in pages]
        late = [load for load in loads if not load.done() and not load.cancel()]
        self.counts.late += len(late)
        if late:
            with self._telemetry.phase(Phase.READ):
                wait(late)
        self._land(pages)

    def forget(self, pages: Iterable[PageId]) -> None:
        """Pages are about to cease to be."""
        pages = set(pages)
        self.need(pages)
        self._give_up(page for page in self._unread if page in pages)
        self._last.difference_update(pages)

    def _give_up(self, pages: Iterable[PageId]) -> None:
        """Pages that had come for nothing are gone."""
        for page in list(pages):
            del self._unread[page]
            self.counts.wasted += 1

    def _land(self, pages: Iterable[PageId]) -> None:
        """Settle pages whose reading is over; what failed is read again by whoever needs it."""
        for page in pages:
            flight = self._flying.pop(page)
            load, record = flight.load, flight.record
            failure = None if load.cancelled() else load.exception()
            if failure is not None and not isinstance(failure, KVError):
                raise failure
            came = not load.cancelled() and failure is None
            self._residency.end_reservation(page, came=came)
            if came:
                self._unread[page] = record
            elif load.cancelled():
                record.issued -= 1
                self.counts.issued -= 1
            else:
                self.counts.wasted += 1

    def close(self) -> None:
        """Give up what is on its way; waits for what has begun."""
        loads = [flight.load for flight in self._flying.values()]
        for load in loads:
            load.cancel()
        wait(loads)
