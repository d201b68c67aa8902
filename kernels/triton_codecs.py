"""What Triton kernels need to know of coded page slices: codes and scales of a tile, to and from.

Owns the arithmetic of `quantize.py` on one tile, to the same bits, and the places of codes, scales
and zeros in a coded slice. Knows nothing of arenas or positions. fp8 is converted by integers:
the type itself exists from sm_89 on, and not in Triton's interpreter.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.quantize import CodedSlice
from kernels.triton_numbers import narrow, to_integer, widen

INFINITY = tl.constexpr(float("inf"))


class CodedViews(NamedTuple):
    """Coded page slices as tensors that kernels index, and how they are coded."""

    how: CodedSlice
    codes: Tensor
    """`[N, code_bytes]` uint8."""
    scales: Tensor
    """`[N, scales of a slice]` in the scales' dtype."""
    zeros: Tensor | None
    """Like `scales`."""

    @property
    def group(self) -> int:
        """Elements of a group."""
        return self.how.grouped[self.how.group_axis - 1]


def views_of(how: CodedSlice, coded: Tensor) -> CodedViews:
    """Cut coded slices `[N, num_bytes]`, which begin at even addresses, into their numbers."""
    size = how.scale_dtype.itemsize
    begin, end = how.code_bytes, how.code_bytes + how.scale_bytes
    assert how.shape[2] % 2 == 0 and (coded.storage_offset() | coded.stride(0) | begin) % size == 0
    scales = coded[:, begin:end].view(how.scale_dtype)
    zeros = coded[:, end:].view(how.scale_dtype) if how.is_packed else None
    return CodedViews(how, coded[:, :begin], scales, zeros)


@triton.jit
def _numbers_at(
    head, rows, dims, KEYS: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """Indices of the scales of a tile: `[H, P / g, D]` for keys, `[H, P, D / g]` for values."""
    if KEYS:
        return (head * (PAGE // GROUP) + rows // GROUP)[:, None] * DIM + dims[None, :]
    else:
        return (head * PAGE + rows)[:, None] * (DIM // GROUP) + (dims // GROUP)[None, :]


@triton.jit
def _load_codes(codes, at, dims, mask, SCHEME: tl.constexpr, DIM: tl.constexpr):
    """Codes of a tile in fp32; `at` counts the rows of all heads."""
    if SCHEME == "int4":
        half: tl.constexpr = DIM // 2
        packed = tl.load(codes + at[:, None] * half + (dims % half)[None, :], mask=mask, other=0)
        return tl.where((dims >= half)[None, :], packed >> 4, packed & 15).to(tl.float32)
    else:
        code = tl.load(codes + at[:, None] * DIM + dims[None, :], mask=mask, other=0)
        if SCHEME == "int8":
            return code.to(tl.int8, bitcast=True).to(tl.float32)
        else:
            # The bits of e4m3 are those of a float16 that is 256 times smaller.
            bits = code.to(tl.uint16)
            bits = ((bits & 0x80) << 8) | ((bits & 0x7F) << 7)
            return bits.to(tl.float16, bitcast=True).to(tl.float32) * 256.0


@triton.jit
def decoded(
    codes, scales, zeros, head, rows, dims, mask, dtype: tl.constexpr, SCHEME: tl.constexpr,
    KEYS: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Give a tile of one page slice back, in the dtype of the KV.

    Args:
        codes, scales, zeros: Where those of the slice begin; zeros only for int4.
        head: KV head, int64.
        rows: `[T]` tokens of the page, int64.
        dims: `[C]` channels.
        mask: `[T, C]`.
        dtype: Of the KV.
        SCHEME, KEYS, PAGE, DIM, GROUP: How the slice is coded.
    """
    code = _load_codes(codes, head * PAGE + rows, dims, mask, SCHEME, DIM)
    at = _numbers_at(head, rows, dims, KEYS, PAGE, DIM, GROUP)
    x = code * widen(tl.load(scales + at, mask=mask, other=0.0))
    if SCHEME == "int4":
        x = x + widen(tl.load(zeros + at, mask=mask, other=0.0))
    return narrow(x, dtype)


@triton.jit
def ordered(x):
    """Integers in the order of fp32 numbers, NaN beyond all: found by a maximum or minimum."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def from_ordered(bits):
    """The fp32 number that `ordered` was given."""
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def scale_and_zero(
    low, high, dtype: tl.constexpr, scale_dtype: tl.constexpr, SCHEME: tl.constexpr,
    LIMIT: tl.constexpr,
):  # fmt: skip
    """Scale and zero of groups from their least and greatest, and which cannot be given back."""
    zero = low * 0.0
    if SCHEME == "int4":
        spread = high - low
        zero = widen(narrow(low + 0.0, scale_dtype))
    else:
        # By bits, because a maximum of numbers may drop what is none.
        far = tl.maximum(
            high.to(tl.int32, bitcast=True) & 0x7FFFFFFF,
            low.to(tl.int32, bitcast=True) & 0x7FFFFFFF,
        )
        spread = far.to(tl.float32, bitcast=True)
    scale = widen(narrow(tl.div_rn(spread, LIMIT), scale_dtype))
    largest = scale * LIMIT
    if SCHEME == "int4":
        largest = largest + zero
    largest = widen(narrow(largest, dtype))
    fits = (tl.abs(scale) < INFINITY) & (tl.abs(largest) < INFINITY) & (tl.abs(zero) < INFINITY)
    return scale, zero, fits


@triton.jit
def codes_of(x, scale, zero, SCHEME: tl.constexpr, LIMIT: tl.constexpr):
    """Codes 0 to 255 of a tile: the nearest to `(x - zero) / scale`, half to even; int32."""
    factor = tl.where(scale == 0, INFINITY, scale)
    if SCHEME == "int4":
        ratio = tl.minimum(tl.maximum(tl.div_rn(x - zero, factor), 0.0), LIMIT)
        return to_integer(ratio).to(tl.int32)
    else:
        ratio = tl.minimum(tl.maximum(tl.div_rn(x, factor), -LIMIT), LIMIT)
        if SCHEME == "int8":
            return to_integer(ratio).to(tl.int32) & 0xFF
        else:
            bits = ratio.to(tl.int32, bitcast=True)
            size = bits & 0x7FFFFFFF
            normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)
            subnormal = to_integer(size.to(tl.float32, bitcast=True) * 512.0).to(tl.int32)
            code = tl.where(size >= 0x3C800000, normal, subnormal)  # 2^-6
            return code | ((bits >> 24) & 0x80)


def scale_type(how: CodedSlice) -> tl.dtype:
    """The type of the scales inside kernels."""
    return {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}[how.scale_dtype]
