"""What the Triton attention kernels share: scores of a tile, the online softmax, and tile sizes.

Owns the arithmetic on one tile of scores, and what is known of a device. Scores are kept in units
of log2, because the hardware's exponential is 2^x. Knows nothing of pages.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.triton_numbers import INTERPRETED

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
NOTHING = tl.constexpr(float("-inf"))

MIN_ROWS = 16
"""Rows of the smallest matrix product on tensor cores (mma.m16n8k16)."""

HOPPER_PROCESSORS = 132
"""Of an H100 or H200; assumed by the interpreter."""

SMALL_SHARED_BYTES = 101_376
"""Shared memory of a program on consumer devices (sm_86, sm_89, sm_120); sm_80 has 166,912."""

WIDE_SHARED_BYTES = 232_448
"""Shared memory of a program on sm_90 and sm_100: where whole warp groups multiply from there."""


@triton.jit
def matmul(left, right, acc, PRECISION: tl.constexpr):
    """Add the product of two tiles to `acc` (None: 0), in fp32; `left` in the dtype of `right`.

    The interpreter multiplies the bit patterns of bf16 (triton issue 11584), and fp32 holds the
    same numbers.
    """
    if INTERPRETED:
        return tl.dot(left.to(tl.float32), right.to(tl.float32), acc, input_precision="ieee")
    return tl.dot(left.to(right.dtype), right, acc, input_precision=PRECISION)


@triton.jit
def tile_scores(rows, keys, added, inner, HAS_CAP: tl.constexpr, PRECISION: tl.constexpr):
    """Products `[M, N]` fp32 plus `added` (None: 0), soft-capped if asked.

    `score_factors` tells what is still missing until they are scores.
    tanh(x) = 1 - 2 / (1 + e^2x) needs no library call, and its error is absolute, 1e-7 of the cap.
    """
    scores = matmul(rows, keys, added, PRECISION)
    if HAS_CAP:  # beyond 64 the tangent is 1, and 2^x would overflow soon
        scores = 1.0 - 2.0 / (1.0 + tl.exp2(tl.minimum(scores * inner, 64.0)))
    return scores


@triton.jit
def online_softmax(scores, factor, highest, total):
    """One step of the online softmax (arXiv 1805.02867), in units of log2.

    Args are a tile `[M, N]`, its factor, and the running maximum and sum `[M]`. Gives the weights
    of the tile, the new maximum and sum, and what earlier results must be multiplied with. The
    factor is applied here, so that it and the subtraction are one fused multiply-add.
    """
    new_highest = tl.maximum(highest, tl.max(scores, 1) * factor)
    # A row that has seen nothing has the maximum -inf, and -inf - -inf is not a number.
    safe = tl.where(new_highest == NOTHING, 0.0, new_highest)
    weights = tl.exp2(scores * factor - safe[:, None])
    rescale = tl.exp2(highest - safe)
    return weights, new_highest, total * rescale + tl.sum(weights, 1), rescale


@triton.jit
def load_tile(base, tokens, channels, token_stride, token_ok, HEAD_DIM: tl.constexpr,
              BLOCK_D: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """Load `[tokens, channels]`; what is masked is 0, so that stray bits there do no harm.

    The indices give the shape: with `[1, N]` tokens and `[D, 1]` channels the tile is transposed.
    """
    pointers = base + (tokens.to(tl.int64) * token_stride + channels)
    if MASKED:
        return tl.load(pointers, mask=token_ok & (channels < HEAD_DIM), other=0.0)
    if BLOCK_D > HEAD_DIM:
        return tl.load(pointers, mask=channels < HEAD_DIM, other=0.0)
    return tl.load(pointers)


def score_factors(scaling: float, softcap: float | None) -> tuple[float, float]:
    """What `tile_scores` and `online_softmax` multiply with, so that scores come in units of log2.

    Returns:
        The factor inside the hyperbolic tangent of a soft cap, and the one outside.
    """
    assert scaling > 0.0
    if softcap is None:
        return 0.0, scaling * LOG2E.value
    return 2.0 * LOG2E.value * scaling / softcap, softcap * LOG2E.value


def block_dim(head_dim: int) -> int:
    """Channels of a tile: the next power of two, which is what Triton's shapes need."""
    return max(MIN_ROWS, int(triton.next_power_of_2(head_dim)))


def precision(dtype: torch.dtype) -> str:
    """How products are made: fp32 with all of its bits, so that answers are the CPU's."""
    return "ieee" if dtype == torch.float32 else "tf32"


def last_dense(tensor: Tensor) -> Tensor:
    """The tensor, copied if its last dimension has gaps; the kernels take any other strides."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a device."""
    if device.type == "cpu":
        return HOPPER_PROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def shared_bytes(device: torch.device) -> int:
    """Shared memory that one program may take, bytes."""
    if device.type == "cpu":
        return SMALL_SHARED_BYTES
    properties = torch.cuda.get_device_properties(device)  # older builds do not tell it
    return int(getattr(properties, "shared_memory_per_block_optin", SMALL_SHARED_BYTES))
