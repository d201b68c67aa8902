"""Attention of few queries to pages that a table finds, on Triton.

Owns the kernel and the order of its sums. The keys are cut into runs of `RUN` at fixed places, one
program takes one run of one KV head (flash-decoding: the runs fill the device where the queries do
not), and a second kernel joins the runs one after another. Neither sees where a page lies but to
load it, so the bits do not depend on the table. The heads that share a KV head are rows of one
tile: a key is loaded once for all of them.

A step of one token is bound by memory: two multiply-adds a loaded number for each of the 16 rows of
the smallest tile. Offsets are 64-bit. Compiled for nobody's device yet; sizes are not tuned.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.triton_tiles import MIN_ROWS, NOTHING, block_dim, matmul, precision

RUN = 128
"""Keys of one program: 128 x 128 channels x 2 bytes x K and V are 64 KiB."""

TILE_BYTES = 16_384
"""Of a tile of keys: 64 keys of 128 channels in two bytes. Twice as many spill registers."""

MOST_KEYS, LEAST_KEYS = 64, 16
"""Keys of a tile."""

MOST_ROWS = 32
"""Rows of the largest tile; more rows are further programs, which load the keys again."""


@triton.jit
def _attend_run(
    queries, keys, values, table, outs, lses,
    query_head, query_token, key_head, key_token, value_head, value_token,
    num_queries, num_keys, shift, window, scaling, softcap,
    GROUP: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr, RUN: tl.constexpr, PAGE: tl.constexpr, HAS_WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (run of keys, KV head, tile of rows); row r is query r // GROUP of a head."""
    run, kv_head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    token, head = row // GROUP, kv_head * GROUP + row % GROUP
    channels, lanes = tl.arange(0, BLOCK_D), tl.arange(0, KEYS)
    filled = (token < num_queries)[:, None] & (channels < DIM)[None, :]
    place = head * query_head + token.to(tl.int64) * query_token
    rows = tl.load(queries + place[:, None] + channels[None, :], mask=filled, other=0.0)
    acc = tl.zeros([ROWS, BLOCK_D], tl.float32)
    highest = tl.full([ROWS], NOTHING, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for tile in tl.static_range(RUN // KEYS):
        at = run * RUN + tile * KEYS + lanes
        seen = at < num_keys
        slot = tl.load(table + at // PAGE, mask=seen, other=0).to(tl.int64)
        where = slot * PAGE + at % PAGE
        key_tile = tl.load(
            keys + kv_head * key_head + where[None, :] * key_token + channels[:, None],
            mask=seen[None, :] & (channels < DIM)[:, None], other=0.0,
        )  # fmt: skip
        scores = matmul(rows, key_tile, None, PRECISION) * scaling
        if HAS_CAP:  # tanh x = 1 - 2 / (1 + e^2x); beyond 40 it is 1, and e^x would overflow
            doubled = tl.minimum(scores * (2.0 / softcap), 40.0)
            scores = softcap * (1.0 - 2.0 / (1.0 + tl.exp(doubled)))
        visible = seen[None, :] & (row >= 0)[:, None]
        if HAS_WINDOW:
            visible = visible & (shift + token[:, None] - at[None, :] < window)
        scores = tl.where(visible, scores, NOTHING)
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        safe = tl.where(new_highest == NOTHING, 0.0, new_highest)
        weights = tl.exp(scores - safe[:, None])
        rescale = tl.exp(highest - safe)
        total = total * rescale + tl.sum(weights, 1)
        value_tile = tl.load(
            values + kv_head * value_head + where[:, None] * value_token + channels[None, :],
            mask=seen[:, None] & (channels < DIM)[None, :], other=0.0,
        )  # fmt: skip
        acc = matmul(weights, value_tile, acc * rescale[:, None], PRECISION)
        highest = new_highest
    some = total > 0.0
    num_heads = tl.num_programs(1) * GROUP
    place = (run.to(tl.int64) * num_heads + head) * num_queries + token
    result = acc / tl.where(some, total, 1.0)[:, None]
    tl.store(outs + place[:, None] * DIM + channels[None, :], result, mask=filled)
    lse = tl.where(some, highest + tl.log(tl.where(some, total, 1.0)), NOTHING)
    tl.store(lses + place, lse, mask=token < num_queries)


@triton.jit
def _join_runs(outs, lses, out, lse, num_rows, num_runs, DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Program (query of a head): the runs joined by log-sum-exp in their order."""
    row = tl.program_id(0).to(tl.int64)
    channels = tl.arange(0, BLOCK_D)
    acc = tl.zeros([BLOCK_D], tl.float32)
    highest, total = tl.full([], NOTHING, tl.float32), tl.full([], 0.0, tl.float32)
    for run in range(num_runs):
        place = run * num_rows + row
        of_run = tl.load(lses + place)
        new_highest = tl.maximum(highest, of_run)
        safe = tl.where(new_highest == NOTHING, 0.0, new_highest)
        rescale, weight = tl.exp(highest - safe), tl.exp(of_run - safe)
        part = tl.load(outs + place * DIM + channels, mask=channels < DIM, other=0.0)
        acc = acc * rescale + part * weight
        total = total * rescale + weight
        highest = new_highest
    some = total > 0.0
    result = acc / tl.where(some, total, 1.0)
    tl.store(out + row * DIM + channels, result, mask=channels < DIM)
    tl.store(lse + row, tl.where(some, highest + tl.log(tl.where(some, total, 1.0)), NOTHING))


def attention_pages(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    *,
    num_keys: int,
    page_tokens: int,
    scaling: float,
    first_query: int,
    first_key: int,
    window: int | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """As `kernels.reference_paged.attention_pages`; `out` is fp32, for whoever joins parts."""
    num_heads, num_queries, head_dim = queries.shape
    num_kv_heads = keys.shape[0]
    assert queries.stride(-1) == keys.stride(-1) == values.stride(-1) == 1
    assert table.dtype == torch.int32 and table.numel() * page_tokens >= num_keys
    num_runs, num_rows = triton.cdiv(num_keys, RUN), num_heads * num_queries
    outs = queries.new_empty((num_runs, num_heads, num_queries, head_dim), dtype=torch.float32)
    lses = outs.new_empty((num_runs, num_heads, num_queries))
    out, lse = torch.empty_like(outs[0]), torch.empty_like(lses[0])
    group = num_heads // num_kv_heads
    rows = min(MOST_ROWS, max(MIN_ROWS, triton.next_power_of_2(group * num_queries)))
    block_d = block_dim(head_dim)
    fitting = TILE_BYTES // (block_d * keys.element_size())
    tile = max(LEAST_KEYS, min(MOST_KEYS, fitting))
    grid = (num_runs, num_kv_heads, triton.cdiv(group * num_queries, rows))
    with torch.cuda.device_of(queries):
        _attend_run[grid](
            queries, keys, values, table, outs, lses, *queries.stride()[:2], *keys.stride()[:2],
            *values.stride()[:2], num_queries, num_keys, first_query - first_key, window or 0,
            scaling, softcap or 1.0, GROUP=group, DIM=head_dim, BLOCK_D=block_d, ROWS=rows,
            KEYS=tile, RUN=RUN, PAGE=page_tokens, HAS_WINDOW=window is not None,
            HAS_CAP=softcap is not None, num_warps=4,
            PRECISION=precision(queries.dtype),
        )  # fmt: skip
        if num_runs == 1:
            return outs[0], lses[0]
        _join_runs[(num_rows,)](
            outs, lses, out, lse, num_rows, num_runs, DIM=head_dim, BLOCK_D=block_d, num_warps=4
        )
    return out, lse
