"""The residency map: every page in one cell, in order, under the fastest tier of its neighbours."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.sample import MapCell, ResidencyMap
from engine.tiers.residency_map import draw_map
from engine.types import PageId, Tier

ORDER = [Tier.DEVICE, Tier.HOST, Tier.DISK, None]


@given(st.lists(st.tuples(st.sampled_from(ORDER), st.booleans()), max_size=60), st.integers(1, 40))
def test_cells_agree_with_their_pages(pages: list[tuple[Tier | None, bool]], most: int) -> None:
    ids = [PageId(100 - index) for index in range(len(pages))]
    drawn = draw_map(ids, most, lambda p: pages[100 - p][0], lambda p: pages[100 - p][1])
    count = min(most, len(pages))
    assert (len(drawn.cells), drawn.num_pages) == (count, len(pages))
    begin = 0
    for index, cell in enumerate(drawn.cells):
        end = (index + 1) * len(pages) // count
        members = pages[begin:end]
        assert members
        assert cell.tier is ORDER[min(ORDER.index(tier) for tier, _ in members)]
        assert cell.is_hot == any(hot for _, hot in members)
        begin = end
    assert not count or begin == len(pages)


def test_nothing_is_a_map_without_cells() -> None:
    assert draw_map([], 8, lambda p: None, lambda p: False) == ResidencyMap((), 0)


def test_one_page_that_came_up_is_seen_among_thousands() -> None:
    pages = [PageId(i) for i in range(5000)]
    up = PageId(2600)
    drawn = draw_map(pages, 50, lambda p: Tier.HOST if p == up else Tier.DISK, lambda p: p == up)
    assert [i for i, cell in enumerate(drawn.cells) if cell == MapCell(Tier.HOST, True)] == [26]
