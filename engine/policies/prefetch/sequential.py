"""Sequential: what follows on from the pages that were read last, and the first ones at first.

Right whenever a sequence is read from its beginning, as the first step after a resume does.
Source: Smith, "Sequentiality and prefetching in database systems", ACM TODS 3(3), 1978.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.policies.prefetch.base import PrefetchPolicy
from engine.types import PageId

AHEAD = 64
"""Pages that are named at a time."""


class Sequential(PrefetchPolicy):
    """The pages behind the furthest one of the last reading."""

    def __init__(self) -> None:
        self._pages: Sequence[PageId] = ()
        self._places: dict[PageId, int] = {}
        self._next = 0

    def follow(self, pages: Sequence[PageId]) -> None:
        """Begin at the first page."""
        self._pages, self._places, self._next = pages, {}, 0

    def read(self, pages: Sequence[PageId], *, is_gathered: bool) -> None:
        """Go on behind the last of the pages that the sequence has."""
        if len(self._places) != len(self._pages):
            self._places = {page: place for place, page in enumerate(self._pages)}
        places = [self._places[page] for page in pages if page in self._places]
        if places:
            self._next = max(places) + 1

    def wanted(self) -> Iterator[PageId]:
        """The next pages, in order."""
        yield from self._pages[self._next : self._next + AHEAD]
