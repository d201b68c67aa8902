"""Pages, tables and slots: who holds what, and that nothing is lost or handed out twice."""

from __future__ import annotations

import pytest

from engine.memory.page_pool import PagePool
from engine.memory.page_table import CopyOnWrite, PageTable
from engine.memory.slot_pool import SlotPool

# -- pages ---------------------------------------------------------------------------------


def test_a_page_is_gone_when_its_last_holder_lets_go() -> None:
    pool = PagePool()
    page = pool.allocate()
    pool.share(page)
    assert pool.holders(page) == 2
    assert not pool.release(page)
    assert pool.release(page)
    assert pool.live() == set()


def test_ids_are_never_used_again() -> None:
    pool = PagePool()
    first = pool.allocate()
    pool.release(first)
    assert pool.allocate() != first


# -- tables --------------------------------------------------------------------------------


def table(num_tokens: int = 0) -> PageTable:
    made = PageTable(PagePool(), page_tokens=4)
    made.reserve(num_tokens)
    made.advance(num_tokens)
    return made


@pytest.mark.parametrize(("tokens", "pages", "rest"), [(0, 0, 0), (1, 1, 1), (4, 1, 0), (9, 3, 1)])
def test_a_table_has_the_pages_that_its_tokens_need(tokens: int, pages: int, rest: int) -> None:
    made = table(tokens)
    assert (len(made.pages), made.tokens_in_last_page) == (pages, rest)


def test_the_last_page_is_filled_before_another_is_added() -> None:
    made = table(3)
    assert made.reserve(1) is None
    assert len(made.pages) == 1
    made.advance(1)
    made.reserve(1)
    assert len(made.pages) == 2


def test_tokens_that_were_not_reserved_cannot_count() -> None:
    with pytest.raises(AssertionError):
        table(3).advance(2)


def test_trimming_drops_what_was_reserved_and_never_filled() -> None:
    made = table(3)
    before = list(made.pages)
    made.reserve(10)
    assert made.trim() == [1, 2, 3]
    assert made.pages == before
    assert made.pool.live() == set(before)


def test_a_fork_shares_every_page() -> None:
    made = table(6)
    fork = made.fork()
    assert (fork.pages, fork.num_tokens) == (made.pages, 6)
    assert fork.pages is not made.pages
    assert all(made.pool.holders(page) == 2 for page in made.pages)


def test_a_fork_may_end_before_its_parent_with_a_full_page() -> None:
    made = table(10)
    fork = made.fork(1)
    assert (fork.pages, fork.num_tokens) == (made.pages[:1], 4)
    assert [made.pool.holders(page) for page in made.pages] == [2, 1, 1]
    assert fork.reserve(3) is None and fork.pages[1] not in made.pages
    with pytest.raises(AssertionError):
        made.fork(3)


@pytest.mark.parametrize("writer", ["fork", "parent"])
def test_whoever_writes_first_copies_the_shared_last_page(writer: str) -> None:
    made = table(6)
    fork = made.fork()
    first, second = (fork, made) if writer == "fork" else (made, fork)
    shared = made.pages[1]
    copy = first.reserve(1)
    assert copy == CopyOnWrite(1, shared, first.pages[1])
    assert first.pages[1] != shared == second.pages[1]
    assert second.reserve(1) is None, "nobody shares it any more"
    assert first.pages[0] == second.pages[0]


def test_a_full_last_page_is_shared_for_good() -> None:
    made = table(8)
    fork = made.fork()
    assert made.reserve(1) is None and fork.reserve(1) is None
    assert made.pages[:2] == fork.pages[:2]
    assert made.pages[2] != fork.pages[2]


def test_taking_back_a_copy_restores_the_table_and_the_counts() -> None:
    made = table(6)
    fork = made.fork()
    before = list(fork.pages)
    copy = fork.reserve(9)
    assert copy is not None
    fork.trim()
    fork.undo(copy)
    assert fork.pages == before
    assert made.pool.live() == set(before)
    assert all(made.pool.holders(page) == 2 for page in before)


def test_dropping_frees_only_what_nobody_else_holds() -> None:
    made = table(6)
    fork = made.fork()
    fork.reserve(6)
    fork.advance(6)
    own = [page for page in fork.pages if page not in made.pages]
    assert fork.drop() == own
    assert made.pool.live() == set(made.pages)
    assert made.drop() == [0, 1]
    assert made.pool.live() == set()


# -- slots ---------------------------------------------------------------------------------


def test_every_slot_is_given_once_and_then_none() -> None:
    pool = SlotPool(5)
    assert sorted(pool.allocate() for _ in range(5)) == [0, 1, 2, 3, 4]
    assert pool.allocate() is None and pool.num_free == 0


def test_the_slot_beside_is_given_if_it_is_free() -> None:
    pool = SlotPool(6)
    assert pool.allocate(after=2) == 3
    assert pool.allocate(after=2) == 0, "3 is taken: the lowest"
    assert pool.allocate(after=5) == 1, "there is none beside the last one"


def test_a_freed_slot_can_be_had_again_but_not_twice() -> None:
    pool = SlotPool(3)
    for _ in range(3):
        pool.allocate()
    pool.free(1)
    assert pool.num_free == 1
    assert pool.allocate() == 1
    assert pool.allocate() is None


def test_a_slot_taken_out_of_order_is_not_given_again() -> None:
    """It is still on the list of the lowest, twice even; the list may not be believed."""
    pool = SlotPool(3)
    assert pool.allocate(after=0) == 1
    pool.free(1)
    assert pool.allocate(after=0) == 1
    assert [pool.allocate(), pool.allocate(), pool.allocate()] == [0, 2, None]


def test_freeing_a_free_slot_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        SlotPool(3).free(0)


def test_no_slots_at_all() -> None:
    assert SlotPool(0).allocate() is None
