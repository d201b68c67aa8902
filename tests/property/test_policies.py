"""Policies on random traces: none beats the optimum, and the optimum is the best there is."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.policies import POLICIES, EvictionPolicy
from engine.policies.belady import belady
from engine.policies.replay import replay
from engine.trace import Access, AccessKind
from engine.types import PageId

Step = tuple[str, list[int]]


def as_trace(steps: list[Step], most_new: int = 4) -> tuple[Access, ...]:
    """A trace as runs record them: pages begin before they are read, and ids are never reused.

    A step's numbers pick among the pages that are; of `new` and `stored` only how many counts.
    """
    live: list[PageId] = []
    trace, made = [], 0
    for kind, picks in steps:
        pages: tuple[PageId, ...]
        if kind in ("new", "stored"):
            pages = tuple(PageId(made + i) for i in range(min(len(picks), most_new)))
            made += len(pages)
            live += pages
        else:
            pages = tuple(dict.fromkeys(live[pick % len(live)] for pick in picks if live))
        if kind == "dropped":
            live = [page for page in live if page not in pages]
        mass = tuple(page % 3 / 2 for page in pages) if kind == "weighed" else ()
        if pages:
            trace.append(Access(AccessKind(kind), pages, mass))
    return tuple(trace)


def traces(most_steps: int, most_pages: int) -> st.SearchStrategy[tuple[Access, ...]]:
    kinds = st.sampled_from(["new", "stored", "read", "read", "read", "read", "weighed", "dropped"])
    picks = st.lists(st.integers(0, 20), min_size=1, max_size=most_pages)
    return st.lists(st.tuples(kinds, picks), max_size=most_steps).map(as_trace)


def reads(trace: tuple[Access, ...]) -> int:
    return sum(len(access.pages) for access in trace if access.kind is AccessKind.READ)


def fewest_misses(trace: tuple[Access, ...], capacity: int) -> int:
    """By trying everything that a tier could keep after each event."""

    @cache
    def least(at: int, present: frozenset[PageId]) -> int:
        if at == len(trace):
            return 0
        access = trace[at]
        pages, missed = set(access.pages), 0
        match access.kind:
            case AccessKind.READ:
                missed, present = len(pages - present), present | pages
            case AccessKind.NEW:
                present = present | pages
            case AccessKind.DROPPED:
                present = present - pages
        # to keep fewer than fit is never better
        kept = combinations(sorted(present), min(capacity, len(present)))
        return missed + min(least(at + 1, frozenset(some)) for some in kept)

    return least(0, frozenset())


@settings(deadline=None)
@given(traces(most_steps=8, most_pages=4), st.integers(1, 4))
def test_the_optimum_is_the_best_that_can_be_done(trace: tuple[Access, ...], capacity: int) -> None:
    assert belady(trace, capacity).misses == fewest_misses(trace, capacity)


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=200, deadline=None)
@given(traces(most_steps=40, most_pages=8), st.integers(1, 12))
def test_no_policy_beats_the_optimum(name: str, trace: tuple[Access, ...], capacity: int) -> None:
    result, best = replay(trace, POLICIES[name](), capacity), belady(trace, capacity)
    assert best.misses <= result.misses
    assert result.hits + result.misses == best.hits + best.misses == reads(trace)


class Watched(EvictionPolicy):
    """Hands everything on, and checks that the tier asks for nothing impossible."""

    def __init__(self, inner: EvictionPolicy, capacity: int) -> None:
        self.inner, self.capacity = inner, capacity
        self.admit_ = inner.admit
        self.touch, self.weigh, self.victim = inner.touch, inner.weigh, inner.victim
        self.remove, self.pages = inner.remove, inner.pages
        self.admitted = 0

    def admit(self, page: PageId) -> None:
        self.admit_(page)
        self.admitted += 1
        assert len(self.pages()) <= self.capacity


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(deadline=None)
@given(traces(most_steps=40, most_pages=8), st.integers(1, 12))
def test_a_tier_never_holds_more_than_it_can(
    name: str, trace: tuple[Access, ...], capacity: int
) -> None:
    policy = Watched(POLICIES[name](), capacity)
    result = replay(trace, policy, capacity)
    dropped = {
        page for access in trace if access.kind is AccessKind.DROPPED for page in access.pages
    }
    assert not policy.pages() & dropped
    left = policy.admitted - len(policy.pages())
    assert left - len(dropped) <= result.evictions <= left


@settings(deadline=None)
@given(traces(most_steps=40, most_pages=8))
def test_with_room_for_everything_all_miss_the_same(trace: tuple[Access, ...]) -> None:
    results = [replay(trace, policy(), 1000) for policy in POLICIES.values()]
    assert {(r.misses, r.evictions) for r in results} == {(belady(trace, 1000).misses, 0)}
