"""LRFU: how often a page was read, and how long ago, in one number.

Each use counts 1 and is worth half after `HALF_LIFE` further uses of any page; the page worth least
leaves first. With a short half-life this is LRU, with a long one LFU. Source: Lee et al., "LRFU: a
spectrum of policies that subsumes the least recently used and least frequently used policies", IEEE
Transactions on Computers 50(12), 2001.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from engine.policies.base import EvictionPolicy
from engine.policies.ranking import Ranking
from engine.types import PageId

HALF_LIFE = 4096
"""Uses of any page after which a use is worth half: a few steps over some thousand pages."""


class LRFU(EvictionPolicy):
    """Pages by worth; O(log pages) for every event.

    All worths decay alike, so their order changes only by uses: a page is kept under the logarithm
    of its worth, taken back to the first use of all.
    """

    def __init__(self) -> None:
        self._worth = Ranking[float]()
        self._uses = 0

    def admit(self, page: PageId) -> None:
        """Let `page` in with one use."""
        assert page not in self._worth
        self._worth.put(page, self._now())

    def touch(self, page: PageId) -> None:
        """Count a use."""
        old, new = self._worth.of(page), self._now()
        self._worth.put(page, new + math.log2(1.0 + 2.0 ** (old - new)))

    def _now(self) -> float:
        self._uses += 1
        return self._uses / HALF_LIFE

    def remove(self, page: PageId) -> None:
        """Forget `page` and its uses."""
        self._worth.remove(page)

    def victim(self, may_leave: Callable[[PageId], bool]) -> PageId | None:
        """Give the page worth least that may leave."""
        return self._worth.lowest(may_leave)

    def pages(self) -> set[PageId]:
        """Every page present."""
        return self._worth.pages()
