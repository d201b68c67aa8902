"""Belady's MIN: the fewest misses that any policy can have, with the future known.

Of all pages at hand after an event, those stay whose next use comes soonest; one whose next use
lies further than all others' is not even let in. Sources: Belady, "A study of replacement
algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966; Mattson et al.,
"Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970. With bypass this is
the choice of the most intervals between two uses of which no more than `capacity` overlap, for
which dropping the one that ends last is optimal.

It replays a whole trace and is no `EvictionPolicy`: nobody knows what will be asked. The tier's
admission rules do not bind it, so that no policy that they bind can do better.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.policies.ranking import Ranking
from engine.policies.replay import ReplayResult
from engine.trace import Access, AccessKind
from engine.types import PageId


def belady(trace: Sequence[Access], capacity: int) -> ReplayResult:
    """Replay a trace through one tier with the fewest misses.

    Args:
        trace: The events in order.
        capacity: Pages that the tier holds, at least 1.
    """
    assert capacity > 0
    hits = misses = evictions = 0
    tier = _Foresight(capacity)
    for access, next_uses in zip(trace, _next_uses(trace), strict=True):
        if access.kind is AccessKind.READ:
            step = set(access.pages)
            found = tier.count(step)
            hits, misses = hits + found, misses + len(step) - found
        if access.kind in (AccessKind.READ, AccessKind.NEW):
            evictions += tier.choose(dict(zip(access.pages, next_uses, strict=True)))
        elif access.kind is AccessKind.DROPPED:
            tier.drop(access.pages)
    return ReplayResult(hits, misses, evictions)


def _next_uses(trace: Sequence[Access]) -> list[tuple[int, ...]]:
    """For every page of every event, the number of the next event that reads it.

    A page that is not read again, or is dropped before, has the number behind the last event's.
    """
    never, upcoming = len(trace), dict[PageId, int]()
    uses: list[tuple[int, ...]] = []
    for number in reversed(range(len(trace))):
        access = trace[number]
        uses.append(tuple(upcoming.get(page, never) for page in access.pages))
        if access.kind is AccessKind.READ:
            upcoming.update(dict.fromkeys(access.pages, number))
        elif access.kind is AccessKind.DROPPED:
            for page in access.pages:
                upcoming.pop(page, None)
    return uses[::-1]


class _Foresight:
    """A tier of pages by their next uses."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._present = Ranking[tuple[float, int]]()
        """Next use and number of the choice, both negative: of equals the newcomer goes."""
        self._choices = 0

    def count(self, pages: Iterable[PageId]) -> int:
        """How many of the pages are here."""
        return sum(page in self._present for page in pages)

    def choose(self, next_uses: dict[PageId, int]) -> int:
        """Choose between the pages here and others; gives how many of the former had to leave.

        Args:
            next_uses: Of every page that was just read or made, here or not.
        """
        newcomers = {page for page in next_uses if page not in self._present}
        for page, next_use in next_uses.items():
            self._choices += 1
            self._present.put(page, (-next_use, -self._choices))
        evictions = 0
        while len(self._present) > self._capacity:
            furthest = self._present.lowest(lambda _: True)
            assert furthest is not None
            self._present.remove(furthest)
            evictions += furthest not in newcomers
        return evictions

    def drop(self, pages: Iterable[PageId]) -> None:
        """Take out those of the pages that are here."""
        for page in pages:
            if page in self._present:
                self._present.remove(page)
