"""Attention over one part of the keys, on Triton: prefill, extend, and the causal diagonal.

Owns the kernel for many query rows; `triton_decode` has the one for few. One program takes a tile
of rows and walks over the keys with the running maximum and sum of an online softmax
(FlashAttention-2, arXiv 2307.08691), so that scores never leave the chip. The heads that share a KV
head are folded into rows, query by query: a tile of keys is loaded once for all of them.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.triton_tiles import (
    LN2,
    MIN_ROWS,
    NOTHING,
    WIDE_SHARED_BYTES,
    block_dim,
    last_dense,
    load_tile,
    matmul,
    online_softmax,
    precision,
    score_factors,
    shared_bytes,
    tile_scores,
)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Sizes of one launch."""

    rows: int
    keys: int
    warps: int
    stages: int


def attention_part(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scaling: float,
    first_query: int = 0,
    first_key: int = 0,
    causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """As `kernels.reference.attention_part`; all tensors have one dtype and lie on one device."""
    num_heads, num_queries, head_dim = queries.shape
    num_kv_heads, num_keys, _ = keys.shape
    group = num_heads // num_kv_heads
    queries, keys, values = last_dense(queries), last_dense(keys), last_dense(values)
    out = queries.new_empty(num_heads, num_queries, head_dim)
    lse = queries.new_empty((num_heads, num_queries), dtype=torch.float32)
    if out.numel() == 0:
        return out, lse
    dim = block_dim(head_dim)
    tiles = tiles_for(
        group * num_queries, dim, queries.element_size(), shared_bytes(queries.device)
    )
    inner, factor = score_factors(scaling, softcap)
    grid = (triton.cdiv(group * num_queries, tiles.rows), num_kv_heads)
    _part_kernel[grid](
        queries, keys, values, out, lse, *queries.stride()[:2], *keys.stride()[:2],
        *values.stride()[:2], num_queries, num_keys, first_query - first_key, window or 0,
        inner, factor, GROUP=group, HEAD_DIM=head_dim, BLOCK_D=dim, BLOCK_M=tiles.rows,
        BLOCK_N=tiles.keys, CAUSAL=causal, HAS_WINDOW=window is not None,
        HAS_CAP=softcap is not None, PRECISION=precision(queries.dtype), num_warps=tiles.warps,
        num_stages=tiles.stages,
    )  # fmt: skip
    return out, lse


def tiles_for(num_rows: int, dim: int, itemsize: int, shared: int) -> Tiles:
    """Choose tile sizes; `RESOURCES.md` shows what becomes of them.

    A tile of M rows makes M multiply-adds for each element of K or V that it loads, M operations a
    byte in bf16. An H100 makes about 300 in the time of a byte from HBM, and its level-2 cache
    gives a few times that, so 128 rows keep the tensor cores fed. The fp32 sums take
    M x D / (32 x warps) registers a thread, 64 of 255 at 128 x 128 with eight warps; at D = 256
    only 64 rows leave room for the scores, and before Hopper, where the queries lie in registers,
    too, only 32 keys. Shared memory holds the queries and `stages` tiles of K and V:
    (128 + 3 x 2 x 64) x 128 x 2 bytes = 128 KiB of Hopper's 227; 80 KiB of the 99 of a consumer
    device. fp32 is multiplied without tensor cores and spills with larger tiles.

    Args:
        num_rows: Query rows of a KV head.
        dim: Channels of a tile.
        itemsize: Bytes of an element.
        shared: Shared memory a program may take, bytes.
    """
    wanted = max(MIN_ROWS, triton.next_power_of_2(num_rows))
    if itemsize == 4:
        return Tiles(min(wanted, 16 if dim >= 128 else 32), 32, 8, 2)
    wide = shared >= WIDE_SHARED_BYTES and dim <= 128
    rows = min(wanted, 128 if dim <= 128 else 64)
    warps = 4 if rows < 64 else 8
    return Tiles(rows, 64 if wide else 32, warps, 3 if wide or dim <= 128 else 2)


@triton.jit
def _walk(acc, highest, total, rows, keys, values, key_token, value_token, begin, end, num_keys,
          lowest, limit, inner, factor, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
          BLOCK_N: tl.constexpr, MASKED: tl.constexpr, HAS_WINDOW: tl.constexpr,
          HAS_CAP: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Attend to the keys `[begin, end)`, tile by tile; a row sees those in `[lowest, limit)`."""
    lanes, channels = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    for start in range(begin, end, BLOCK_N):
        token = start + lanes
        # The tile's offset is one 64-bit scalar: within it 64-bit lanes would cost registers.
        first = tl.cast(start, tl.int64)
        key_tile = load_tile(keys + first * key_token, lanes[None, :], channels[:, None], key_token,
                             (token < num_keys)[None, :], HEAD_DIM, BLOCK_D, MASKED)  # fmt: skip
        scores = tile_scores(rows, key_tile, None, inner, HAS_CAP, PRECISION)
        if MASKED:
            seen = token[None, :] < limit[:, None]
            if HAS_WINDOW:
                seen = seen & (token[None, :] >= lowest[:, None])
            scores = tl.where(seen, scores, NOTHING)
        weights, highest, total, rescale = online_softmax(scores, factor, highest, total)
        value_tile = load_tile(values + first * value_token, lanes[:, None], channels[None, :],
                               value_token, (token < num_keys)[:, None], HEAD_DIM, BLOCK_D,
                               MASKED)  # fmt: skip
        acc = matmul(weights, value_tile, acc * rescale[:, None], PRECISION)
    return acc, highest, total


@triton.jit(do_not_specialize=["num_queries", "num_keys", "shift", "window"])
def _part_kernel(
    queries, keys, values, out, lse,
    query_head, query_token, key_head, key_token, value_head, value_token,
    num_queries, num_keys, shift, window, inner, factor,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_CAP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Give one tile of rows of one KV head; query t stands at the place of key `shift + t`."""
    # The last rows see most of a causal part: they begin first, so that none runs on alone.
    first_row = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M
    kv_head = tl.program_id(1).to(tl.int64)
    row = first_row + tl.arange(0, BLOCK_M)
    token, head = row // GROUP, kv_head * GROUP + row % GROUP
    row_ok = token < num_queries
    channels = tl.arange(0, BLOCK_D)
    filled = row_ok[:, None] & (channels < HEAD_DIM)[None, :]
    place = head * query_head + token.to(tl.int64) * query_token
    rows = tl.load(queries + place[:, None] + channels[None, :], mask=filled, other=0.0)

    begin, end, whole_end = 0, num_keys, num_keys
    lowest, limit = tl.zeros_like(row), tl.zeros_like(row) + num_keys
    if CAUSAL:
        last_token = tl.minimum((first_row + BLOCK_M - 1) // GROUP, num_queries - 1)
        end = tl.maximum(tl.minimum(end, shift + last_token + 1), 0)
        whole_end = tl.maximum(tl.minimum(end, shift + first_row // GROUP + 1), 0)
        limit = tl.minimum(limit, shift + token + 1)
    if HAS_WINDOW:
        begin = tl.maximum(shift + first_row // GROUP - window + 1, 0) // BLOCK_N * BLOCK_N
        lowest = shift + token - window + 1
    whole_end = whole_end // BLOCK_N * BLOCK_N

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    highest = tl.full([BLOCK_M], NOTHING, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    keys, values = keys + kv_head * key_head, values + kv_head * value_head
    if not HAS_WINDOW:  # Tiles that every row sees whole need no mask; a third loop would spill.
        acc, highest, total = _walk(
            acc, highest, total, rows, keys, values, key_token, value_token, 0, whole_end, num_keys,
            lowest, limit, inner, factor, HEAD_DIM, BLOCK_D, BLOCK_N, False, False, HAS_CAP,
            PRECISION,
        )  # fmt: skip
        begin = whole_end
    acc, highest, total = _walk(
        acc, highest, total, rows, keys, values, key_token, value_token, begin, end, num_keys,
        lowest, limit, inner, factor, HEAD_DIM, BLOCK_D, BLOCK_N, True, HAS_WINDOW, HAS_CAP,
        PRECISION,
    )  # fmt: skip

    seen = total > 0.0
    result = acc / tl.where(seen, total, 1.0)[:, None]
    place = head * num_queries + token
    tl.store(out + place[:, None] * HEAD_DIM + channels[None, :], result, mask=filled)
    sums = (highest + tl.log2(tl.where(seen, total, 1.0))) * LN2
    tl.store(lse + place, tl.where(seen, sums, NOTHING), mask=row_ok)
