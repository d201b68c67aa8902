"""Scores of whole pages, on Triton: what a probe reads every key for.

Owns the kernel. One program keeps a tile of query rows and walks over some pages, so that keys
stream past and one number a row and page leaves the chip. Programs that differ in their rows alone
are neighbours: a key comes from memory once, and from the level-2 cache for the others.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.triton_tiles import (
    LN2,
    MIN_ROWS,
    NOTHING,
    block_dim,
    last_dense,
    load_tile,
    precision,
    processors,
    score_factors,
    tile_scores,
)

PROGRAMS_EACH = 8
"""Programs for each multiprocessor: two run at once, and four rounds even out the last one."""

STAGES = 3
"""Tiles in flight. An H200 needs about 36 KiB on their way for each of its 132 multiprocessors to
use its memory (4.8 TB/s x 1 us); two programs with two tiles of 64 x 128 x 2 bytes on their way
have 64."""


def page_lse(
    queries: Tensor,
    keys: Tensor,
    *,
    scaling: float,
    page_tokens: int,
    softcap: float | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """As `kernels.attention.page_lse`; queries and keys have one dtype and lie on one device."""
    num_heads, num_queries, head_dim = queries.shape
    num_kv_heads, num_keys, _ = keys.shape
    keys, rows = last_dense(keys), queries.contiguous()
    num_rows, num_pages = num_heads // num_kv_heads * num_queries, -(-num_keys // page_tokens)
    out = queries.new_empty((num_heads, num_queries, num_pages), dtype=torch.float32)
    if out.numel() == 0:
        return out
    dim, is_wide = block_dim(head_dim), queries.element_size() == 4
    most_rows = 16 if is_wide else 128 if head_dim <= 128 else 64
    block_m = min(most_rows, max(MIN_ROWS, triton.next_power_of_2(num_rows)))
    block_n = min(32 if is_wide else 64, max(MIN_ROWS, triton.next_power_of_2(page_tokens)))
    row_tiles = triton.cdiv(num_rows, block_m)
    wanted = triton.cdiv(PROGRAMS_EACH * processors(queries.device), row_tiles * num_kv_heads)
    pages_each = triton.cdiv(num_pages, min(num_pages, wanted))
    inner, factor = score_factors(scaling, softcap)
    added = rows if bias is None else bias.float().contiguous()
    grid = (row_tiles, triton.cdiv(num_pages, pages_each), num_kv_heads)
    _pages_kernel[grid](
        rows, keys, added, out, *keys.stride()[:2], num_rows, num_keys, num_pages, pages_each,
        inner, factor, HEAD_DIM=head_dim, BLOCK_D=dim, BLOCK_M=block_m, BLOCK_N=block_n,
        PAGE=page_tokens, HAS_BIAS=bias is not None, HAS_CAP=softcap is not None,
        PRECISION=precision(queries.dtype), num_warps=8 if block_m == 128 or is_wide else 4,
        num_stages=STAGES,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["num_rows", "num_keys", "num_pages", "pages_each"])
def _pages_kernel(
    queries, keys, biases, out, key_head, key_token, num_rows, num_keys, num_pages, pages_each,
    inner, factor,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    PAGE: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Give one tile of rows of one KV head for `pages_each` pages."""
    kv_head = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_ok = row < num_rows
    place = kv_head * num_rows + row
    lanes, channels = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    rows = tl.load(
        queries + place[:, None] * HEAD_DIM + channels[None, :],
        mask=row_ok[:, None] & (channels < HEAD_DIM)[None, :], other=0.0,
    )  # fmt: skip
    added = None
    if HAS_BIAS:
        bias = tl.load(biases + place, mask=row_ok, other=0.0)
        added = tl.zeros([BLOCK_M, BLOCK_N], tl.float32) + bias[:, None]
    keys = keys + kv_head * key_head
    begin = tl.program_id(1) * pages_each
    for page in range(begin, tl.minimum(begin + pages_each, num_pages)):
        highest = tl.full([BLOCK_M], NOTHING, tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        for offset in tl.static_range(0, PAGE, BLOCK_N):
            first = tl.cast(page, tl.int64) * PAGE + offset
            seen = (offset + lanes < PAGE) & (first + lanes < num_keys)
            tile = load_tile(keys + first * key_token, lanes[None, :], channels[:, None], key_token,
                             seen[None, :], HEAD_DIM, BLOCK_D, True)  # fmt: skip
            scores = tile_scores(rows, tile, added, inner, HAS_CAP, PRECISION)
            scores = tl.where(seen[None, :], scores, NOTHING)
            # A page's first tile has its first key, so the maximum is a number from there on.
            new_highest = tl.maximum(highest, tl.max(scores, 1) * factor)
            weights = tl.exp2(scores * factor - new_highest[:, None])
            total = total * tl.exp2(highest - new_highest) + tl.sum(weights, 1)
            highest = new_highest
        tl.store(out + place * num_pages + page, (highest + tl.log2(total)) * LN2, mask=row_ok)
