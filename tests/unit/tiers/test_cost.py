"""Load or recompute: the cheaper of the two for every prefix."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.tiers.cost import Rates, Work, cheapest_split
from engine.types import KVGeometry

DEFAULT = KVGeometry(30, 3, 64, "bfloat16")
SEGMENT = DEFAULT.segment_tokens
MODEL = Work(forward=2 * 106e6, attention=4.0 * 30 * 9 * 64)


@pytest.mark.parametrize(
    ("read", "flops", "recomputed"),
    [
        (2e9, 3e11, 0),  # a laptop with an NVMe disk
        (1e6, 3e11, 8192),  # the same over a slow network
        (3e9, 3e14, 8192),  # a GPU that computes faster than the disk gives
    ],
)
def test_known_machines(read: float, flops: float, recomputed: int) -> None:
    split = cheapest_split(DEFAULT, 8192, 8192, Rates(read, flops), MODEL)
    assert split.recomputed == recomputed


def test_late_tokens_are_read_where_early_ones_are_computed() -> None:
    """Attention makes the last segment three times as dear as the first."""
    rates = Rates(read=DEFAULT.token_bytes * 1000, flops=2.3e11)
    split = cheapest_split(DEFAULT, 8192, 8192, rates, MODEL)
    assert 0 < split.recomputed < 8192
    assert split.seconds < min(split.load_seconds, split.recompute_seconds)


@given(
    tokens=st.integers(0, 20_000),
    most=st.integers(0, 30_000),
    read=st.floats(1e3, 1e11),
    flops=st.floats(1e6, 1e16),
)
def test_no_other_prefix_is_cheaper(tokens: int, most: int, read: float, flops: float) -> None:
    rates = Rates(read, flops)
    split = cheapest_split(DEFAULT, tokens, most, rates, MODEL)
    assert split.recomputed % SEGMENT == 0 and split.recomputed <= min(tokens, most)
    assert split.seconds <= split.load_seconds
    for end in range(0, min(tokens, most) + 1, SEGMENT):
        rest = (tokens - end) * DEFAULT.token_bytes / read
        assert split.seconds <= MODEL.of(0, end) / flops + rest


@given(first=st.integers(0, 300), count=st.integers(0, 200))
def test_work_is_the_sum_over_its_tokens(first: int, count: int) -> None:
    work = Work(forward=7.0, attention=3.0)
    assert work.of(first, first + count) == sum(7.0 + 3.0 * t for t in range(first, first + count))
