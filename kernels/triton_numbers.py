"""Rounding inside Triton kernels, to the same bits as torch.

Owns the conversions between fp32 and the dtypes of the KV. Knows no layouts. All of it is written
so that the interpreter and a compiled kernel agree: the interpreter of Triton 3.7 cuts bf16 off
instead of rounding it, and has no rounding to an integer.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""Whether kernels run in Python; fixed when the module is imported, as Triton itself does it."""

MAGIC = tl.constexpr(12582912.0)
"""1.5 * 2^23: fp32 has no fraction there, so adding it rounds to an integer, half to even."""


@triton.jit
def widen(x):
    """Convert to fp32, exactly."""
    if x.dtype == tl.bfloat16:
        wide = x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
        return wide.to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)


@triton.jit
def narrow(x, dtype: tl.constexpr):
    """Round fp32 to a dtype of the KV, half to even, as torch's `Tensor.to` does."""
    if INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        rounded = tl.where(x == x, rounded, 0x7FC0)
        return rounded.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        return x.to(dtype)


@triton.jit
def to_integer(x):
    """Round fp32 below 2^22 to the nearest integer, half to even; stays fp32."""
    return (x + MAGIC) - MAGIC
