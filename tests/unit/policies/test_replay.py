"""A recorded run once more: the tier's rules, the optimum, and the comparison of all policies."""

from __future__ import annotations

import math

from engine.policies import LRU, POLICIES
from engine.policies.belady import belady
from engine.policies.comparison import BELADY, compare, num_pages_read
from engine.policies.replay import ReplayResult, replay
from engine.trace import Access, AccessKind
from engine.types import PageId


def event(kind: AccessKind, *pages: int) -> Access:
    return Access(kind, tuple(PageId(page) for page in pages))


def stored(*pages: int) -> Access:
    return event(AccessKind.STORED, *pages)


def new(*pages: int) -> Access:
    return event(AccessKind.NEW, *pages)


def read(*pages: int) -> Access:
    return event(AccessKind.READ, *pages)


def dropped(*pages: int) -> Access:
    return event(AccessKind.DROPPED, *pages)


def by_lru(capacity: int, *trace: Access) -> ReplayResult:
    return replay(trace, LRU(), capacity)


def test_new_pages_lie_in_the_tier_and_stored_ones_below() -> None:
    assert by_lru(4, new(0, 1), stored(2), read(0, 1, 2)) == ReplayResult(2, 1, 0)


def test_a_page_named_twice_in_a_step_is_read_once() -> None:
    assert by_lru(4, stored(0), read(0, 0)) == ReplayResult(0, 1, 0)


def test_a_step_that_fits_pushes_others_out() -> None:
    assert by_lru(2, stored(*range(4)), read(0, 1), read(2), read(1, 2)) == ReplayResult(2, 3, 1)


def test_a_step_that_does_not_fit_takes_only_what_is_free() -> None:
    """Else page 0 would leave for page 1, page 1 for page 2, and nothing would ever be found."""
    big = read(0, 1, 2)
    assert by_lru(2, stored(0, 1, 2), big, big, big) == ReplayResult(4, 5, 0)


def test_a_steps_own_pages_are_no_victims() -> None:
    """Page 0 was read longest ago, but the step that wants page 2 reads it too."""
    assert by_lru(2, stored(0, 1, 2), read(0), read(1), read(0, 2), read(0)).hits == 2


def test_of_more_new_pages_than_fit_the_newest_stay() -> None:
    assert by_lru(2, new(0, 1, 2, 3), read(2, 3)) == ReplayResult(2, 0, 0)


def test_a_page_that_is_no_more_leaves_its_room() -> None:
    result = by_lru(2, new(0, 1), dropped(0, 7), new(2), read(1, 2))
    assert result == ReplayResult(2, 0, 0)


def test_weights_reach_the_policy() -> None:
    weighed = Access(AccessKind.WEIGHED, (PageId(0),), (0.5,))
    trace = (stored(0, 1, 2), read(0), read(1), weighed, read(2), read(0))
    assert replay(trace, POLICIES["mass"](), 2).hits == 1
    assert replay(trace, LRU(), 2).hits == 0


def test_rates_and_bytes() -> None:
    result = ReplayResult(hits=3, misses=1, evictions=0)
    assert (result.hit_rate, result.bytes_moved(100)) == (0.75, 100)
    assert ReplayResult(0, 0, 0).hit_rate == 1.0


def test_the_optimum_lets_a_page_pass_that_nobody_wants_again() -> None:
    trace = (stored(0, 1, 2), read(0), read(1), read(2), read(0), read(1))
    assert belady(trace, 2) == ReplayResult(hits=2, misses=3, evictions=0)
    assert by_lru(2, *trace).hits == 0


def test_the_optimum_keeps_no_page_that_will_be_dropped() -> None:
    trace = (new(0), new(1), dropped(0), read(1))
    assert belady(trace, 1) == ReplayResult(hits=1, misses=0, evictions=1)


def test_the_optimum_comes_first_and_then_whoever_misses_least() -> None:
    rounds = [read(page) for page in (0, 1, 2)] * 4
    contenders = compare((stored(0, 1, 2), *rounds), 2)
    assert contenders[0].policy == BELADY
    assert {each.policy for each in contenders} == {BELADY, *POLICIES}
    misses = [each.result.misses for each in contenders]
    assert misses == sorted(misses)
    lru = next(each for each in contenders if each.policy == "lru")
    assert (misses[0], lru.result.misses, lru.regret) == (6, 12, 2.0)


def test_regret_where_the_optimum_misses_nothing() -> None:
    """Page 1 is never read; all the same LRU lets page 0 go for it."""
    regret = {each.policy: each.regret for each in compare((new(0), new(1), read(0)), 1)}
    assert regret["lru"] == math.inf
    assert {each.regret for each in compare((new(0), read(0)), 1)} == {1.0}


def test_the_optimum_is_no_choice_of_the_command_line() -> None:
    assert BELADY not in POLICIES


def test_pages_read_are_counted_once() -> None:
    assert num_pages_read((stored(0, 1, 2, 3), read(1, 2), read(2, 3))) == 3
