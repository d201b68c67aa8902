"""S3-FIFO: three queues, of which a small one keeps scans away from the rest.

A new page waits in a small queue, a tenth of the pages; what was not read again by the end of it
leaves, and its id is remembered for a while. Pages that were, and remembered ones that come back,
go to the main queue, where each read gives another round. Source: Yang et al., "FIFO queues are all
you need for cache eviction", SOSP 2023.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from engine.policies.base import EvictionPolicy
from engine.types import PageId

SMALL_SHARE = 0.1
MOST_READS = 3
"""Reads that count; each is worth one round in the main queue."""


class S3FIFO(EvictionPolicy):
    """Queues with reads per page; O(1) but for the pages that a victim's choice passes."""

    def __init__(self) -> None:
        self._small: OrderedDict[PageId, int] = OrderedDict()
        self._main: OrderedDict[PageId, int] = OrderedDict()
        self._gone: OrderedDict[PageId, None] = OrderedDict()
        """Ids that left the small queue unread, the oldest first."""

    def admit(self, page: PageId) -> None:
        """Let `page` into the small queue, or into the main one if it was here not long ago."""
        assert page not in self._small and page not in self._main
        if page in self._gone:
            del self._gone[page]
            self._main[page] = 0
        else:
            self._small[page] = 0

    def touch(self, page: PageId) -> None:
        """Count a read."""
        queue = self._small if page in self._small else self._main
        queue[page] = min(queue[page] + 1, MOST_READS)

    def remove(self, page: PageId) -> None:
        """Forget `page`, but for its id if it leaves the small queue unread."""
        reads = self._small.pop(page, None)
        if reads is None:
            del self._main[page]
        elif not reads:
            self._gone[page] = None
            while len(self._gone) > len(self._small) + len(self._main) + 1:
                self._gone.popitem(last=False)

    def victim(self, may_leave: Callable[[PageId], bool]) -> PageId | None:
        """Give the oldest page that may leave: of the small queue while that is too long."""
        too_long = len(self._small) > SMALL_SHARE * (len(self._small) + len(self._main))
        small, main = self._from_small, self._from_main
        for look in (small, main) if too_long else (main, small, main):
            found = look(may_leave)
            if found is not None:
                return found
        return None

    def _from_small(self, may_leave: Callable[[PageId], bool]) -> PageId | None:
        """Give the oldest unread page; read ones on the way move to the main queue."""
        found, read = None, []
        for page, reads in self._small.items():
            if reads:
                read.append(page)
            elif may_leave(page):
                found = page
                break
        for page in read:
            del self._small[page]
            self._main[page] = 0
        return found

    def _from_main(self, may_leave: Callable[[PageId], bool]) -> PageId | None:
        """Go round until a page has no reads left; each round takes one."""
        for _ in range((MOST_READS + 1) * len(self._main)):
            page, reads = next(iter(self._main.items()))
            if not reads and may_leave(page):
                return page
            self._main[page] = max(0, reads - 1)
            self._main.move_to_end(page)
        return None

    def pages(self) -> set[PageId]:
        """Every page present."""
        return {*self._small, *self._main}
