"""Attention by Triton against its definition: odd shapes, masks, strides, far offsets."""

from __future__ import annotations

import mmap

import pytest
import torch

from kernels import reference, triton_attention

TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
CASES = [
    # heads, KV heads, queries, keys, head size, options
    (8, 1, 5, 40, 64, {}),
    (24, 3, 9, 9, 80, {"causal": True}),
    (6, 2, 70, 33, 96, {"first_query": 40, "window": 21}),
    (3, 3, 17, 65, 128, {"first_query": 65, "softcap": 5.0}),
    (4, 2, 33, 33, 256, {"causal": True, "window": 9, "softcap": 5.0}),
    (8, 2, 50, 130, 64, {"first_query": 80, "causal": True}),
    (2, 1, 1, 1, 16, {}),
    (2, 1, 4, 8, 16, {"first_query": 100, "window": 10}),
    (2, 1, 4, 8, 16, {"first_key": 100, "causal": True}),
    (4, 2, 3, 0, 64, {}),
    (4, 2, 0, 5, 64, {}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_it_is_the_definition(case, dtype) -> None:
    """The last cases see nothing, or have nothing to see: their sums are 0 and -inf."""
    heads, kv_heads, queries, keys, dim, options = case
    q = torch.randn(heads, queries, dim).to(dtype)
    k, v = (torch.randn(kv_heads, keys, dim).to(dtype) for _ in range(2))
    out, lse = triton_attention.attention_part(q, k, v, scaling=0.125, **options)
    if queries == 0:
        assert out.shape == q.shape and lse.shape == q.shape[:2]
        return
    expected, sums = reference.attention_part(q, k, v, scaling=0.125, **options)
    assert out.dtype == dtype and lse.dtype == torch.float32
    assert torch.allclose(out.float(), expected.float(), atol=TOLERANCE[dtype], rtol=0)
    assert torch.allclose(lse, sums, atol=1e-4)
    is_seen = ~torch.isinf(sums)
    assert out[~is_seen].eq(0).all()
    assert not is_seen.any() or expected.float().abs().max() > 10 * TOLERANCE[dtype]


def test_views_of_an_arena_give_the_same_bits_and_stray_bits_do_no_harm() -> None:
    """Keys of an arena are strided, and behind the last key lies whatever was there before."""
    arena = torch.full((2, 3, 256, 64), float("nan"), dtype=torch.bfloat16)
    arena[:, :, 32:107] = torch.randn(2, 3, 75, 64).bfloat16()
    q = torch.randn(20, 9, 64).bfloat16().transpose(0, 1)
    views = arena[0, :, 32:107], arena[1, :, 32:107]
    one = triton_attention.attention_part(q, *views, scaling=0.125)
    two = triton_attention.attention_part(
        q.contiguous(), *(x.contiguous() for x in views), scaling=0.125
    )
    assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])
    assert one[0].isfinite().all()


def test_a_tile_shorter_than_its_loops_steps_over_the_right_keys() -> None:
    """Many tiles of keys, so that the loop without masks and the one with them both run."""
    q, k, v = (torch.randn(heads, 100, 16) for heads in (3, 1, 1))
    for options in ({"causal": True}, {"causal": True, "window": 50}, {}):
        found = triton_attention.attention_part(q, k, v, scaling=0.125, **options)
        expected = reference.attention_part(q, k, v, scaling=0.125, **options)
        for x, y in zip(found, expected, strict=True):
            assert torch.allclose(x, y, atol=2e-5)


def test_offsets_beyond_32_bits() -> None:
    """The second KV head of an arena of more than 2^31 numbers; all but its rows is never touched.

    The system gives memory to what is touched alone, so 9 GB of addresses cost a few pages.
    """
    far = (1 << 32) + 4096
    with mmap.mmap(-1, 2 * far + (1 << 16), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        near = torch.frombuffer(memory, dtype=torch.float16, count=40 * 64).view(1, 40, 64)
        distant = torch.frombuffer(memory, dtype=torch.float16, count=40 * 64, offset=2 * far)
        distant = distant.view(1, 40, 64)
        near.fill_(1.0)
        distant.copy_(torch.randn(1, 40, 64))
        q = torch.randn(1, 4, 64).half()
        expected = triton_attention.attention_part(q, distant, distant, scaling=0.125)
        found = _at_offset(q, near, far)
        assert torch.equal(found, expected[0])
        del near, distant


def _at_offset(q: torch.Tensor, keys: torch.Tensor, far: int) -> torch.Tensor:
    """Launch for two KV heads with a stride that torch refuses for so small a view."""
    both = torch.cat([q, q])
    out, lse = torch.empty_like(both), torch.empty(2, 4)
    inner, factor = triton_attention.score_factors(0.125, None)
    triton_attention._part_kernel[(1, 2)](
        both, keys, keys, out, lse, 4 * 64, 64, far, 64, far, 64, 4, 40, 0, 0, inner, factor,
        GROUP=1, HEAD_DIM=64, BLOCK_D=64, BLOCK_M=16, BLOCK_N=32, CAUSAL=False, HAS_WINDOW=False,
        HAS_CAP=False, PRECISION="ieee", num_warps=4, num_stages=3,
    )  # fmt: skip
    return out[1:]
