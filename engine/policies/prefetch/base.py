"""The interface of a prefetch policy.

Owns the contract. A policy knows page ids and the order of events; it does not know tiers, slots or
bytes. The prefetcher asks what is wanted, leaves out what lies in memory already, and decides how
much of the rest there is room for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from engine.types import PageId


class PrefetchPolicy(Protocol):
    """Names pages that may be read soon. Most policies care for one kind of event only."""

    def follow(self, pages: Sequence[PageId]) -> None:
        """Learn the pages of the main sequence, in order; the sequence may grow later on."""
        return

    def read(self, pages: Sequence[PageId], *, is_gathered: bool) -> None:
        """Learn what was read together.

        Args:
            pages: In the order of reading.
            is_gathered: Whether for an answer, rather than by a step.
        """
        return

    def rank(self, pages: Sequence[PageId]) -> None:
        """Learn which pages a question looked for, best first."""
        return

    def wanted(self) -> Iterator[PageId]:
        """Name pages, likeliest first; all of them may lie in memory already."""
        ...
