"""Triton kernels that move tokens between pages, rotating keys on the way.

Owns one kernel for pairs of keys and values and one for tokens that are copied as they are; both
see every layout as tokens in pages: row r of page p lies at `p * page + r * token`, and a table may
say which page. Knows no codecs. The definitions are in `reference_pages.py`.

Bound by memory. One program moves `TOKENS` tokens of up to four heads: the two table rows of a
token are read once for these heads (fp32, as many bytes as the bf16 key that they turn, so one head
a program would read the tables as often as the keys). Rows are dense along D, so a thread moves 16
bytes at a time. Offsets are 64-bit: an arena of 32 layers passes 2^31 elements at 262,144 tokens.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.reference_pages import Rotation
from kernels.triton_numbers import narrow, widen

TOKENS = 16
"""Tokens of a program: 16 tokens x 4 heads x 128 x 2 bytes = 16 KiB in flight, eight 16-byte loads
for each of 128 threads. Not tuned: no device was at hand."""

MOST_HEADS = 4


@triton.jit
def _places(tokens, first, table, page_tokens: tl.constexpr, per_page, per_token):
    """Offsets of tokens counted from page 0, and which of them have a place."""
    at = tokens + first
    page = at // page_tokens
    row = at % page_tokens
    placed = tokens >= 0
    if table is not None:
        page = tl.load(table + page, mask=placed, other=-1).to(tl.int64)
        placed = page >= 0
    return page * per_page + row * per_token, placed


@triton.jit
def _move_rows(
    source, target, source_rows, target_rows, seen, from_head, to_head, first_head,
    FIRST: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Copy dimensions `FIRST .. DIM - 1` of some tokens of some heads."""
    dims = FIRST + tl.arange(0, WIDE)
    mask = seen[:, None] & (dims < DIM)[None, :]
    for head in tl.static_range(HEADS):
        h = first_head + head
        x = tl.load(source + h * from_head + source_rows[:, None] + dims[None, :], mask=mask)
        tl.store(target + h * to_head + target_rows[:, None] + dims[None, :], x, mask=mask)


@triton.jit(do_not_specialize=["num_tokens", "source_first", "target_first"])
def _move_pair(
    keys, values, into_keys, into_values, own, cos, sin, starts, slots,
    num_tokens, source_first, target_first,
    key_page, key_head, key_token, value_page, value_head, value_token,
    to_key_page, to_key_head, to_key_token, to_value_page, to_value_head, to_value_token,
    own_head, own_token, table_row,
    PAGE: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr,
    WIDE: tl.constexpr, WIDE_HALF: tl.constexpr, WIDE_REST: tl.constexpr,
    HEADS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Program (block of tokens, group of heads, half of the KV)."""
    tokens = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    first_head = tl.program_id(1).to(tl.int64) * HEADS
    inside = tokens < num_tokens
    tokens_or_none = tl.where(inside, tokens, -1)
    if tl.program_id(2) == 1:
        begin, _ = _places(tokens, source_first, None, PAGE, value_page, value_token)
        end, placed = _places(
            tokens_or_none, target_first, slots, PAGE, to_value_page, to_value_token
        )
        _move_rows(
            values, into_values, begin, end, placed, value_head, to_value_head, first_head,
            0, DIM, WIDE, HEADS,
        )  # fmt: skip
    else:
        begin, _ = _places(tokens, source_first, None, PAGE, key_page, key_token)
        end, placed = _places(tokens_or_none, target_first, slots, PAGE, to_key_page, to_key_token)
        at = tokens
        if starts is not None:
            start = tl.load(starts + tokens // PAGE, mask=inside, other=0).to(tl.int64)
            at = start + tokens % PAGE
        dims = tl.arange(0, WIDE_HALF)
        narrower = (dims < HALF)[None, :]
        seen = inside[:, None] & narrower
        turned = placed[:, None] & narrower
        angles = at[:, None] * table_row + dims[None, :]
        c = tl.load(cos + angles, mask=seen, other=0.0)
        s = tl.load(sin + angles, mask=seen, other=0.0)
        for head in tl.static_range(HEADS):
            h = first_head + head
            source = keys + h * key_head + begin[:, None] + dims[None, :]
            x = widen(tl.load(source, mask=seen, other=0.0))
            y = widen(tl.load(source + HALF, mask=seen, other=0.0))
            # Compiled without fused multiply-add: rounded after each step, as torch does it.
            low = narrow(x * c - y * s, keys.dtype.element_ty)
            high = narrow(y * c + x * s, keys.dtype.element_ty)
            target = into_keys + h * to_key_head + end[:, None] + dims[None, :]
            tl.store(target, low, mask=turned)
            tl.store(target + HALF, high, mask=turned)
            if own is not None:
                aside = own + h * own_head + tokens[:, None] * own_token + dims[None, :]
                tl.store(aside, low, mask=seen)
                tl.store(aside + HALF, high, mask=seen)
        if 2 * HALF < DIM:
            _move_rows(
                keys, into_keys, begin, end, placed, key_head, to_key_head, first_head,
                2 * HALF, DIM, WIDE_REST, HEADS,
            )  # fmt: skip
            if own is not None:
                _move_rows(
                    keys, own, begin, tokens * own_token, inside, key_head, own_head, first_head,
                    2 * HALF, DIM, WIDE_REST, HEADS,
                )  # fmt: skip


@triton.jit(do_not_specialize=["num_tokens", "source_first", "target_first"])
def _move(
    source, target, sources, targets, num_tokens, source_first, target_first,
    from_page, from_head, from_token, to_page, to_head, to_token,
    PAGE: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    HEADS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Program (block of tokens, group of heads)."""
    tokens = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    first_head = tl.program_id(1).to(tl.int64) * HEADS
    tokens = tl.where(tokens < num_tokens, tokens, -1)
    begin, seen = _places(tokens, source_first, sources, PAGE, from_page, from_token)
    end, placed = _places(tokens, target_first, targets, PAGE, to_page, to_token)
    _move_rows(
        source, target, begin, end, seen & placed, from_head, to_head, first_head,
        0, DIM, WIDE, HEADS,
    )  # fmt: skip


def heads_together(num_heads: int) -> int:
    """How many heads a program moves: the largest divisor of `num_heads` up to `MOST_HEADS`."""
    return max(count for count in range(1, MOST_HEADS + 1) if num_heads % count == 0)


Strides = tuple[int, int, int]
"""Elements from one page, head and token to the next."""


def flat(x: Tensor, page_tokens: int) -> Strides:
    """Strides of `[H, T, D]`, whose pages follow each other."""
    return page_tokens * x.stride(1), x.stride(0), x.stride(1)


def paged(x: Tensor) -> Strides:
    """Strides of `[N, H, P, D]`."""
    return x.stride(0), x.stride(1), x.stride(2)


def launch_pair(
    keys: Tensor,
    values: Tensor | None,
    into_keys: Tensor,
    into_values: Tensor | None,
    layouts: list[Strides],
    rotation: Rotation,
    starts: Tensor | None,
    slots: Tensor | None,
    own: Tensor | None,
    page_tokens: int,
    num_tokens: int,
    first: int,
) -> None:
    """Launch `_move_pair`; `layouts` are those of keys, values and their targets."""
    cos, sin = rotation
    head_dim, half, heads = keys.shape[-1], cos.shape[-1], into_keys.shape[0]
    for x in (keys, values, into_keys, into_values, own, *rotation):
        assert x is None or x.stride(-1) == 1
    for x, target in ((keys, into_keys), (values, into_values), (own, into_keys)):
        assert x is None or (target is not None and x.dtype == target.dtype)
    assert cos.stride() == sin.stride() and cos.dtype == sin.dtype == torch.float32
    together = heads_together(heads)
    if not num_tokens:
        return
    grid = triton.cdiv(num_tokens, TOKENS), heads // together, 1 if values is None else 2
    # Without values there are no programs for them, and any tensor stands for them.
    pair = keys, keys if values is None else values
    into = into_keys, into_keys if into_values is None else into_values
    with torch.cuda.device_of(keys):
        _move_pair[grid](
            *pair, *into, own, cos, sin, starts, slots, num_tokens, 0, first,
            *(stride for layout in layouts for stride in layout),
            *(own.stride()[:2] if own is not None else (0, 0)), cos.stride(0),
            PAGE=page_tokens, DIM=head_dim, HALF=half,
            WIDE=triton.next_power_of_2(head_dim), WIDE_HALF=triton.next_power_of_2(half),
            WIDE_REST=triton.next_power_of_2(max(1, head_dim - 2 * half)),
            HEADS=together, TOKENS=TOKENS, num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip


def launch(
    source: Tensor,
    target: Tensor,
    num_tokens: int,
    page_tokens: int,
    begin: Strides,
    end: Strides,
    *,
    sources: Tensor | None = None,
    targets: Tensor | None = None,
    target_first: int = 0,
) -> None:
    """Launch `_move`; `begin` and `end` are the layouts of source and target."""
    assert source.stride(-1) == target.stride(-1) == 1 and source.dtype == target.dtype
    head_dim, heads = source.shape[-1], source.shape[1 if source.dim() == 4 else 0]
    together = heads_together(heads)
    if not num_tokens:
        return
    with torch.cuda.device_of(source):
        _move[triton.cdiv(num_tokens, TOKENS), heads // together](
            source, target, sources, targets, num_tokens, 0, target_first, *begin, *end,
            PAGE=page_tokens, DIM=head_dim, WIDE=triton.next_power_of_2(head_dim),
            HEADS=together, TOKENS=TOKENS, num_warps=4,
        )  # fmt: skip
