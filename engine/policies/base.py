"""The interface of an eviction policy.

Owns the contract. A policy knows page ids and the order of events; it does not know tiers, slots,
pins or bytes. The tier stack asks for victims and says which pages may not be taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.types import PageId


class EvictionPolicy(Protocol):
    """Chooses the page that leaves a full tier. One instance serves one tier."""

    def admit(self, page: PageId) -> None:
        """Learn that `page`, so far absent, now lies in the tier."""

    def touch(self, page: PageId) -> None:
        """Learn that `page`, present, was read by a step."""

    def weigh(self, page: PageId, mass: float) -> None:
        """Learn how much attention a question paid to `page`. Most policies do not care.

        Args:
            page: Present or not: a question weighs pages before it brings those that it found.
            mass: Softmax mass, summed over the layers and heads that were looked at; 0 or more.
        """
        return

    def remove(self, page: PageId) -> None:
        """Learn that `page` left the tier, evicted or freed."""

    def victim(self, may_leave: Callable[[PageId], bool]) -> PageId | None:
        """Name the page to evict next, or None if no present page may leave. Does not remove it."""

    def pages(self) -> set[PageId]:
        """Every page the policy believes present, for integrity checks."""
