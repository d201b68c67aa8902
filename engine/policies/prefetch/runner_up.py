"""Runner-up: pages that a question looked for, but that just missed being read.

The next question on the same subject looks for much the same pages, in another order. Source: the
scores of the engine's own probe; InfiniGen (arXiv 2406.19707) prefetches by such scores within one
answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.policies.prefetch.base import PrefetchPolicy
from engine.types import PageId

MOST = 48
"""Best pages that are named."""


class RunnerUp(PrefetchPolicy):
    """The best pages of the last question, whether or not they were read."""

    def __init__(self) -> None:
        self._ranked: tuple[PageId, ...] = ()

    def rank(self, pages: Sequence[PageId]) -> None:
        """Remember the best pages."""
        self._ranked = tuple(pages[:MOST])

    def wanted(self) -> Iterator[PageId]:
        """Those pages, best first."""
        yield from self._ranked
