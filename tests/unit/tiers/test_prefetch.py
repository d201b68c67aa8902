"""Pages brought in before they are asked for: the room they take, and the books."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from engine.errors import StorageError
from engine.memory.slot_pool import SlotPool
from engine.policies import LRU
from engine.policies.prefetch import PrefetchPolicy
from engine.telemetry import Telemetry
from engine.tiers.plan import DiskPlace, PageSource
from engine.tiers.prefetch import LEARNING, MOST_SHARE, UNREAD_SHARE, Prefetcher
from engine.tiers.residency import Arena, Residency
from engine.types import PageId, SegmentId, SlotId, Tier


class Wishes(PrefetchPolicy):
    """Wants what it is told to."""

    def __init__(self, *pages: int) -> None:
        self.pages = [PageId(page) for page in pages]

    def wanted(self) -> Iterator[PageId]:
        yield from self.pages


class SlowDisk:
    """Loads are over when the test says so."""

    def __init__(self) -> None:
        self.loads: list[Future[None]] = []

    def load(self, place: DiskPlace, into: object) -> Future[None]:
        load: Future[None] = Future()
        self.loads.append(load)
        return load

    def begin(self, number: int) -> None:
        assert self.loads[number].set_running_or_notify_cancel()

    def end(self, *numbers: int) -> None:
        for number in numbers:
            if not self.loads[number].running():
                self.begin(number)
            self.loads[number].set_result(None)


class NoHost:
    def slices_of(self, slot: SlotId) -> list[list[memoryview]]:
        return []


def made(wishes: PrefetchPolicy, host: int = 16, pages: int = 40) -> tuple[Prefetcher, SlowDisk]:
    """A prefetcher over pages that all lie on disk."""
    residency = Residency(
        Arena(SlotPool(4), LRU()), Arena(SlotPool(host), LRU()), 10, Telemetry(), lambda: 0, 10
    )
    for page in range(pages):
        residency.add(PageId(page))
        residency.settle(PageId(page), disk=DiskPlace(SegmentId(page // 4), page % 4))
    disk = SlowDisk()
    return Prefetcher([wishes], residency, NoHost(), disk, residency.telemetry), disk  # type: ignore[arg-type]


def where(prefetcher: Prefetcher, page: int) -> Tier | None:
    return prefetcher._residency.of(PageId(page)).fastest


def read(prefetcher: Prefetcher, *pages: int) -> None:
    """A step reads pages from wherever they lie."""
    prefetcher.need({PageId(page) for page in pages})
    sources = [
        PageSource(PageId(page), where(prefetcher, page) or Tier.DISK, None, None, None)
        for page in pages
    ]
    prefetcher.read(sources, is_gathered=True)


def test_what_is_wanted_comes_and_proves_useful() -> None:
    prefetcher, disk = made(Wishes(3, 5))
    prefetcher.run()
    assert len(disk.loads) == 2 and where(prefetcher, 3) is Tier.DISK
    disk.end(0, 1)
    prefetcher.run()
    assert where(prefetcher, 3) is where(prefetcher, 5) is Tier.HOST
    read(prefetcher, 3, 9)
    counts = prefetcher.counts
    assert (counts.issued, counts.useful, counts.late, counts.wasted) == (2, 1, 0, 0)


def test_it_takes_no_more_than_its_share_and_asks_for_nothing_twice() -> None:
    prefetcher, disk = made(Wishes(*range(30)))
    for _ in range(3):
        prefetcher.run()
    assert len(disk.loads) == 16 // MOST_SHARE
    disk.end(0, 1)
    prefetcher.run()
    assert len(disk.loads) == 4, "two lie there unread, two are on their way"
    read(prefetcher, 0, 1)
    prefetcher.run()
    assert len(disk.loads) == 6


def test_pages_of_the_last_step_stay() -> None:
    """Four host slots, and the step reads what lies in three of them."""
    prefetcher, disk = made(Wishes(20, 21, 22), host=4)
    for page in (0, 1, 2, 3):
        prefetcher._residency.take_host(PageId(page), ())
    read(prefetcher, 0, 1, 2)
    prefetcher.run()
    disk.end(0)
    prefetcher.run()
    assert [where(prefetcher, page) for page in (0, 1, 2)] == [Tier.HOST] * 3
    assert where(prefetcher, 3) is Tier.DISK and where(prefetcher, 20) is Tier.HOST


def test_a_page_asked_for_on_its_way_is_late_and_one_that_has_not_begun_is_given_up() -> None:
    prefetcher, disk = made(Wishes(1, 2, 3))
    prefetcher.run()
    disk.begin(0)
    answer = threading.Timer(0.05, disk.end, [0])
    answer.start()
    prefetcher.need({PageId(1), PageId(2)})
    answer.join()
    assert where(prefetcher, 1) is Tier.HOST and where(prefetcher, 2) is Tier.DISK
    assert disk.loads[1].cancelled() and not disk.loads[2].cancelled()
    assert (prefetcher.counts.issued, prefetcher.counts.late) == (2, 1)
    prefetcher._residency.check_integrity({PageId(page) for page in range(40)})


def test_what_leaves_unread_was_wasted() -> None:
    prefetcher, disk = made(wishes := Wishes(7))
    prefetcher.run()
    disk.end(0)
    prefetcher.run()
    prefetcher._residency.drop_host(PageId(7))
    wishes.pages.clear()
    prefetcher.run()
    assert prefetcher.counts.wasted == 1
    assert where(prefetcher, 7) is Tier.DISK


def test_pages_that_cease_to_be_are_given_up_first() -> None:
    prefetcher, disk = made(Wishes(7, 8))
    prefetcher.run()
    disk.end(0)
    prefetcher.forget([PageId(7), PageId(8)])
    prefetcher._residency.forget([PageId(7), PageId(8)])
    assert disk.loads[1].cancelled()
    assert prefetcher.counts.wasted == 1
    prefetcher.run()
    prefetcher._residency.check_integrity({PageId(p) for p in range(40) if p not in (7, 8)})


def test_a_read_that_fails_is_left_to_whoever_needs_the_page() -> None:
    """It will fail there again, and be told with everything that belongs to it."""
    prefetcher, disk = made(wishes := Wishes(7))
    prefetcher.run()
    disk.begin(0)
    disk.loads[0].set_exception(StorageError("the disk failed", ""))
    wishes.pages.clear()
    prefetcher.run()
    assert where(prefetcher, 7) is Tier.DISK and prefetcher.counts.wasted == 1
    prefetcher._residency.check_integrity({PageId(page) for page in range(40)})


def test_our_own_bug_on_the_thread_is_not_hidden() -> None:
    prefetcher, disk = made(Wishes(7))
    prefetcher.run()
    disk.begin(0)
    disk.loads[0].set_exception(AssertionError("page not written"))
    with pytest.raises(AssertionError, match="not written"):
        prefetcher.run()


def test_room_is_made_for_those_who_need_it() -> None:
    """Slots that pages are on their way to cannot be had by others."""
    prefetcher, disk = made(Wishes(1), host=4)
    for page in (10, 11, 12):
        prefetcher._residency.take_host(PageId(page), ())
    prefetcher.run()
    assert prefetcher._residency.host.slots.num_free == 0
    prefetcher.make_room()
    assert disk.loads[0].cancelled() and prefetcher._residency.host.slots.num_free == 1


def test_a_policy_whose_pages_are_never_read_is_soon_not_asked_any_more() -> None:
    """Questions on ever other subjects: pages that just missed one are of no use to the next."""
    prefetcher, disk = made(wishes := Wishes(), host=400, pages=400)
    for question in range(10):
        wishes.pages = [PageId(page) for page in range(40 * question, 40 * question + 40)]
        prefetcher.run()
        disk.end(*[number for number, load in enumerate(disk.loads) if not load.done()])
    assert prefetcher.counts.issued == LEARNING


def test_a_policy_whose_pages_are_read_may_send_for_ever_more() -> None:
    """A sequence read from its beginning; in the end one page in ten may be a mistake."""
    prefetcher, disk = made(wishes := Wishes(), host=400, pages=400)
    for step in range(40):
        wishes.pages = [PageId(page) for page in range(8 * step, 8 * step + 8)]
        prefetcher.run()
        disk.end(*[number for number, load in enumerate(disk.loads) if not load.done()])
        prefetcher.run()
        read(prefetcher, *range(8 * step, 8 * step + 8))
    assert prefetcher.counts.useful == prefetcher.counts.issued == 320
    wishes.pages = [PageId(page) for page in range(320, 400)]
    for _ in range(10):
        prefetcher.run()
        disk.end(*[number for number, load in enumerate(disk.loads) if not load.done()])
    wasted = prefetcher.counts.issued - prefetcher.counts.useful
    assert wasted == LEARNING + prefetcher.counts.issued // UNREAD_SHARE
