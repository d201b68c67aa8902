"""Calls that launch every data-movement kernel, for `compile_all.py`; shapes of Llama 3 8B."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from kernels import triton_decode, triton_encode, triton_pages
from kernels.quantize import KEYS, VALUES, coded_bytes

HEADS, PAGE, PAGES, SLOTS = 8, 64, 32, 1024


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """A tensor without memory: launches need its type and strides alone."""
    return torch.empty(shape, dtype=dtype, device="meta")


def _arena(dim: int, dtype: torch.dtype) -> Tensor:
    return empty(32, 2, HEADS, SLOTS * PAGE, dim, dtype=dtype)


def _rotation(width: int) -> tuple[Tensor, Tensor]:
    """Views into full-width tables, as the engine has them."""
    table = empty(PAGES * PAGE, width, dtype=torch.float32)
    return table[:, : width // 2], table[:, width // 2 :]


def _gather(dim: int, width: int, dtype: torch.dtype = torch.bfloat16) -> None:
    rest = empty(PAGES, 2, HEADS, PAGE, dim, dtype=dtype)
    arena = _arena(dim, dtype)[3]
    triton_pages.gather_pages(
        rest[:, 0], rest[:, 1], arena[0], arena[1], rotation=_rotation(width),
        slots=empty(PAGES, dtype=torch.int64), starts=empty(PAGES, dtype=torch.int64),
    )  # fmt: skip


def _append(dim: int, tokens: int) -> None:
    keys, arena = empty(HEADS, tokens, dim), _arena(dim, torch.bfloat16)[3]
    values = empty(tokens, HEADS, dim).transpose(0, 1)
    cos, sin = _rotation(dim)
    triton_pages.append(
        keys, values, arena[0], arena[1], rotation=(cos[:tokens], sin[:tokens]), page_tokens=PAGE,
        first=5, slots=empty(PAGES + 1, dtype=torch.int64), own=empty(HEADS, tokens, dim),
    )  # fmt: skip


def _copies(dim: int) -> None:
    arena, slots = _arena(dim, torch.bfloat16), empty(PAGES, dtype=torch.int64)
    triton_pages.copy_pages(arena, slots, slots, page_tokens=PAGE)


def _demotion(dim: int) -> None:
    triton_pages.scatter_pages(empty(HEADS, 2048, dim), empty(PAGES, HEADS, PAGE, dim))


def _coded(name: str, dim: int, part: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    num_bytes = coded_bytes(name, part, (HEADS, PAGE, dim), dtype)
    return empty(PAGES, num_bytes, dtype=torch.uint8)


def _promote(name: str, dim: int, width: int) -> None:
    arena = _arena(dim, torch.bfloat16)[3]
    triton_decode.gather_coded(
        name, _coded(name, dim, KEYS), _coded(name, dim, VALUES), arena[0], arena[1],
        page_tokens=PAGE, rotation=_rotation(width), slots=empty(PAGES, dtype=torch.int64),
        starts=empty(PAGES, dtype=torch.int64),
    )  # fmt: skip


def _both_ways(name: str, dim: int, part: int, dtype: torch.dtype = torch.bfloat16) -> None:
    shape = HEADS, PAGE, dim
    slices, coded = empty(PAGES, *shape, dtype=dtype), _coded(name, dim, part, dtype)
    triton_encode.encode_into(name, part, slices, coded, empty(1, dtype=torch.int32))
    triton_decode.decode(name, part, coded, shape, dtype)


CASES: dict[str, Callable[[], object]] = {
    "promotion, head 128": partial(_gather, 128, 128),
    "promotion, head 96 of which 48 turn": partial(_gather, 96, 48),
    "promotion, head 256": partial(_gather, 256, 256),
    "append, head 128, one token": partial(_append, 128, 1),
    "append, head 128": partial(_append, 128, 2048),
    "copy on write, head 128": partial(_copies, 128),
    "demotion, head 128": partial(_demotion, 128),
    "promotion, head 96 of which 48 turn, k8v4": partial(_promote, "k8v4", 96, 48),
    "codec, head 256, int4 values": partial(_both_ways, "int4", 256, VALUES),
    "codec, head 80, int4 keys, fp32": partial(_both_ways, "int4", 80, KEYS, torch.float32),
}
for _name in ("fp8", "int8", "int4"):
    CASES[f"promotion, head 128, {_name}"] = partial(_promote, _name, 128, 128)
    CASES[f"codec, head 128, {_name} keys"] = partial(_both_ways, _name, 128, KEYS)
    CASES[f"codec, head 128, {_name} values"] = partial(_both_ways, _name, 128, VALUES)
