"""Least recently used.

The page whose last use lies furthest back leaves first. Source: Denning, "The working set model
for program behavior", CACM 11(5), 1968; any text on paging.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from engine.policies.base import EvictionPolicy
from engine.types import PageId


class LRU(EvictionPolicy):
    """Order of last use; O(1) for every event, O(pages that may not leave) for a victim."""

    def __init__(self) -> None:
        self._order: OrderedDict[PageId, None] = OrderedDict()

    def admit(self, page: PageId) -> None:
        """Put `page` at the young end."""
        assert page not in self._order
        self._order[page] = None

    def touch(self, page: PageId) -> None:
        """Move `page` to the young end."""
        self._order.move_to_end(page)

    def remove(self, page: PageId) -> None:
        """Forget `page`."""
        del self._order[page]

    def victim(self, may_leave: Callable[[PageId], bool]) -> PageId | None:
        """Give the oldest page that may leave."""
        return next((page for page in self._order if may_leave(page)), None)

    def pages(self) -> set[PageId]:
        """Every page present."""
        return set(self._order)
