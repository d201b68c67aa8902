"""Load or recompute: which part of a stored sequence is cheaper to compute again than to read.

Owns the comparison. Knows rates and counts; measures nothing and moves nothing.

Every segment costs the same to read. To compute it costs the same forward pass, and attention to
all that stands before it: the later, the dearer. So what is worth computing again is a prefix, as
in Jin et al., "Compute or load KV cache? Why not both?" (arXiv 2410.03065); here one after the
other, since a machine whose disk is that slow has little to hide behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.types import KVGeometry


@dataclass(frozen=True, slots=True)
class Rates:
    """What a machine was measured to do."""

    read: float
    """Bytes per second from the session file."""
    flops: float
    """Floating-point operations per second of the model."""


@dataclass(frozen=True, slots=True)
class Work:
    """What computing a token takes, floating-point operations."""

    forward: float
    """Without attention."""
    attention: float
    """For each earlier token."""

    def of(self, first: int, end: int) -> float:
        """Operations of tokens `[first, end)`."""
        keys = (end * (end - 1) - first * (first - 1)) / 2
        return (end - first) * self.forward + keys * self.attention


@dataclass(frozen=True, slots=True)
class Split:
    """How a stored sequence is best brought back."""

    recomputed: int
    """Leading tokens to compute again; the others are read."""
    seconds: float
    """Expected of that."""
    load_seconds: float
    """Expected if everything were read."""
    recompute_seconds: float
    """Expected if everything were computed again."""


def cheapest_split(
    geometry: KVGeometry, num_tokens: int, most_tokens: int, rates: Rates, work: Work
) -> Split:
    """Choose the prefix that is computed again.

    Args:
        geometry: Shape of the KV.
        num_tokens: Tokens with stored KV.
        most_tokens: Tokens that may be computed again at most: what there is room for in memory.
        rates: Of the machine.
        work: Of the model.
    """
    size = geometry.segment_tokens

    def read(tokens: int) -> float:
        return tokens * geometry.token_bytes / rates.read

    def compute(end: int) -> float:
        return work.of(0, end) / rates.flops

    def cost(end: int) -> float:
        return compute(end) + read(num_tokens - end)

    ends = range(0, min(num_tokens, most_tokens) + 1, size)
    best = min(ends, key=cost)
    return Split(best, cost(best), read(num_tokens), compute(num_tokens))
