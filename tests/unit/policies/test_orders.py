"""The order that each policy exists for, and what every policy owes the tier stack."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.policies import LRFU, POLICIES, S3FIFO, AttentionMass, Clock, EvictionPolicy
from engine.policies.attention_mass import HALF_LIFE, MOST_ABSENT
from engine.types import PageId
from kvcli.options import RunOptions


def filled(policy: EvictionPolicy, *pages: int) -> EvictionPolicy:
    for page in pages:
        policy.admit(PageId(page))
    return policy


def leave(policy: EvictionPolicy, count: int = 99) -> list[int]:
    """Evict up to `count` pages; gives them in the order in which they left."""
    gone: list[int] = []
    while len(gone) < count and (page := policy.victim(lambda page: True)) is not None:
        policy.remove(page)
        gone.append(page)
    return gone


def touch(policy: EvictionPolicy, *pages: int) -> None:
    for page in pages:
        policy.touch(PageId(page))


def test_clock_spares_once_what_was_read() -> None:
    policy = filled(Clock(), 1, 2, 3)
    touch(policy, 1, 3)
    assert leave(policy) == [2, 1, 3]


def test_clock_does_not_count_reads() -> None:
    policy = filled(Clock(), 1, 2)
    touch(policy, 1, 1, 1, 2)
    assert leave(policy) == [1, 2]


def test_lrfu_keeps_what_is_read_often_through_a_scan() -> None:
    """A document that is read through once must not push out the pages of every answer."""
    policy = filled(LRFU(), 1, 2)
    touch(policy, *[1, 2] * 5)
    filled(policy, *range(10, 40))
    assert leave(policy, 30) == list(range(10, 40))


def test_lrfu_forgets_what_was_read_often_long_ago() -> None:
    policy = filled(LRFU(), 1, 2)
    touch(policy, *[1] * 5)
    touch(policy, *[2] * 40_000)
    filled(policy, 3)
    assert leave(policy) == [1, 3, 2]


def test_s3fifo_lets_a_scan_pass() -> None:
    policy = filled(S3FIFO(), 1, 2)
    touch(policy, 1, 2)
    assert leave(filled(policy, *range(10, 40)), 30) == list(range(10, 40))


def test_s3fifo_takes_back_what_left_too_early() -> None:
    """A page that comes back soon goes to the main queue and outlives newer ones."""
    policy = filled(S3FIFO(), *range(1, 11))
    assert leave(policy, 2) == [1, 2]
    filled(policy, 2, *range(20, 25))
    assert leave(policy)[-1] == 2


def weigh(policy: EvictionPolicy, **mass: float) -> None:
    for page, value in mass.items():
        policy.weigh(PageId(int(page[1:])), value)


def test_mass_keeps_what_questions_looked_at() -> None:
    policy = filled(AttentionMass(), 1, 2, 3, 4)
    weigh(policy, p1=0.5, p2=0.25)
    touch(policy, 3)
    assert leave(policy) == [4, 3, 2, 1]


def test_mass_adds_up_over_questions() -> None:
    policy = filled(AttentionMass(), 1, 2)
    weigh(policy, p1=0.5, p2=0.375)
    weigh(policy, p2=0.375)
    assert leave(policy) == [1, 2]


def test_mass_without_questions_is_the_order_of_last_use() -> None:
    policy = filled(AttentionMass(), 1, 2, 3)
    touch(policy, 1)
    weigh(policy, p2=0.0)
    assert leave(policy) == [2, 3, 1]


def test_mass_is_worth_less_with_every_question() -> None:
    policy = filled(AttentionMass(), 1, 2)
    weigh(policy, p1=1.0)
    for _ in range(2 * HALF_LIFE):
        policy.weigh(PageId(9), 0.001)
    weigh(policy, p2=0.5)
    assert leave(policy) == [1, 2]


def test_mass_of_pages_that_a_question_finds_elsewhere_counts_once_they_come() -> None:
    """Pages are weighed before they are read from disk."""
    policy = filled(AttentionMass(), 1)
    weigh(policy, p2=0.5)
    assert leave(filled(policy, 2, 3)) == [1, 3, 2]
    assert leave(filled(policy, 2, 4)) == [4, 2]


def test_mass_remembers_only_so_many_pages_that_lie_elsewhere() -> None:
    policy = AttentionMass()
    for page in range(MOST_ABSENT + 1):
        policy.weigh(PageId(page), 1.0)
    assert leave(filled(policy, 1, 0)) == [0, 1]


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(deadline=None)
@given(data=st.data())
def test_every_policy_gives_up_what_may_leave_and_nothing_else(
    name: str, data: st.DataObject
) -> None:
    """Whatever happened before: a page that may leave is found, one that may not never is."""
    policy, present = POLICIES[name](), set[int]()
    for event, page in data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["admit", "touch", "weigh", "remove", "ask"]), st.integers(0, 9)
            )
        )
    ):
        if event == "admit" and page not in present:
            policy.admit(PageId(page))
            present.add(page)
        elif event == "touch" and page in present:
            policy.touch(PageId(page))
        elif event == "weigh":
            policy.weigh(PageId(page), page / 4)
        elif event == "remove" and page in present:
            policy.remove(PageId(page))
            present.discard(page)
        elif event == "ask":
            policy.victim(lambda _: False)
        assert policy.pages() == present
    free = data.draw(st.sets(st.integers(0, 9)))
    victim = policy.victim(lambda page: page in free)
    assert (victim in present & free) if present & free else victim is None
    assert policy.pages() == present


def test_the_command_line_offers_every_policy() -> None:
    offered = get_args(get_args(get_type_hints(RunOptions, include_extras=True)["evict"])[0])
    assert set(offered) == set(POLICIES)
