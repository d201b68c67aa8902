"""Attention mass: what questions looked at stays.

The mass that questions put on a page adds up and is worth half after `HALF_LIFE` further weighings
of any page; the page worth least leaves first, of equals the one used longest ago. Pages that no
question ever weighed leave before all others, so that without questions this is LRU. Sources: Zhang
et al., "H2O: Heavy-Hitter Oracle for efficient generative inference of large language models",
arXiv 2306.14048 (accumulated attention says what will be attended to); Liu et al., "Scissorhands:
exploiting the persistence of importance hypothesis for LLM KV cache compression", arXiv 2305.17118
(and what mattered lately will again). There what is evicted is lost; here it is read again.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

from engine.policies.base import EvictionPolicy
from engine.policies.ranking import Ranking
from engine.types import PageId

HALF_LIFE = 4096
"""Weighings after which mass is worth half: sixteen questions that weigh 256 pages each."""

MOST_ABSENT = 4096
"""Pages that lie elsewhere whose mass is remembered: a question weighs pages first, and those that
it found come into the tier then."""

UNWEIGHED = -math.inf
"""Logarithm of no mass."""


class AttentionMass(EvictionPolicy):
    """Pages by mass, then by last use; O(log pages) for every event.

    All masses decay alike, so a page is kept under the logarithm of its mass, taken back to the
    first weighing of all, as in LRFU.
    """

    def __init__(self) -> None:
        self._present = Ranking[tuple[float, int]]()
        """Logarithm of the mass, and the number of the last use."""
        self._absent: OrderedDict[PageId, float] = OrderedDict()
        """Logarithm of the mass; what was weighed or left longest ago first."""
        self._weighings = 0
        self._uses = 0

    def admit(self, page: PageId) -> None:
        """Let `page` in with the mass that is remembered of it."""
        assert page not in self._present
        self._use(page, self._absent.pop(page, UNWEIGHED))

    def touch(self, page: PageId) -> None:
        """Take note of the last use."""
        self._use(page, self._present.of(page)[0])

    def _use(self, page: PageId, mass: float) -> None:
        self._uses += 1
        self._present.put(page, (mass, self._uses))

    def weigh(self, page: PageId, mass: float) -> None:
        """Add to the mass of `page`, present or not; none at all is as if never weighed."""
        self._weighings += 1
        if mass <= 0.0:
            return
        more = math.log2(mass) + self._weighings / HALF_LIFE
        if page in self._present:
            known, last_use = self._present.of(page)
            self._present.put(page, (_added(known, more), last_use))
        else:
            self._remember(page, _added(self._absent.pop(page, UNWEIGHED), more))

    def _remember(self, page: PageId, mass: float) -> None:
        self._absent[page] = mass
        if len(self._absent) > MOST_ABSENT:
            self._absent.popitem(last=False)

    def remove(self, page: PageId) -> None:
        """Let `page` go; its mass is remembered for a while."""
        mass, _ = self._present.remove(page)
        if mass != UNWEIGHED:
            self._remember(page, mass)

    def victim(self, may_leave: Callable[[PageId], bool]) -> PageId | None:
        """Give the page of least mass that may leave."""
        return self._present.lowest(may_leave)

    def pages(self) -> set[PageId]:
        """Every page present."""
        return self._present.pages()


def _added(known: float, more: float) -> float:
    """Logarithm of the sum of two masses given by theirs, of which `known` may be none."""
    high, low = max(known, more), min(known, more)
    return high + math.log2(1.0 + 2.0 ** (low - high))
