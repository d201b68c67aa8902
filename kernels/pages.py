"""Moving pages and coding them: the implementation is chosen here, by device.

Owns the choice. `page_ops` gives the functions of `reference_pages.py` by the fastest
implementation for a device; both have the same bits, so results do not change with it.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from kernels import quantize, reference_coded, reference_pages
from kernels.choice import by_triton as by_triton
from kernels.reference_pages import Rotation


def page_ops(device: torch.device) -> ModuleType:
    """Give the functions of `kernels.reference_pages` for tensors of a device."""
    if not by_triton(device):
        return reference_pages
    from kernels import triton_pages  # takes 0.5 s, which only its users shall wait for

    return triton_pages


def encode(name: str, part: int, slices: Tensor) -> Tensor:
    """As `kernels.quantize.encode`."""
    if not by_triton(slices.device) or not _is_kernels(name, slices.shape[-1]):
        return quantize.encode(name, part, slices)
    from kernels import triton_encode

    return triton_encode.encode(name, part, slices)


def decode(
    name: str,
    part: int,
    coded: Tensor,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """As `kernels.quantize.decode`."""
    if not by_triton(coded.device) or not _is_kernels(name, shape[2], coded):
        return quantize.decode(name, part, coded, shape, dtype, out)
    from kernels import triton_decode

    return triton_decode.decode(name, part, coded, shape, dtype, out)


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
    """As `kernels.reference_coded.gather_coded`."""
    gather = reference_coded.gather_coded
    if by_triton(keys.device) and _is_kernels(name, into_keys.shape[-1], keys, values):
        from kernels import triton_decode

        gather = triton_decode.gather_coded
    gather(
        name, keys, values, into_keys, into_values, page_tokens=page_tokens, rotation=rotation,
        slots=slots, starts=starts,
    )  # fmt: skip


def _is_kernels(name: str, head_dim: int, *coded: Tensor) -> bool:
    """Whether the kernels read such slices: scales at even addresses, channels in two halves."""
    even = all((x.data_ptr() | x.stride(0)) % 2 == 0 for x in coded)
    return name != "raw" and head_dim % 2 == 0 and even
