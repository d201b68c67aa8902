"""Every policy on one recorded run, and the least that any could miss.

Owns the list and what regret is. Knows neither files nor screens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.policies import POLICIES
from engine.policies.belady import belady
from engine.policies.replay import ReplayResult, replay
from engine.trace import Access, AccessKind

BELADY = "belady"
"""What the optimum is called among the policies."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One policy's result."""

    policy: str
    """A key of `POLICIES`, or `BELADY`."""
    result: ReplayResult
    regret: float
    """Misses over the optimum's; where that has none, 1 for none and infinity for any."""


def compare(trace: Sequence[Access], capacity: int) -> tuple[Contender, ...]:
    """Replay a trace by every policy.

    Args:
        trace: The events in order.
        capacity: Pages that the tier holds, at least 1.

    Returns:
        The optimum, and after it the policies, those that miss least first.
    """
    optimum = belady(trace, capacity)
    results = {name: replay(trace, policy(), capacity) for name, policy in POLICIES.items()}
    contenders = [Contender(name, each, _regret(each, optimum)) for name, each in results.items()]
    contenders.sort(key=lambda contender: contender.result.misses)
    return Contender(BELADY, optimum, 1.0), *contenders


def _regret(result: ReplayResult, optimum: ReplayResult) -> float:
    if optimum.misses:
        return result.misses / optimum.misses
    return math.inf if result.misses else 1.0


def num_pages_read(trace: Sequence[Access]) -> int:
    """Different pages that a trace reads."""
    reads = (access.pages for access in trace if access.kind is AccessKind.READ)
    return len(set[int]().union(*reads))
