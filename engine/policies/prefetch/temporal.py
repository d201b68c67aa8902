"""Temporal: the pages of the last answers again.

People ask several questions on one subject. What an answer was read from is wanted again, should it
have had to leave meanwhile. Source: the principle of locality, Denning, CACM 48(7), 2005.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from engine.policies.prefetch.base import PrefetchPolicy
from engine.types import PageId

ANSWERS = 2
"""Answers that are remembered."""


class Temporal(PrefetchPolicy):
    """What was gathered last, the newest first."""

    def __init__(self) -> None:
        self._gathered: deque[tuple[PageId, ...]] = deque(maxlen=ANSWERS)

    def read(self, pages: Sequence[PageId], *, is_gathered: bool) -> None:
        """Remember what an answer is read from."""
        if is_gathered:
            self._gathered.appendleft(tuple(pages))

    def wanted(self) -> Iterator[PageId]:
        """Every remembered page once."""
        yield from dict.fromkeys(page for pages in self._gathered for page in pages)
