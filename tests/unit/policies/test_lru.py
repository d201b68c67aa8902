"""Least recently used: the order in which pages leave."""

from __future__ import annotations

from engine.policies import LRU, POLICIES
from engine.types import PageId


def order(policy: LRU) -> list[int]:
    """The order in which everything would leave."""
    gone: list[int] = []
    while (page := policy.victim(lambda page: True)) is not None:
        policy.remove(page)
        gone.append(page)
    return gone


def filled(*pages: int) -> LRU:
    policy = LRU()
    for page in pages:
        policy.admit(PageId(page))
    return policy


def test_the_oldest_leaves_first() -> None:
    assert order(filled(3, 1, 2)) == [3, 1, 2]


def test_reading_a_page_makes_it_the_youngest() -> None:
    policy = filled(1, 2, 3)
    policy.touch(PageId(1))
    policy.touch(PageId(2))
    assert order(policy) == [3, 1, 2]


def test_asking_for_a_victim_changes_nothing() -> None:
    policy = filled(1, 2)
    assert policy.victim(lambda page: page == 2) == 2
    assert policy.victim(lambda page: True) == 1
    assert policy.pages() == {1, 2}


def test_a_page_that_comes_back_is_young() -> None:
    policy = filled(1, 2)
    policy.remove(PageId(1))
    policy.admit(PageId(1))
    assert order(policy) == [2, 1]


def test_it_has_a_name() -> None:
    assert POLICIES["lru"] is LRU
