"""Moving pages by Triton: the operations of `reference_pages.py`.

Owns how the tensors of each are seen as tokens in pages; `triton_moves.py` has the kernels.
"""

from __future__ import annotations

import math

from torch import Tensor

from kernels.reference_pages import Rotation
from kernels.triton_moves import TOKENS, flat, launch, launch_pair, paged


def append(
    keys: Tensor,
    values: Tensor,
    into_keys: Tensor,
    into_values: Tensor,
    *,
    rotation: Rotation,
    page_tokens: int,
    first: int = 0,
    slots: Tensor | None = None,
    own: Tensor | None = None,
) -> None:
    """As `kernels.reference_pages.append`."""
    num_tokens = keys.shape[1]
    layouts = [flat(x, page_tokens) for x in (keys, values, into_keys, into_values)]
    launch_pair(
        keys, values, into_keys, into_values, layouts, rotation, None, slots, own,
        page_tokens, num_tokens, first,
    )  # fmt: skip


def gather_pages(
    keys: Tensor,
    values: Tensor,
    into_keys: Tensor,
    into_values: Tensor,
    *,
    rotation: Rotation,
    slots: Tensor | None = None,
    starts: Tensor | None = None,
) -> None:
    """As `kernels.reference_pages.gather_pages`."""
    num_pages, _, page_tokens, _ = keys.shape
    layouts = [paged(keys), paged(values)]
    layouts += [flat(x, page_tokens) for x in (into_keys, into_values)]
    launch_pair(
        keys, values, into_keys, into_values, layouts, rotation, starts, slots, None,
        page_tokens, num_pages * page_tokens, 0,
    )  # fmt: skip


def rotate_into(x: Tensor, out: Tensor, rotation: Rotation) -> None:
    """As `kernels.reference_pages.rotate_into`."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    tokens, page_tokens = math.prod(x.shape[1:-1]), x.shape[2]
    if x.dim() == 3:
        page_tokens = TOKENS  # a constant of the kernel: of any length, but always the same
        layouts = [flat(x, page_tokens), flat(out, page_tokens)]
    else:
        layouts = [(y.stride(1), y.stride(0), y.stride(2)) for y in (x, out)]
    launch_pair(
        x, None, out, None, [layouts[0], layouts[0], layouts[1], layouts[1]], rotation,
        None, None, None, page_tokens, tokens, 0,
    )  # fmt: skip


def place_pages(pages: Tensor, arena: Tensor, *, slots: Tensor | None = None) -> None:
    """As `kernels.reference_pages.place_pages`."""
    num_pages, _, page_tokens, _ = pages.shape
    launch(
        pages, arena, num_pages * page_tokens, page_tokens,
        paged(pages), flat(arena, page_tokens), targets=slots,
    )  # fmt: skip


def scatter_pages(x: Tensor, pages: Tensor, *, first: int = 0) -> None:
    """As `kernels.reference_pages.scatter_pages`."""
    page_tokens = pages.shape[2]
    launch(
        x, pages, x.shape[1], page_tokens, flat(x, page_tokens), paged(pages),
        target_first=first,
    )  # fmt: skip


def copy_pages(arena: Tensor, sources: Tensor, targets: Tensor, *, page_tokens: int) -> None:
    """As `kernels.reference_pages.copy_pages`."""
    rows = arena.view(-1, *arena.shape[-2:])
    layout = flat(rows, page_tokens)
    launch(
        rows, rows, sources.numel() * page_tokens, page_tokens, layout, layout,
        sources=sources, targets=targets,
    )  # fmt: skip
