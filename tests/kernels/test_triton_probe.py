"""Scores of pages by Triton against what the probe takes on a CPU."""

from __future__ import annotations

import pytest
import torch

from kernels import attention, triton_probe

TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}
CASES = [
    # heads, KV heads, queries, keys, head size, page, soft cap, bias
    (6, 2, 3, 150, 32, 64, None, False),
    (8, 1, 5, 64, 80, 16, 0.5, False),
    (3, 3, 7, 129, 64, 128, None, True),
    (24, 3, 9, 70, 128, 24, 0.5, True),
    (2, 1, 1, 1, 96, 64, None, False),
    (4, 2, 3, 0, 64, 64, None, False),
    (4, 2, 0, 70, 64, 64, None, False),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_it_is_what_the_cpu_gives(case, dtype) -> None:
    heads, kv_heads, queries, keys, dim, page, softcap, has_bias = case
    q = torch.randn(heads, queries, dim).to(dtype)
    k = torch.randn(kv_heads, keys, dim).to(dtype)
    bias = torch.randn(heads, queries, 1) if has_bias else None
    options = {"scaling": 0.125, "page_tokens": page, "softcap": softcap}
    found = triton_probe.page_lse(q, k, bias=bias, **options)
    assert found.shape == (heads, queries, -(-keys // page)) and found.dtype == torch.float32
    if found.numel() == 0:
        return
    expected = attention.page_lse(q.float(), k.float(), bias=bias, **options)
    assert torch.allclose(found, expected, atol=TOLERANCE[dtype])
    other = attention.page_lse(q.float(), k.float().flip(-1), bias=bias, **options)
    assert not torch.allclose(found, other, atol=TOLERANCE[dtype])


def test_strides_and_stray_bits_behind_the_last_key_do_not_matter() -> None:
    arena = torch.full((3, 256, 64), float("nan"))
    arena[:, 32:107] = torch.randn(3, 75, 64)
    q = torch.randn(9, 4, 64).transpose(0, 1)[:3].contiguous().transpose(0, 1)
    q = q[:3]
    view = arena[:, 32:107]
    options = {"scaling": 0.125, "page_tokens": 64}
    one = triton_probe.page_lse(q, view, **options)
    assert torch.equal(one, triton_probe.page_lse(q.contiguous(), view.contiguous(), **options))
    assert one.isfinite().all()
