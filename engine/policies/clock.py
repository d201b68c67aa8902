"""CLOCK: second chances.

A hand goes round the pages; one that was read since the hand last passed is spared once. Nearly the
order of last use, at the cost of one bit. Source: Corbato, "A paging experiment with the Multics
system", 1968.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from engine.policies.base import EvictionPolicy
from engine.types import PageId


class Clock(EvictionPolicy):
    """A ring whose hand stands at its first page; O(1) but for the pages that the hand passes."""

    def __init__(self) -> None:
        self._ring: OrderedDict[PageId, bool] = OrderedDict()
        """Whether each page was read since the hand last passed it."""

    def admit(self, page: PageId) -> None:
        """Put `page` behind the hand, not yet read."""
        assert page not in self._ring
        self._ring[page] = False

    def touch(self, page: PageId) -> None:
        """Give `page` a second chance."""
        assert page in self._ring
        self._ring[page] = True

    def remove(self, page: PageId) -> None:
        """Take `page` out of the ring."""
        del self._ring[page]

    def victim(self, may_leave: Callable[[PageId], bool]) -> PageId | None:
        """Turn the hand to a page that may leave and was not read since it last passed."""
        for _ in range(2 * len(self._ring)):
            page, was_read = next(iter(self._ring.items()))
            if not was_read and may_leave(page):
                return page
            self._ring[page] = False
            self._ring.move_to_end(page)
        return None

    def pages(self) -> set[PageId]:
        """Every page present."""
        return set(self._ring)
