"""Triton kernels that code page slices: the codes, scales and zeros of `quantize.py`, bit for bit.

Owns one kernel for keys, whose groups run along the tokens of a page, and one for values, whose
groups run along channels. Both do two tiles a program, channels c and c + D / 2, because these
share a byte of int4. Bound by memory: a slice is read once and its codes are written once.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.quantize import KEYS, LIMITS, coded_slice
from kernels.triton_codecs import (
    codes_of,
    from_ordered,
    ordered,
    scale_and_zero,
    scale_type,
    views_of,
)
from kernels.triton_numbers import narrow, widen

CHANNELS = 32
"""Most channels c of a program for keys: two tiles of 64 tokens x 32 are 32 fp32 registers for each
of 128 threads."""

TOKENS = 16
"""Tokens of a program for values."""


@triton.jit
def _store_codes(
    codes, at, dims, mask, low_code, high_code, SCHEME: tl.constexpr, DIM: tl.constexpr
):
    """Write codes of channels `dims` and `dims + D / 2`; `at` counts the rows of all heads."""
    if SCHEME == "int4":
        target = codes + at[:, None] * (DIM // 2) + dims[None, :]
        tl.store(target, (low_code | (high_code << 4)).to(tl.uint8), mask=mask)
    else:
        target = codes + at[:, None] * DIM + dims[None, :]
        tl.store(target, low_code.to(tl.uint8), mask=mask)
        tl.store(target + DIM // 2, high_code.to(tl.uint8), mask=mask)


@triton.jit
def _key_channels(
    x, mask, scales, zeros, at, seen, faults, dtype: tl.constexpr, scale_dtype: tl.constexpr,
    SCHEME: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Code one group of tokens per channel, write scale and zero at `at`, and give the codes."""
    low = from_ordered(tl.min(tl.where(mask, ordered(x), 0x7FFFFFFF), axis=0))
    high = from_ordered(tl.max(tl.where(mask, ordered(x), -0x7FFFFFFF), axis=0))
    low, high = tl.where(seen, low, 0.0), tl.where(seen, high, 0.0)
    scale, zero, fits = scale_and_zero(low, high, dtype, scale_dtype, SCHEME, LIMIT)
    tl.store(scales + at, narrow(scale, scale_dtype), mask=seen)
    if SCHEME == "int4":
        tl.store(zeros + at, narrow(zero, scale_dtype), mask=seen)
    tl.store(faults + tl.zeros_like(at), tl.full(at.shape, 1, tl.int32), mask=seen & (fits == 0))
    return codes_of(x, scale[None, :], zero[None, :], SCHEME, LIMIT)


@triton.jit
def _encode_keys(
    source, codes, scales, zeros, faults, from_page, from_head, from_token, code_page, scale_page,
    SCALE_TYPE: tl.constexpr, SCHEME: tl.constexpr, LIMIT: tl.constexpr, PAGE: tl.constexpr,
    DIM: tl.constexpr, GROUP: tl.constexpr, WIDE_GROUP: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Program (page and group of tokens, head, block of channels)."""
    groups: tl.constexpr = PAGE // GROUP
    half: tl.constexpr = DIM // 2
    page = (tl.program_id(0) // groups).to(tl.int64)
    group = (tl.program_id(0) % groups).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    tokens = tl.arange(0, WIDE_GROUP)
    rows = group * GROUP + tokens
    dims = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    seen = dims < half
    mask = (tokens < GROUP)[:, None] & seen[None, :]
    source += page * from_page + head * from_head + rows[:, None] * from_token + dims[None, :]
    dtype: tl.constexpr = source.dtype.element_ty
    x = widen(tl.load(source, mask=mask, other=0.0))
    y = widen(tl.load(source + half, mask=mask, other=0.0))
    scales += page * scale_page
    if SCHEME == "int4":
        zeros += page * scale_page
    at = (head * groups + group) * DIM + dims
    low = _key_channels(
        x, mask, scales, zeros, at, seen, faults, dtype, SCALE_TYPE, SCHEME, LIMIT
    )  # fmt: skip
    high = _key_channels(
        y, mask, scales, zeros, at + half, seen, faults, dtype, SCALE_TYPE, SCHEME, LIMIT
    )  # fmt: skip
    _store_codes(codes + page * code_page, head * PAGE + rows, dims, mask, low, high, SCHEME, DIM)


@triton.jit
def _encode_values(
    source, codes, scales, zeros, faults, from_page, from_head, from_token, code_page, scale_page,
    SCALE_TYPE: tl.constexpr, SCHEME: tl.constexpr, LIMIT: tl.constexpr, PAGE: tl.constexpr,
    DIM: tl.constexpr, GROUP: tl.constexpr, WIDE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Program (page and block of its tokens, head)."""
    blocks: tl.constexpr = (PAGE + TOKENS - 1) // TOKENS
    half: tl.constexpr = DIM // 2
    groups: tl.constexpr = DIM // GROUP
    page = (tl.program_id(0) // blocks).to(tl.int64)
    rows = (tl.program_id(0) % blocks).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    at = tl.program_id(1).to(tl.int64) * PAGE + rows
    dims = tl.arange(0, WIDE)
    seen = rows < PAGE
    mask = seen[:, None] & (dims < half)[None, :]
    source += page * from_page + tl.program_id(1).to(tl.int64) * from_head
    source += rows[:, None] * from_token + dims[None, :]
    dtype: tl.constexpr = source.dtype.element_ty
    x = widen(tl.load(source, mask=mask, other=0.0))
    y = widen(tl.load(source + half, mask=mask, other=0.0))
    scales += page * scale_page
    scale_x = tl.zeros_like(x)
    scale_y, zero_x, zero_y = scale_x, scale_x, scale_x
    for group in tl.static_range(groups):
        in_x = mask & (dims // GROUP == group)[None, :]
        in_y = mask & ((dims + half) // GROUP == group)[None, :]
        least = tl.minimum(
            tl.min(tl.where(in_x, ordered(x), 0x7FFFFFFF), axis=1),
            tl.min(tl.where(in_y, ordered(y), 0x7FFFFFFF), axis=1),
        )
        most = tl.maximum(
            tl.max(tl.where(in_x, ordered(x), -0x7FFFFFFF), axis=1),
            tl.max(tl.where(in_y, ordered(y), -0x7FFFFFFF), axis=1),
        )
        low = tl.where(seen, from_ordered(least), 0.0)
        high = tl.where(seen, from_ordered(most), 0.0)
        scale, zero, fits = scale_and_zero(low, high, dtype, SCALE_TYPE, SCHEME, LIMIT)
        tl.store(scales + at * groups + group, narrow(scale, SCALE_TYPE), mask=seen)
        if SCHEME == "int4":
            place = zeros + page * scale_page + at * groups + group
            tl.store(place, narrow(zero, SCALE_TYPE), mask=seen)
        bad = seen & (fits == 0)
        tl.store(faults + tl.zeros_like(at), tl.full(at.shape, 1, tl.int32), mask=bad)
        scale_x = tl.where(in_x, scale[:, None], scale_x)
        scale_y = tl.where(in_y, scale[:, None], scale_y)
        zero_x = tl.where(in_x, zero[:, None], zero_x)
        zero_y = tl.where(in_y, zero[:, None], zero_y)
    _store_codes(
        codes + page * code_page, at, dims, mask,
        codes_of(x, scale_x, zero_x, SCHEME, LIMIT), codes_of(y, scale_y, zero_y, SCHEME, LIMIT),
        SCHEME, DIM,
    )  # fmt: skip


def encode(name: str, part: int, slices: Tensor) -> Tensor:
    """As `kernels.quantize.encode`, for every codec but `raw`; waits for the device."""
    count, heads, tokens, dim = slices.shape
    how = coded_slice(name, part, (heads, tokens, dim), slices.dtype)
    assert how is not None
    coded = torch.empty((count, how.num_bytes), dtype=torch.uint8, device=slices.device)
    faults = torch.zeros(1, dtype=torch.int32, device=slices.device)
    encode_into(name, part, slices, coded, faults)
    if faults.item():
        raise ValueError("keys or values are not finite, or beyond the range of their scales")
    return coded


def encode_into(name: str, part: int, slices: Tensor, coded: Tensor, faults: Tensor) -> None:
    """Code page slices without waiting for the device.

    Args:
        name: A codec other than `raw`.
        part: `KEYS` or `VALUES`.
        slices: `[N, H, P, D]`, any strides but dense along D: tokens of a step, `[H, T, D]`, are
            pages by `view` and `transpose`. Keys are position-free.
        coded: `[N, coded_bytes]` uint8, each row contiguous.
        faults: int32 `[1]`, set to 1 where `kernels.quantize.encode` would raise; codes and scales
            are then of no use.
    """
    count, heads, page_tokens, head_dim = slices.shape
    how = coded_slice(name, part, (heads, page_tokens, head_dim), slices.dtype)
    assert how is not None and slices.stride(-1) == 1
    views = views_of(how, coded)
    if not count:
        return
    arguments = (
        slices, *views[1:], faults, *slices.stride()[:3], coded.stride(0), views.scales.stride(0)
    )  # fmt: skip
    constants = {
        "SCALE_TYPE": scale_type(how), "SCHEME": how.scheme, "LIMIT": LIMITS[how.scheme],
        "PAGE": page_tokens, "DIM": head_dim, "GROUP": views.group, "num_warps": 4,
    }  # fmt: skip
    with torch.cuda.device_of(slices):
        half = triton.next_power_of_2(head_dim // 2)
        if part == KEYS:
            wide, channels = triton.next_power_of_2(views.group), min(CHANNELS, half)
            groups = count * (page_tokens // views.group)
            _encode_keys[groups, heads, triton.cdiv(head_dim // 2, channels)](
                *arguments, **constants, WIDE_GROUP=wide, CHANNELS=channels
            )
        else:
            _encode_values[count * triton.cdiv(page_tokens, TOKENS), heads](
                *arguments, **constants, WIDE=half, TOKENS=TOKENS
            )
