"""Attention over parts: every implementation against plain softmax, and against its reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels import attention, reference, triton_attention

TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}
HEADS = [(1, 1), (9, 3), (4, 1), (2, 2)]
MODULES = pytest.mark.parametrize(
    "module",
    [reference, attention, triton_attention],
    ids=["reference", "chosen", "triton"],
)


def full_softmax(
    queries: Tensor, keys: Tensor, values: Tensor, first_query: int, window: int | None = None,
    softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Attention by its definition in fp64: one softmax over everything visible."""
    group = queries.shape[0] // keys.shape[0]
    keys, values = (x.double().repeat_interleave(group, 0) for x in (keys, values))
    scores = queries.double() @ keys.transpose(-1, -2) * 0.125
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    query, key = torch.arange(queries.shape[1])[:, None] + first_query, torch.arange(keys.shape[1])
    hidden = key > query
    if window:
        hidden |= query - key >= window
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ values


def random_qkv(heads: tuple[int, int], queries: int, keys: int, dim: int, dtype: torch.dtype):
    torch.manual_seed(queries * 31 + keys)
    return (
        torch.randn(heads[0], queries, dim).to(dtype),
        torch.randn(heads[1], keys, dim).to(dtype),
        torch.randn(heads[1], keys, dim).to(dtype),
    )


@MODULES
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("dim", [16, 64, 80])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_parts_merge_to_the_whole(module, heads, dim, dtype) -> None:
    """A past in two parts and a causal diagonal, joined by log-sum-exp, give plain attention."""
    past, own = 77, 33
    q, k, v = random_qkv(heads, own, past + own, dim, dtype)
    out = lse = None
    for begin, end, causal in ((0, 50, False), (50, past, False), (past, past + own, True)):
        part = module.attention_part(
            q, k[:, begin:end], v[:, begin:end], scaling=0.125,
            first_query=past, first_key=begin, causal=causal,
        )  # fmt: skip
        out, lse = (part[0].float(), part[1]) if out is None else reference.merge(out, lse, *part)
    expected = full_softmax(q, k, v, past)
    assert (out - expected).abs().max() < TOLERANCE[dtype]
    assert expected.abs().max() > 10 * TOLERANCE[dtype], "a zeroed result would fail"


@MODULES
@pytest.mark.parametrize(("window", "softcap"), [(20, None), (200, 5.0), (7, 5.0)])
def test_sliding_window_and_soft_cap(module, window, softcap) -> None:
    past, own = 60, 12
    q, k, v = random_qkv((4, 2), own, past + own, 32, torch.float32)
    options = {"scaling": 0.125, "first_query": past, "window": window, "softcap": softcap}
    out, lse = module.attention_part(q, k[:, :past], v[:, :past], first_key=0, **options)
    out = out.float()
    part = module.attention_part(
        q, k[:, past:], v[:, past:], first_key=past, causal=True, **options
    )
    out, lse = reference.merge(out, lse, *part)
    assert (out - full_softmax(q, k, v, past, window, softcap)).abs().max() < 2e-5


def test_rows_that_see_nothing_vanish_in_a_merge() -> None:
    q, k, v = random_qkv((2, 1), 4, 8, 16, torch.float32)
    out, lse = reference.attention_part(q, k, v, scaling=1.0, first_query=100, window=10)
    assert torch.isinf(lse).all() and out.eq(0).all()
    seen = reference.attention_part(q, k, v, scaling=1.0, first_query=100)
    merged, merged_lse = reference.merge(out.float(), lse, *seen)
    assert torch.equal(merged, seen[0]) and torch.equal(merged_lse, seen[1])


@pytest.mark.parametrize("queries", [1, 5, 64])
def test_strides_do_not_change_a_bit(queries: int) -> None:
    """Views into an arena and contiguous copies must give the same bits: residency may not show."""
    for dtype in (torch.bfloat16, torch.float32):
        arena = torch.randn(2, 3, 4096, 64).to(dtype)
        q = torch.randn(9, queries, 64).to(dtype)
        views = arena[0, :, 128:1153], arena[1, :, 128:1153]
        options = {"scaling": 0.125, "first_query": 5000, "first_key": 128}
        one = attention.attention_part(q, *views, **options)
        two = attention.attention_part(q, *(x.contiguous() for x in views), **options)
        assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])


@pytest.mark.parametrize("softcap", [None, 0.5])
def test_page_lse_sums_to_the_whole(softcap) -> None:
    q, k, v = random_qkv((6, 2), 3, 150, 32, torch.float32)
    options = {"scaling": 0.125, "softcap": softcap}
    pages = attention.page_lse(q, k, page_tokens=64, **options)
    assert pages.shape == (6, 3, 3)
    _, lse = reference.attention_part(q, k, v, **options)
    assert torch.allclose(torch.logsumexp(pages, -1), lse, atol=1e-5)
    alone = reference.attention_part(q, k[:, 128:], v[:, 128:], **options)[1]
    assert torch.allclose(pages[..., 2], alone, atol=1e-5)


@pytest.mark.parametrize("softcap", [None, 0.5])
def test_a_bias_is_one_more_dimension_of_ones(softcap) -> None:
    q, k, _ = random_qkv((6, 2), 3, 150, 33, torch.float32)
    k[..., -1] = 1.0
    options = {"scaling": 0.125, "page_tokens": 64, "softcap": softcap}
    whole = attention.page_lse(q, k, **options)
    apart = attention.page_lse(q[..., :-1], k[..., :-1], bias=q[..., -1:], **options)
    assert torch.allclose(whole, apart, atol=1e-5)
    assert not torch.allclose(apart, attention.page_lse(q[..., :-1], k[..., :-1], **options))


@pytest.mark.parametrize("multiplies", [True, False])
def test_page_lse_of_bf16_with_and_without_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch, multiplies: bool
) -> None:
    monkeypatch.setattr(attention, "multiplies_bf16", lambda: multiplies)
    q, k, _ = random_qkv((6, 2), 3, 150, 32, torch.bfloat16)
    options = {"scaling": 0.125, "page_tokens": 64}
    pages = attention.page_lse(q, k, **options)
    assert pages.dtype == torch.float32
    assert torch.allclose(pages, attention.page_lse(q.float(), k.float(), **options), atol=0.02)
