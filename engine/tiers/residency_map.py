"""The residency map: where the main sequence lies, from its first page to its last.

Owns how pages are drawn together into cells. Ids only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from engine.sample import MapCell, ResidencyMap
from engine.types import PageId, Tier

_SPEED = {tier: rank for rank, tier in enumerate([*Tier, None])}


def draw_map(
    pages: Sequence[PageId],
    most_cells: int,
    tier_of: Callable[[PageId], Tier | None],
    is_hot: Callable[[PageId], bool],
) -> ResidencyMap:
    """Draw pages together into cells.

    A cell shows the fastest tier of its pages, for that is what a reader looks for: a few pages
    that came up among thousands.

    Args:
        pages: In document order.
        most_cells: As many at most; fewer if there are fewer pages.
        tier_of: Tells the tier of a page's fastest copy.
        is_hot: Tells whether a page is hot.
    """
    count = min(most_cells, len(pages))
    borders = [index * len(pages) // count for index in range(count + 1)] if count else []
    cells = []
    for begin, end in pairwise(borders):
        members = pages[begin:end]
        tier = min(map(tier_of, members), key=_SPEED.__getitem__)
        cells.append(MapCell(tier, any(map(is_hot, members))))
    return ResidencyMap(tuple(cells), len(pages))
