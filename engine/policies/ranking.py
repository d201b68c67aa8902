"""Pages in order of a rank that changes, for policies that give up the lowest first.

Owns the heap and its stale entries. Does not know what a rank means.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

from engine.types import PageId

Rank = TypeVar("Rank", float, tuple[float, int])


class Ranking(Generic[Rank]):
    """A heap; O(log pages) for a change, and for each page that a search passes."""

    def __init__(self) -> None:
        self._ranks: dict[PageId, Rank] = {}
        self._heap: list[tuple[Rank, PageId]] = []
        """Lowest rank first; entries that are no page's present rank are stale."""

    def __contains__(self, page: PageId) -> bool:
        return page in self._ranks

    def __len__(self) -> int:
        return len(self._ranks)

    def of(self, page: PageId) -> Rank:
        """The rank of a page that has one."""
        return self._ranks[page]

    def put(self, page: PageId, rank: Rank) -> None:
        """Give a page a rank, its first or another."""
        self._ranks[page] = rank
        heapq.heappush(self._heap, (rank, page))
        if len(self._heap) > 4 * len(self._ranks) + 64:
            self._heap = [(rank, page) for page, rank in self._ranks.items()]
            heapq.heapify(self._heap)

    def remove(self, page: PageId) -> Rank:
        """Forget a page; gives the rank it had."""
        return self._ranks.pop(page)

    def lowest(self, may_leave: Callable[[PageId], bool]) -> PageId | None:
        """The lowest page that may leave, or None if none may; it stays where it is."""
        passed, found = [], None
        while self._heap and found is None:
            entry = heapq.heappop(self._heap)
            rank, page = entry
            if self._ranks.get(page) != rank:
                continue
            passed.append(entry)
            if may_leave(page):
                found = page
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return found

    def pages(self) -> set[PageId]:
        """Every page that has a rank."""
        return set(self._ranks)
