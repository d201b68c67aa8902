"""How a part is gathered: pages treated alike become one piece, and one view where they can."""

from __future__ import annotations

from engine.attention.layout import PartLayout, layout_part
from engine.tiers.disk import PageRun
from engine.tiers.plan import DiskPlace, PageSource, PageTarget, PartPlan, StepPlan
from engine.types import PageId, SegmentId, SlotId, Tier


def on_device(slot: int) -> PageSource:
    return PageSource(PageId(0), Tier.DEVICE, SlotId(slot), None, None)


def in_host(slot: int, promote: int | None = None) -> PageSource:
    return PageSource(PageId(0), Tier.HOST, SlotId(slot), None, as_slot(promote))


def on_disk(segment: int, index: int, promote: int | None = None) -> PageSource:
    place = DiskPlace(SegmentId(segment), index)
    return PageSource(PageId(0), Tier.DISK, None, place, as_slot(promote))


def as_slot(number: int | None) -> SlotId | None:
    return None if number is None else SlotId(number)


def laid_out(*sources: PageSource, own: PageTarget | None = None) -> PartLayout:
    part = PartPlan(0, 16 * len(sources) + (own is not None), own is not None, sources, 0, 0)
    plan = StepPlan(16 * len(sources), 1, (part,), (own,) if own else (), (), (), (), 0)
    return layout_part(plan, part)


def own_page(device: int | None, offset: int = 0) -> PageTarget:
    return PageTarget(PageId(9), offset, 1, 0, as_slot(device), SlotId(0))


def shape(layout: PartLayout) -> list[tuple[Tier, int, int]]:
    return [(piece.tier, piece.first_page, piece.num_pages) for piece in layout.pieces]


def test_neighbouring_device_slots_are_one_view() -> None:
    layout = laid_out(on_device(4), on_device(5), on_device(6))
    assert shape(layout) == [(Tier.DEVICE, 0, 3)]
    assert layout.first_slot == 4 and layout.runs == ()


def test_scattered_device_slots_are_pieces_without_a_view() -> None:
    layout = laid_out(on_device(4), on_device(6), on_device(7))
    assert shape(layout) == [(Tier.DEVICE, 0, 1), (Tier.DEVICE, 1, 2)]
    assert layout.first_slot is None


def test_each_tier_is_a_piece_of_its_own() -> None:
    layout = laid_out(on_device(0), in_host(1), in_host(2), on_disk(0, 3))
    assert shape(layout) == [(Tier.DEVICE, 0, 1), (Tier.HOST, 1, 2), (Tier.DISK, 3, 1)]
    assert layout.first_slot is None


def test_neighbouring_pages_of_a_segment_are_one_read() -> None:
    layout = laid_out(on_disk(0, 2), on_disk(0, 3), on_disk(1, 0), on_disk(1, 1))
    assert layout.runs == (
        (0, PageRun(SegmentId(0), 2, 2)),
        (2, PageRun(SegmentId(1), 0, 2)),
    )


def test_neighbours_from_several_segments_are_one_piece() -> None:
    """A part of a session reaches over many segments, which lie apart on disk: brought up one by
    one, each is a dozen small operations, and each of them waits for the threads that read."""
    layout = laid_out(in_host(3), on_disk(0, 7), on_disk(1, 0), on_disk(4, 2), in_host(4))
    assert shape(layout) == [(Tier.HOST, 0, 1), (Tier.DISK, 1, 3), (Tier.HOST, 4, 1)]
    assert layout.runs == (
        (1, PageRun(SegmentId(0), 7, 1)),
        (2, PageRun(SegmentId(1), 0, 1)),
        (3, PageRun(SegmentId(4), 2, 1)),
    )


def test_a_gap_on_disk_is_two_reads() -> None:
    layout = laid_out(on_disk(0, 0), on_disk(0, 2))
    assert [run for _, run in layout.runs] == [
        PageRun(SegmentId(0), 0, 1),
        PageRun(SegmentId(0), 2, 1),
    ]


def test_pages_that_come_up_beside_each_other_end_as_one_view() -> None:
    layout = laid_out(on_device(3), in_host(9, promote=4), on_disk(0, 2, promote=5))
    assert layout.first_slot == 3
    assert [piece.promote for piece in layout.pieces] == [None, 4, 5]


def test_a_page_that_comes_up_is_not_in_one_piece_with_one_that_stays() -> None:
    assert shape(laid_out(in_host(1, promote=4), in_host(2))) == [
        (Tier.HOST, 0, 1),
        (Tier.HOST, 1, 1),
    ]
    assert shape(laid_out(on_disk(0, 0), on_disk(0, 1, promote=4))) == [
        (Tier.DISK, 0, 1),
        (Tier.DISK, 1, 1),
    ]


def test_pages_that_come_up_to_distant_slots_are_two_pieces() -> None:
    assert len(laid_out(in_host(1, promote=4), in_host(2, promote=6)).pieces) == 2


def test_the_new_token_needs_its_page_beside_the_others() -> None:
    assert laid_out(on_device(4), own=own_page(5)).first_slot == 4
    assert laid_out(on_device(4), own=own_page(7)).first_slot is None
    assert laid_out(on_device(4), own=own_page(None)).first_slot is None


def test_the_new_token_goes_on_in_the_last_page() -> None:
    assert laid_out(on_device(4), on_device(5), own=own_page(5, offset=3)).first_slot == 4


def test_a_part_may_be_the_new_token_alone() -> None:
    layout = laid_out(own=own_page(7))
    assert layout.pieces == () and layout.first_slot == 7
    assert laid_out(own=own_page(None)).first_slot is None
