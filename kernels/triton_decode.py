"""Triton kernels that give coded pages back, in place and rotated on the way if they are keys.

Owns promotion of coded pages in one pass: codes are read once, keys turned by their positions, and
rows of the arena written once. To the bits of decoding (`quantize.py`) and then rotating
(`reference_pages.py`): a key is rounded to the dtype of the KV in between. Bound by memory; a
program does `TOKENS` tokens of up to four heads, for the reason told in `triton_moves.py`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.quantize import KEYS, VALUES, coded_slice
from kernels.reference_pages import Rotation
from kernels.triton_codecs import CodedViews, decoded, views_of
from kernels.triton_moves import TOKENS, heads_together
from kernels.triton_numbers import narrow, widen


@triton.jit
def _decode_plain(
    codes, scales, zeros, target, begin, end, rows, seen, to_head, first_head,
    FIRST: tl.constexpr, WIDE: tl.constexpr, HEADS: tl.constexpr, SCHEME: tl.constexpr,
    IS_KEYS: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Channels `FIRST .. DIM - 1` of some tokens of a page; `begin` and `end` are its offsets."""
    dims = FIRST + tl.arange(0, WIDE)
    mask = seen[:, None] & (dims < DIM)[None, :]
    for number in tl.static_range(HEADS):
        head = first_head + number
        x = decoded(
            codes + begin[0], scales + begin[1], zeros if zeros is None else zeros + begin[1],
            head, rows, dims, mask, target.dtype.element_ty, SCHEME, IS_KEYS, PAGE, DIM, GROUP,
        )  # fmt: skip
        tl.store(target + head * to_head + end[:, None] + dims[None, :], x, mask=mask)


@triton.jit
def _decode_one(
    codes, scales, zeros, target, code_page, scale_page, to_page, to_head, to_token,
    WIDE: tl.constexpr, HEADS: tl.constexpr, SCHEME: tl.constexpr, IS_KEYS: tl.constexpr,
    PAGE: tl.constexpr, DIM: tl.constexpr, GROUP: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Program (block of tokens of a page, group of heads), one half of the KV."""
    blocks: tl.constexpr = (PAGE + TOKENS - 1) // TOKENS
    page = (tl.program_id(0) // blocks).to(tl.int64)
    rows = (tl.program_id(0) % blocks).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    _decode_plain(
        codes, scales, zeros, target, (page * code_page, page * scale_page),
        page * to_page + rows * to_token, rows, rows < PAGE, to_head,
        tl.program_id(1).to(tl.int64) * HEADS,
        0, WIDE, HEADS, SCHEME, IS_KEYS, PAGE, DIM, GROUP,
    )  # fmt: skip


@triton.jit
def _decode_pair(
    key_codes, key_scales, key_zeros, value_codes, value_scales, value_zeros,
    into_keys, into_values, cos, sin, starts, slots,
    key_page, key_scale_page, value_page, value_scale_page,
    to_key_head, to_key_token, to_value_head, to_value_token, table_row,
    HALF: tl.constexpr, WIDE: tl.constexpr, WIDE_HALF: tl.constexpr, WIDE_REST: tl.constexpr,
    HEADS: tl.constexpr, KEY_SCHEME: tl.constexpr, VALUE_SCHEME: tl.constexpr,
    PAGE: tl.constexpr, DIM: tl.constexpr, KEY_GROUP: tl.constexpr, VALUE_GROUP: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    """Program (block of tokens of a page, group of heads, half of the KV)."""
    blocks: tl.constexpr = (PAGE + TOKENS - 1) // TOKENS
    page = (tl.program_id(0) // blocks).to(tl.int64)
    rows = (tl.program_id(0) % blocks).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    first_head = tl.program_id(1).to(tl.int64) * HEADS
    seen = rows < PAGE
    slot = page
    if slots is not None:
        slot = tl.load(slots + page).to(tl.int64)
    if tl.program_id(2) == 1:
        _decode_plain(
            value_codes, value_scales, value_zeros, into_values,
            (page * value_page, page * value_scale_page), (slot * PAGE + rows) * to_value_token,
            rows, seen, to_value_head, first_head,
            0, WIDE, HEADS, VALUE_SCHEME, False, PAGE, DIM, VALUE_GROUP,
        )  # fmt: skip
    else:
        start = page * PAGE
        if starts is not None:
            start = tl.load(starts + page).to(tl.int64)
        begin = (page * key_page, page * key_scale_page)
        end = (slot * PAGE + rows) * to_key_token
        dims = tl.arange(0, WIDE_HALF)
        mask = seen[:, None] & (dims < HALF)[None, :]
        angles = (start + rows)[:, None] * table_row + dims[None, :]
        c = tl.load(cos + angles, mask=mask, other=0.0)
        s = tl.load(sin + angles, mask=mask, other=0.0)
        dtype: tl.constexpr = into_keys.dtype.element_ty
        codes, scales = key_codes + begin[0], key_scales + begin[1]
        zeros = key_zeros if key_zeros is None else key_zeros + begin[1]
        for number in tl.static_range(HEADS):
            head = first_head + number
            x = widen(decoded(
                codes, scales, zeros, head, rows, dims, mask,
                dtype, KEY_SCHEME, True, PAGE, DIM, KEY_GROUP,
            ))  # fmt: skip
            y = widen(decoded(
                codes, scales, zeros, head, rows, dims + HALF, mask,
                dtype, KEY_SCHEME, True, PAGE, DIM, KEY_GROUP,
            ))  # fmt: skip
            target = into_keys + head * to_key_head + end[:, None] + dims[None, :]
            # Compiled without fused multiply-add: rounded after each step, as torch does it.
            tl.store(target, narrow(x * c - y * s, dtype), mask=mask)
            tl.store(target + HALF, narrow(y * c + x * s, dtype), mask=mask)
        if 2 * HALF < DIM:
            _decode_plain(
                key_codes, key_scales, key_zeros, into_keys, begin, end, rows, seen, to_key_head,
                first_head, 2 * HALF, WIDE_REST, HEADS, KEY_SCHEME, True, PAGE, DIM, KEY_GROUP,
            )  # fmt: skip


def decode(
    name: str,
    part: int,
    coded: Tensor,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """As `kernels.quantize.decode`, for every codec but `raw`."""
    if out is None:
        out = torch.empty((len(coded), *shape), dtype=dtype, device=coded.device)
    how = coded_slice(name, part, shape, dtype)
    assert how is not None and out.dtype == dtype and out.stride(-1) == 1
    views = views_of(how, coded)
    heads, page_tokens, head_dim = shape
    together = heads_together(heads)
    if not len(coded):
        return out
    with torch.cuda.device_of(coded):
        _decode_one[len(coded) * triton.cdiv(page_tokens, TOKENS), heads // together](
            *views[1:], out, coded.stride(0), views.scales.stride(0), *out.stride()[:3],
            WIDE=triton.next_power_of_2(head_dim), HEADS=together, SCHEME=how.scheme,
            IS_KEYS=part == KEYS, PAGE=page_tokens, DIM=head_dim, GROUP=views.group,
            TOKENS=TOKENS, num_warps=4,
        )  # fmt: skip
    return out


def gather_coded(
    name: str,
    keys: Tensor,
    values: Tensor,
    into_keys: Tensor,
    into_values: Tensor,
    *,
    page_tokens: int,
    rotation: Rotation,
    slots: Tensor | None = None,
    starts: Tensor | None = None,
) -> None:
    """As `kernels.reference_coded.gather_coded`, for every codec but `raw`."""
    cos, sin = rotation
    heads, _, head_dim = into_keys.shape
    shape, half, together = (heads, page_tokens, head_dim), cos.shape[-1], heads_together(heads)
    assert all(x.stride(-1) == 1 for x in (keys, values, into_keys, into_values, *rotation))
    assert cos.stride() == sin.stride() and cos.dtype == sin.dtype == torch.float32
    views: list[CodedViews] = []
    for part, coded in ((KEYS, keys), (VALUES, values)):
        how = coded_slice(name, part, shape, into_keys.dtype)
        assert how is not None
        views.append(views_of(how, coded))
    if not len(keys):
        return
    key_views, value_views = views
    with torch.cuda.device_of(keys):
        _decode_pair[len(keys) * triton.cdiv(page_tokens, TOKENS), heads // together, 2](
            *key_views[1:], *value_views[1:], into_keys, into_values, cos, sin, starts, slots,
            keys.stride(0), key_views.scales.stride(0),
            values.stride(0), value_views.scales.stride(0),
            *into_keys.stride()[:2], *into_values.stride()[:2], cos.stride(0),
            HALF=half, WIDE=triton.next_power_of_2(head_dim),
            WIDE_HALF=triton.next_power_of_2(half),
            WIDE_REST=triton.next_power_of_2(max(1, head_dim - 2 * half)), HEADS=together,
            KEY_SCHEME=key_views.how.scheme, VALUE_SCHEME=value_views.how.scheme,
            KEY_GROUP=key_views.group, VALUE_GROUP=value_views.group,
            PAGE=page_tokens, DIM=head_dim, TOKENS=TOKENS, num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
