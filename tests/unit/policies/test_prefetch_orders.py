"""What each prefetch policy names, and when."""

from __future__ import annotations

from engine.policies.prefetch import PREFETCH_POLICIES, RunnerUp, Sequential, Temporal
from engine.policies.prefetch.base import PrefetchPolicy
from engine.policies.prefetch.runner_up import MOST
from engine.policies.prefetch.sequential import AHEAD
from engine.types import PageId


def ids(*pages: int) -> list[PageId]:
    return [PageId(page) for page in pages]


def test_sequential_begins_at_the_first_page_and_goes_on_behind_the_last_read() -> None:
    policy, pages = Sequential(), ids(*range(100, 300))
    policy.follow(pages)
    assert list(policy.wanted()) == pages[:AHEAD]
    policy.read(ids(100, 101, 150, 120), is_gathered=False)
    assert list(policy.wanted()) == pages[51 : 51 + AHEAD]
    policy.read(ids(7, 8), is_gathered=False)
    assert list(policy.wanted()) == pages[51 : 51 + AHEAD], "of another sequence"
    policy.read(pages[-1:], is_gathered=True)
    assert list(policy.wanted()) == []


def test_sequential_sees_a_sequence_grow() -> None:
    policy, pages = Sequential(), ids(1, 2)
    policy.follow(pages)
    policy.read(ids(1, 2), is_gathered=False)
    assert list(policy.wanted()) == []
    pages += ids(5, 6)
    policy.read(ids(5), is_gathered=False)
    assert list(policy.wanted()) == ids(6)


def test_temporal_names_what_the_last_answers_were_read_from() -> None:
    policy = Temporal()
    policy.read(ids(1, 2), is_gathered=True)
    policy.read(ids(9), is_gathered=False)
    policy.read(ids(2, 3), is_gathered=True)
    assert list(policy.wanted()) == ids(2, 3, 1)
    policy.read(ids(4), is_gathered=True)
    assert list(policy.wanted()) == ids(4, 2, 3)


def test_runner_up_names_the_best_pages_of_the_last_question() -> None:
    policy = RunnerUp()
    policy.rank(ids(*range(1000)))
    assert list(policy.wanted()) == ids(*range(MOST))
    policy.rank(ids(5, 4))
    assert list(policy.wanted()) == ids(5, 4)


def test_every_policy_is_quiet_before_anything_happened() -> None:
    for make in PREFETCH_POLICIES.values():
        policy: PrefetchPolicy = make()
        assert list(policy.wanted()) == []
        policy.read([], is_gathered=False)
        policy.rank([])
        policy.follow([])
        assert list(policy.wanted()) == []
