"""Logical pages and who holds them.

Owns the identity of pages and their reference counts. Does not know where a page lies, what is in
it or how large it is: places in an arena are `SlotPool`'s, residency is `tiers.residency`'s.

Invariant: a page is live if and only if its count is positive; ids are never reused, so an id kept
by mistake can never name another page.
"""

from __future__ import annotations

from engine.types import PageId


class PagePool:
    """Reference-counted logical pages."""

    def __init__(self) -> None:
        self._next = 0
        self._counts: dict[PageId, int] = {}

    def allocate(self) -> PageId:
        """Make a page that its caller alone holds."""
        page = PageId(self._next)
        self._next += 1
        self._counts[page] = 1
        return page

    def share(self, page: PageId) -> None:
        """Add a holder to a live page."""
        self._counts[page] += 1

    def release(self, page: PageId) -> bool:
        """Drop one holder. Returns whether that was the last one and the page is gone."""
        self._counts[page] -= 1
        if self._counts[page]:
            return False
        del self._counts[page]
        return True

    def holders(self, page: PageId) -> int:
        """How many hold a live page."""
        return self._counts[page]

    def live(self) -> set[PageId]:
        """Every live page."""
        return set(self._counts)
