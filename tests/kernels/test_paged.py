"""Attention by a page table: the definition against contiguous keys, and Triton against it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels import paged, reference, reference_paged

pytest.importorskip("triton")
from kernels import triton_paged

ON_GPU = pytest.param("cuda", marks=pytest.mark.gpu)
MODULES = pytest.mark.parametrize(
    ("module", "device"),
    [
        pytest.param(reference_paged, "cpu", id="reference"),
        pytest.param(triton_paged, "cpu", id="triton"),
        pytest.param(triton_paged, "cuda", id="gpu", marks=pytest.mark.gpu),
    ],
)
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}


def case(
    heads: tuple[int, int],
    queries: int,
    keys: int,
    dim: int,
    page: int,
    dtype: torch.dtype,
    device: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, an arena of keys and of values that is larger than needed, and a mixed table."""
    generator = torch.Generator().manual_seed(keys * 31 + queries)
    pages = -(-keys // page)
    slots = torch.randperm(pages + 3, generator=generator)[:pages].to(torch.int32)
    shape = (2, heads[1], (pages + 3) * page, dim)
    arena = torch.randn(shape, generator=generator).to(dtype)
    q = torch.randn(heads[0], queries, dim, generator=generator).to(dtype)
    return q.to(device), arena[0].to(device), arena[1].to(device), slots.to(device)


def side_by_side(arena: Tensor, table: Tensor, page: int, keys: int) -> Tensor:
    return torch.cat([arena[:, s * page : (s + 1) * page] for s in table.tolist()], 1)[:, :keys]


@MODULES
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("heads", "queries", "keys", "dim", "page"),
    [
        ((9, 3), 1, 300, 64, 64),
        ((4, 4), 1, 128, 128, 16),
        ((8, 1), 3, 257, 80, 32),
        ((2, 2), 1, 1, 64, 64),
        ((4, 2), 16, 130, 96, 16),
        ((1, 1), 1, 90, 256, 24),
        ((34, 2), 5, 140, 64, 64),
    ],
)
def test_a_table_finds_the_keys(module, device, heads, queries, keys, dim, page, dtype) -> None:
    """Odd shapes, a partial last page, grouped heads, more rows than a tile has."""
    q, k, v, table = case(heads, queries, keys, dim, page, dtype, device)
    options = {"scaling": dim**-0.5, "first_query": 5000, "first_key": 640}
    out, lse = module.attention_pages(q, k, v, table, num_keys=keys, page_tokens=page, **options)
    plain = (side_by_side(x, table, page, keys) for x in (k, v))
    expected, expected_lse = reference.attention_part(q, *plain, **options)
    assert (out.float() - expected.float()).abs().max() < TOLERANCE[dtype]
    assert torch.allclose(lse, expected_lse, atol=TOLERANCE[dtype])
    assert expected.abs().max() > 10 * TOLERANCE[dtype], "a zeroed result would fail"


@MODULES
@pytest.mark.parametrize(("window", "softcap"), [(150, None), (90, 5.0), (None, 5.0), (30, 5.0)])
def test_windows_and_soft_caps(module, device, window, softcap) -> None:
    """A window may hide a run of keys, some of them, or from some queries all."""
    q, k, v, table = case((4, 2), 4, 200, 32, 16, torch.float32, device)
    options = {
        "scaling": 0.25, "first_query": 236, "first_key": 0, "window": window, "softcap": softcap,
    }  # fmt: skip
    out, lse = module.attention_pages(q, k, v, table, num_keys=200, page_tokens=16, **options)
    plain = (side_by_side(x, table, 16, 200) for x in (k, v))
    expected, expected_lse = reference.attention_part(q, *plain, **options)
    assert torch.allclose(out.float(), expected, atol=2e-5)
    assert torch.allclose(lse, expected_lse, atol=2e-5)


@pytest.mark.parametrize("device", ["cpu", ON_GPU])
@settings(max_examples=15, deadline=None)
@given(keys=st.integers(1, 300), queries=st.integers(1, 3), seed=st.integers(0, 1 << 20))
def test_the_bits_do_not_depend_on_the_slots(
    device: str, keys: int, queries: int, seed: int
) -> None:
    """Exact means exact: a page may lie anywhere, in an arena or in a copy side by side."""
    q, k, v, table = case((4, 2), queries, keys, 32, 16, torch.bfloat16, device)
    options = {
        "num_keys": keys, "page_tokens": 16, "scaling": 0.2, "first_query": keys, "first_key": 0,
    }  # fmt: skip
    one = triton_paged.attention_pages(q, k, v, table, **options)
    plain = [
        torch.nn.functional.pad(side_by_side(x, table, 16, keys), (0, 0, 0, 16)) for x in (k, v)
    ]
    identity = torch.arange(len(table), dtype=torch.int32, device=device)
    two = triton_paged.attention_pages(q, *plain, identity, **options)
    moved = torch.randperm(len(table) + 9, generator=torch.Generator().manual_seed(seed))
    moved = moved[: len(table)]
    arenas = []
    for x in (k, v):
        arena = x.new_zeros(2, (len(table) + 9) * 16, 32)
        for source, target in zip(table.tolist(), moved.tolist(), strict=True):
            arena[:, target * 16 :][:, :16] = x[:, source * 16 :][:, :16]
        arenas.append(arena)
    three = triton_paged.attention_pages(
        q, *arenas, moved.to(device=device, dtype=torch.int32), **options
    )
    for other in (two, three):
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


def test_a_window_that_hides_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        reference_paged, "attention_pages", lambda *_, window, **__: seen.append(window)
    )
    q, k, v, table = case((2, 1), 2, 40, 16, 16, torch.float32, "cpu")
    for window in (42, 41, None):
        paged.attention_pages(
            q, k, v, table, num_keys=40, page_tokens=16, scaling=1.0, first_query=40, first_key=0,
            window=window,
        )  # fmt: skip
    assert seen == [None, 41, None]
