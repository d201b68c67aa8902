"""A recorded run once more through one tier: what a policy would have done.

Owns the tier's rules, those of `engine.tiers.stack`: an event's pages are never victims of its own;
pages that are read and missing come in at the expense of others only if everything that the event
reads fits, else only where room is free; new pages come in at the expense of others, the newest if
not all fit. What a step reads is replayed before the pages it makes, as it is recorded. Sinks are
not told apart: the host tier pins none. Pure Python over page ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from engine.policies.base import EvictionPolicy
from engine.trace import Access, AccessKind
from engine.types import PageId


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a trace costs; each page counts once in an event that reads it."""

    hits: int
    """Reads of pages that lay in the tier."""
    misses: int
    """Reads of pages that came from below, whether they could stay or not."""
    evictions: int
    """Pages that left to make room; those that are no more do not count."""

    @property
    def hit_rate(self) -> float:
        """Share of the reads that the tier served; of no reads, all."""
        reads = self.hits + self.misses
        return self.hits / reads if reads else 1.0

    def bytes_moved(self, page_bytes: int) -> int:
        """Bytes that came from below, given those of one page."""
        return self.misses * page_bytes


def replay(trace: Sequence[Access], policy: EvictionPolicy, capacity: int) -> ReplayResult:
    """Replay a trace through one tier.

    Args:
        trace: The events in order.
        policy: An empty policy; it is used up.
        capacity: Pages that the tier holds, at least 1.
    """
    assert capacity > 0
    tier = _Tier(policy, capacity)
    for access in trace:
        match access.kind:
            case AccessKind.READ:
                tier.read(access.pages)
            case AccessKind.NEW:
                tier.create(access.pages)
            case AccessKind.WEIGHED:
                for page, mass in zip(access.pages, access.mass, strict=True):
                    policy.weigh(page, mass)
            case AccessKind.DROPPED:
                tier.drop(access.pages)
            case AccessKind.STORED:
                pass  # they lie below
    return ReplayResult(tier.hits, tier.misses, tier.evictions)


@dataclass(slots=True)
class _Tier:
    """One tier between two events."""

    policy: EvictionPolicy
    capacity: int
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    _present: set[PageId] = field(default_factory=set)

    def read(self, pages: Iterable[PageId]) -> None:
        """Read pages at once; hits are told last, as the stack tells them after the step."""
        step = dict.fromkeys(pages)
        found = [page for page in step if page in self._present]
        missing = [page for page in step if page not in self._present]
        self.hits += len(found)
        self.misses += len(missing)
        for page in missing:
            self._admit(page, step, evict=len(step) <= self.capacity)
        for page in found:
            self.policy.touch(page)

    def create(self, pages: Iterable[PageId]) -> None:
        """Let new pages in."""
        step = dict.fromkeys(pages)
        fresh = [page for page in step if page not in self._present]
        for page in fresh[-self.capacity :]:
            self._admit(page, step, evict=True)

    def _admit(self, page: PageId, busy: Collection[PageId], *, evict: bool) -> None:
        if len(self._present) == self.capacity:
            victim = self.policy.victim(lambda page: page not in busy) if evict else None
            if victim is None:
                return
            self.evictions += 1
            self.drop([victim])
        self._present.add(page)
        self.policy.admit(page)
        assert len(self._present) <= self.capacity

    def drop(self, pages: Iterable[PageId]) -> None:
        """Take out those of the pages that are here."""
        for page in self._present.intersection(pages):
            self._present.remove(page)
            self.policy.remove(page)
