"""Which pages may leave a tier, and that the books of places and slots agree."""

from __future__ import annotations

import pytest

from engine.errors import OverBudget
from engine.memory.slot_pool import SlotPool
from engine.policies import LRU, AttentionMass
from engine.telemetry import Telemetry
from engine.tiers.plan import DiskPlace
from engine.tiers.residency import Arena, Residency
from engine.types import PageId, SegmentId, Tier

PLACE = DiskPlace(SegmentId(0), 0)


def made(device: int = 2, host: int = 2) -> Residency:
    return Residency(
        device=Arena(SlotPool(device), LRU()),
        host=Arena(SlotPool(host), LRU()),
        page_bytes=10,
        disk_page_bytes=10,
        telemetry=Telemetry(),
        disk_bytes=lambda: 77,
    )


def add(residency: Residency, *pages: int, pinned: bool = False) -> None:
    for page in pages:
        residency.add(PageId(page), pinned=pinned)


@pytest.mark.parametrize("below", ["host", "disk"])
def test_a_page_leaves_the_device_only_if_it_lies_below(below: str) -> None:
    residency = made(device=1)
    add(residency, 0, 1)
    assert residency.take_device(PageId(0), None, ()) == 0
    assert residency.take_device(PageId(1), None, ()) is None
    if below == "host":
        residency.take_host(PageId(0), ())
    else:
        residency.settle(PageId(0), disk=PLACE)
    assert residency.take_device(PageId(1), None, ()) == 0
    assert residency.of(PageId(0)).device is None
    assert residency.device.evictions == 1


def test_a_sink_never_leaves_the_device() -> None:
    residency = made(device=1)
    add(residency, 0, pinned=True)
    add(residency, 1)
    residency.take_device(PageId(0), None, ())
    residency.settle(PageId(0), disk=PLACE)
    assert residency.take_device(PageId(1), None, ()) is None


def test_a_page_that_the_step_writes_never_leaves() -> None:
    residency = made(device=1, host=1)
    add(residency, 0, 1)
    residency.take_device(PageId(0), None, ())
    residency.take_host(PageId(0), ())
    residency.settle(PageId(0), disk=PLACE)
    assert residency.take_device(PageId(1), None, {PageId(0)}) is None
    assert residency.take_host(PageId(1), {PageId(0)}) is None
    assert residency.take_device(PageId(1), None, ()) == residency.take_host(PageId(1), ()) == 0


def test_a_page_leaves_the_host_tier_only_if_it_lies_on_disk() -> None:
    """A copy in the device tier is rotated: it cannot serve as the page at rest."""
    residency = made(host=1)
    add(residency, 0, 1)
    residency.take_device(PageId(0), None, ())
    residency.take_host(PageId(0), ())
    assert residency.take_host(PageId(1), ()) is None
    residency.settle(PageId(0), disk=PLACE)
    assert residency.take_host(PageId(1), ()) == 0


def test_the_page_read_longest_ago_leaves() -> None:
    residency = made(device=2)
    add(residency, 0, 1, 2)
    for page in (0, 1):
        residency.settle(PageId(page), disk=DiskPlace(SegmentId(0), page))
        residency.take_device(PageId(page), None, ())
    residency.touch(PageId(0), Tier.DEVICE)
    residency.take_device(PageId(2), None, ())
    assert residency.of(PageId(1)).device is None
    assert residency.of(PageId(0)).device is not None


def test_the_host_copy_of_a_page_that_the_device_tier_has_leaves_first() -> None:
    """Two tiers that hold the same pages hold half as many: page 1 is the newest, and leaves."""
    residency = made(host=2)
    add(residency, 0, 1, 2, 3)
    for page in (0, 1, 2):
        residency.settle(PageId(page), disk=DiskPlace(SegmentId(0), page))
    for page in (0, 1):
        residency.take_host(PageId(page), ())
    residency.take_device(PageId(1), None, ())
    assert residency.take_host(PageId(2), {PageId(1)}, evict=False) is None, "it is being read"
    assert residency.take_host(PageId(2), (), evict=False) == 1
    assert residency.of(PageId(1)).host is None and residency.of(PageId(0)).host == 0
    residency.check_integrity({PageId(page) for page in range(4)})


def test_a_page_that_can_lie_nowhere_else_is_refused_by_a_full_host_tier() -> None:
    residency = made(host=1)
    add(residency, 0, 1)
    assert residency.need_host(PageId(0), ()) == 0
    assert residency.need_host(PageId(0), ()) == 0, "it has its slot already"
    with pytest.raises(OverBudget, match="host tier of 1 pages") as refused:
        residency.need_host(PageId(1), ())
    assert "--ram" in refused.value.advice
    residency.check_integrity({PageId(0), PageId(1)})


def test_each_page_is_published_once_under_its_fastest_tier() -> None:
    residency = made()
    add(residency, 0, 1, 2, 3)
    residency.take_device(PageId(0), None, ())
    for page in (0, 1):
        residency.take_host(PageId(page), ())
    for page in (0, 1, 2):
        residency.settle(PageId(page), disk=DiskPlace(SegmentId(0), page))
    residency.publish()
    sample = residency.telemetry.sample()
    assert [tier.pages for tier in sample.tiers] == [1, 1, 1]
    assert sample.total_pages == 3, "page 3 lies nowhere yet"
    assert [tier.used_bytes for tier in sample.tiers] == [10, 20, 77]
    assert [tier.capacity_bytes for tier in sample.tiers] == [20, 20, None]
    assert residency.of(PageId(3)).fastest is None
    assert residency.of(PageId(2)).fastest is Tier.DISK


def test_a_page_dropped_from_the_device_is_served_from_below() -> None:
    residency = made()
    add(residency, 0)
    residency.take_device(PageId(0), None, ())
    residency.take_host(PageId(0), ())
    residency.drop_device(PageId(0))
    assert residency.of(PageId(0)).fastest is Tier.HOST
    residency.check_integrity({PageId(0)})


def test_forgotten_pages_give_back_every_slot() -> None:
    residency = made()
    add(residency, 0, 1)
    for page in (0, 1):
        residency.take_device(PageId(page), None, ())
        residency.take_host(PageId(page), ())
    residency.forget([PageId(0), PageId(1)])
    residency.check_integrity(set())
    assert residency.device.slots.num_free == residency.host.slots.num_free == 2
    residency.publish()
    assert residency.telemetry.sample().total_pages == 0


def test_the_books_notice_a_page_that_the_pool_does_not_know() -> None:
    residency = made()
    add(residency, 0)
    with pytest.raises(AssertionError):
        residency.check_integrity(set())
    residency.take_device(PageId(0), None, ())
    residency.of(PageId(0)).device = None
    with pytest.raises(AssertionError):
        residency.check_integrity({PageId(0)})


def test_policies_hear_of_attention_to_a_page_that_is_still_on_disk() -> None:
    """A question weighs pages first, and brings those that it found into the tier then."""
    residency = made(host=2)
    residency.host.policy = AttentionMass()
    add(residency, 0, 1, 2)
    for page in range(3):
        residency.settle(PageId(page), disk=DiskPlace(SegmentId(0), page))
    residency.weigh(PageId(0), 0.5)
    for page in range(3):
        residency.take_host(PageId(page), ())
    assert residency.of(PageId(0)).host is not None
    assert residency.of(PageId(1)).host is None
