"""Page slices in fewer bytes: the definition of every codec, in plain torch, fast on a CPU as well.

Owns the bytes of a coded page slice. Knows neither files nor tiers.

A page slice `[H, P, D]` (KV heads, tokens, head size; position-free) becomes one run of bytes
`[codes][scales][zeros]` without padding. Keys are grouped per channel along the tokens of the page,
values per token along channels (KIVI, arXiv 2402.02750); a group is the largest divisor of that
axis that is at most `LONGEST_GROUP`. Scales and zeros have the dtype of the KV, or bfloat16 if that
is float32: `[H, P / g, D]` for keys, `[H, P, D / g]` for values.

| scheme | codes | x = |
| --- | --- | --- |
| `fp8` | float8_e4m3fn `[H, P, D]` | code * scale, scale = max abs / 448 |
| `int8` | int8, -127 to 127, `[H, P, D]` | code * scale, scale = max abs / 127 |
| `int4` | 0 to 15, `[H, P, D / 2]`: channel c low, channel c + D / 2 high in byte c | code * scale + zero, zero = min, scale = (max - min) / 15 |

Codes are chosen with the rounded scale and zero. Products and sums are in fp32, where a product of
code and scale is exact, and are rounded once. The same slice gives the same bytes whatever stands
beside it: a damaged page that is computed again must fit its checksum again.
"""  # noqa: E501

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
from torch import Tensor

CODECS: Final = ("raw", "fp8", "int8", "int4", "k8v4")
"""`k8v4` has keys as `int8` and values as `int4`; `raw` is the slice itself."""

KEYS: Final = 0
VALUES: Final = 1

LONGEST_GROUP: Final = 64
PIECE: Final = 1 << 17
"""Elements coded at once: their fp32 copy of 512 KiB stays in the cache from one operation to the
next, and is long enough for the time that starting an operation takes."""

LIMITS: Final = {"fp8": 448.0, "int8": 127.0, "int4": 15.0}
"""Largest code."""

_SIGN_FROM_INT8: Final = 0xBFFF - 0x10000


@dataclass(frozen=True, slots=True)
class CodedSlice:
    """How one page slice is coded: the numbers behind its bytes."""

    scheme: str
    """"fp8", "int8" or "int4"."""
    shape: tuple[int, int, int]
    """`(H, P, D)`."""
    grouped: tuple[int, int, int, int]
    """The shape with the grouped axis cut: `(H, P/g, g, D)` for keys, `(H, P, D/g, g)`."""
    group_axis: int
    """Axis of `grouped` along which a group's elements lie, with a batch axis before it."""
    scale_shape: tuple[int, int, int, int]
    """Of scales and zeros, broadcast over `grouped`."""
    scale_dtype: torch.dtype
    code_bytes: int
    scale_bytes: int
    """Of the scales; the zeros, if there are any, are as many."""
    num_bytes: int
    """Of the whole."""

    @property
    def is_packed(self) -> bool:
        """Whether a byte holds two codes, and groups have zeros."""
        return self.scheme == "int4"


def group_length(axis: int) -> int:
    """The largest divisor of the length of an axis that is at most `LONGEST_GROUP`."""
    return max(size for size in range(1, min(axis, LONGEST_GROUP) + 1) if axis % size == 0)


def scheme_of(name: str, part: int) -> str:
    """How a codec codes keys or values: itself, but for `k8v4`.

    Raises:
        ValueError: There is no such codec.
    """
    if name not in CODECS:
        raise ValueError(f"no codec {name!r}: one of {', '.join(CODECS)}")
    return ("int8", "int4")[part] if name == "k8v4" else name


@cache
def coded_slice(
    name: str, part: int, shape: tuple[int, int, int], dtype: torch.dtype
) -> CodedSlice | None:
    """How a codec codes a page slice; None for `raw`.

    Args:
        name: One of `CODECS`.
        part: `KEYS` or `VALUES`.
        shape: `(H, P, D)`.
        dtype: Of the KV.

    Raises:
        ValueError: There is no such codec, or it cannot code such slices.
    """
    scheme = scheme_of(name, part)
    if scheme == "raw":
        return None
    heads, tokens, dim = shape
    is_packed = scheme == "int4"
    if is_packed and dim % 2:
        raise ValueError(f"{name} codes two channels in a byte, so {dim} channels do not fit")
    group = group_length(shape[1 + part])
    scale_dtype = dtype if dtype.itemsize == 2 else torch.bfloat16
    code_bytes = math.prod(shape) // (2 if is_packed else 1)
    scale_bytes = math.prod(shape) // group * scale_dtype.itemsize
    return CodedSlice(
        scheme,
        shape,
        grouped=(heads, *((tokens // group, group, dim), (tokens, dim // group, group))[part]),
        group_axis=(3, 4)[part],
        scale_shape=(heads, *((tokens // group, 1, dim), (tokens, dim // group, 1))[part]),
        scale_dtype=scale_dtype,
        code_bytes=code_bytes,
        scale_bytes=scale_bytes,
        num_bytes=code_bytes + (2 if is_packed else 1) * scale_bytes,
    )


def coded_bytes(name: str, part: int, shape: tuple[int, int, int], dtype: torch.dtype) -> int:
    """Bytes of one coded page slice; arguments and errors as for `coded_slice`."""
    how = coded_slice(name, part, shape, dtype)
    return math.prod(shape) * dtype.itemsize if how is None else how.num_bytes


def encode(name: str, part: int, slices: Tensor) -> Tensor:
    """Code page slices.

    Args:
        name: One of `CODECS`.
        part: `KEYS` or `VALUES`.
        slices: `[N, H, P, D]` bfloat16, float16 or float32; any strides, any device.

    Returns:
        `[N, coded_bytes]` uint8, contiguous.

    Raises:
        ValueError: A value is not finite, or beyond what its group can give back in the dtype.
    """
    count, heads, tokens, dim = slices.shape
    how = coded_slice(name, part, (heads, tokens, dim), slices.dtype)
    if how is None:
        return slices.contiguous().view(count, heads * tokens * dim).view(torch.uint8)
    coded = torch.empty((count, how.num_bytes), dtype=torch.uint8, device=slices.device)
    codes, ends = coded[:, : how.code_bytes], (how.code_bytes, how.code_bytes + how.scale_bytes)
    scales = coded.new_empty((count, *how.scale_shape), dtype=torch.float32)
    zeros = torch.zeros_like(scales) if how.is_packed else None
    at_once = _slices_at_once(how)
    scratch = _Scratch(how, min(at_once, count), slices.device)
    for first in range(0, count, at_once):
        end = min(first + at_once, count)
        wide = scratch.wide[: end - first].copy_(slices[first:end])
        _divide(how, wide, scales[first:end], None if zeros is None else zeros[first:end])
        _narrow(how, wide, codes[first:end], scratch)
    _require_range(how, scales, zeros, slices.dtype)
    _put_numbers(how, scales, coded, ends[0])
    if zeros is not None:
        _put_numbers(how, zeros, coded, ends[1])
    return coded


def decode(
    name: str,
    part: int,
    coded: Tensor,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """Give page slices back.

    Args:
        name: One of `CODECS`.
        part: `KEYS` or `VALUES`.
        coded: `[N, coded_bytes]` uint8, each row contiguous.
        shape: `(H, P, D)`.
        dtype: Of the KV that was coded, and of the result.
        out: Takes the result, `[N, H, P, D]` of that dtype, if given; any strides.

    Returns:
        `[N, H, P, D]`; `out` if given.

    Raises:
        ValueError: As for `coded_slice`.
    """
    count = len(coded)
    if out is None:
        out = torch.empty((count, *shape), dtype=dtype, device=coded.device)
    how = coded_slice(name, part, shape, dtype)
    if how is None:
        return out.copy_(coded.contiguous().view(dtype).view(count, *shape))
    numbers = _numbers(how, coded)
    scales, zeros = numbers[:, 0], numbers[:, 1] if how.is_packed else None
    if how.scheme == "fp8":
        scales.mul_(256.0)
    at_once = _slices_at_once(how)
    scratch = _Scratch(how, min(at_once, count), coded.device)
    for first in range(0, count, at_once):
        end = min(first + at_once, count)
        wide = scratch.wide[: end - first]
        _widen(how, coded[first:end, : how.code_bytes], wide, scratch)
        groups = wide.view(len(wide), *how.grouped).mul_(scales[first:end])
        if zeros is not None:
            groups.add_(zeros[first:end])
        out[first:end].copy_(wide)
    return out


class _Scratch:
    """Memory of one piece, used for all of a run: fresh pages cost more than the arithmetic."""

    def __init__(self, how: CodedSlice, count: int, device: torch.device) -> None:
        self.wide = torch.empty((count, *how.shape), dtype=torch.float32, device=device)
        kind = torch.int16 if how.scheme == "fp8" else torch.uint8
        count = 0 if how.scheme == "int8" else count
        self.codes = torch.empty((count, *how.shape), dtype=kind, device=device)


def _slices_at_once(how: CodedSlice) -> int:
    return max(1, PIECE // math.prod(how.shape))


def _divide(how: CodedSlice, wide: Tensor, scales: Tensor, zeros: Tensor | None) -> None:
    """Choose scales and zeros, rounded, and divide fp32 slices by them in place."""
    groups = wide.view(len(wide), *how.grouped)
    high = groups.amax(how.group_axis, keepdim=True)
    low = groups.amin(how.group_axis, keepdim=True)
    if zeros is None:
        high = torch.maximum(high, low.neg_()).abs_()  # of two zeros the same one always
    else:
        high.sub_(low)
        zeros.copy_(low.add_(0.0).to(how.scale_dtype))
        groups.sub_(zeros)
    scales.copy_(high.div_(LIMITS[how.scheme]).to(how.scale_dtype))
    # Divided by infinity a group of equal values has codes 0, which scale 0 gives back as they are.
    groups.div_(scales.masked_fill(scales == 0, float("inf")))


def _narrow(how: CodedSlice, wide: Tensor, codes: Tensor, scratch: _Scratch) -> None:
    """Round to codes, `[N, code_bytes]` uint8; `wide` is changed."""
    heads, tokens, dim = how.shape
    limit = LIMITS[how.scheme]
    if how.scheme == "fp8":
        bits = wide.clamp_(-limit, limit).to(torch.float8_e4m3fn).view(torch.uint8)
        codes.view(wide.shape).copy_(bits)
    elif how.scheme == "int8":
        codes.view(torch.int8).view(wide.shape).copy_(wide.round_().clamp_(-limit, limit))
    else:
        room = scratch.codes[: len(wide)]
        # As int8, for the CPU narrows fp32 to uint8 one by one.
        room.view(torch.int8).copy_(wide.round_().clamp_(0, limit))
        packed = codes.view(len(codes), heads, tokens, dim // 2)
        torch.add(room[..., : dim // 2], room[..., dim // 2 :], alpha=16, out=packed)


def _require_range(
    how: CodedSlice, scales: Tensor, zeros: Tensor | None, dtype: torch.dtype
) -> None:
    """Refuse groups whose largest code gives no number; what is none shows in scale or zero."""
    if not len(scales):
        return
    largest = scales * LIMITS[how.scheme]
    if zeros is not None:
        largest.add_(zeros)
    if not math.isfinite(largest.to(dtype).float().abs_().amax()):
        raise ValueError("keys or values are not finite, or beyond the range of their scales")


def _put_numbers(how: CodedSlice, numbers: Tensor, coded: Tensor, begin: int) -> None:
    rows = numbers.to(how.scale_dtype).view(len(coded), math.prod(how.scale_shape))
    coded[:, begin : begin + how.scale_bytes] = rows.view(torch.uint8)


def _numbers(how: CodedSlice, coded: Tensor) -> Tensor:
    """Scales and zeros in fp32, `[N, 1 or 2, *scale_shape]`; copied, for they may lie anywhere."""
    flat = coded[:, how.code_bytes :].clone(memory_format=torch.contiguous_format)
    kinds = 2 if how.is_packed else 1
    return flat.view(how.scale_dtype).float().view(len(coded), kinds, *how.scale_shape)


def _widen(how: CodedSlice, codes: Tensor, wide: Tensor, scratch: _Scratch) -> None:
    """Codes of some slices, `[N, code_bytes]` uint8, as fp32 numbers; of `fp8` a 256th of them."""
    heads, tokens, dim = how.shape
    if how.scheme == "int8":
        wide.copy_(codes.view(torch.int8).view(wide.shape))
        return
    room = scratch.codes[: len(codes)]
    if how.scheme == "fp8":
        # The bits of e4m3 are those of a float16 that is 256 times smaller, subnormals included.
        room.copy_(codes.view(torch.int8).view(wide.shape)).mul_(128).bitwise_and_(_SIGN_FROM_INT8)
        wide.copy_(room.view(torch.float16))
        return
    packed = codes.view(len(codes), heads, tokens, dim // 2)
    wide.copy_(torch.cat((packed & 15, packed >> 4), dim=-1, out=room))
