"""Which bytes are numbers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.tiers.finite import is_finite

DTYPES = ("bfloat16", "float16", "float32")


def memory_of(values: torch.Tensor) -> memoryview:
    return memoryview(values.view(torch.uint8).numpy().data)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_it_agrees_with_torch(dtype: str, data: st.DataObject) -> None:
    """Over all patterns of bits, of which one in some hundred is no number."""
    size = 4 if dtype == "float32" else 2
    raw = data.draw(st.binary(min_size=size, max_size=64 * size))
    values = torch.frombuffer(bytearray(raw[: len(raw) // size * size]), dtype=torch.uint8)
    expected = bool(values.view(getattr(torch, dtype)).isfinite().all())
    assert is_finite(memory_of(values), dtype) == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
def test_one_bad_element_is_enough(dtype: str, value: float) -> None:
    values = torch.linspace(-3e4, 3e4, 500).to(getattr(torch, dtype))
    assert is_finite(memory_of(values), dtype)
    values[321] = value
    assert not is_finite(memory_of(values), dtype)
