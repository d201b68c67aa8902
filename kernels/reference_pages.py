"""Plain torch: how pages move, the definition that the Triton kernels are tested against.

Owns the placing of tokens in page slots and the rotation on the way. Knows nothing of tiers, plans
or codecs. A *page* is `[H, P, D]` (KV heads, page_tokens, head_dim); an *arena* is `[H, S * P, D]`,
in which slot s holds tokens `s * P .. s * P + P - 1`, any strides but dense along D.
"""

from __future__ import annotations

import torch
from torch import Tensor

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines, fp32 `[R, rotary_dim / 2]`, as `engine.model.rope.Rope.tables` gives them."""


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate tokens by the rows of a table (RoPE, arXiv 2104.09864), pairing c with c + W / 2.

    Args:
        x: `[..., T, D]`, any floating dtype.
        rotation: Rows for each token, `[..., T, W / 2]` with leading dimensions that broadcast;
            dimensions from W on pass through (partial rotary, as in Phi-3).

    Returns:
        Like `x`, rounded once from fp32. Two products and one sum, each rounded: no fused
        multiply-add, so that every implementation has the same bits.
    """
    cos, sin = rotation
    half = cos.shape[-1]
    wide = x[..., : 2 * half].float()
    first, second = wide[..., :half], wide[..., half:]
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return torch.cat((turned.to(x.dtype), x[..., 2 * half :]), dim=-1)


def rotate_into(x: Tensor, out: Tensor, rotation: Rotation) -> None:
    """Rotate consecutive tokens.

    Args:
        x: `[H, T, D]`, or `[H, N, P, D]` with the tokens of neighbouring pages in order.
        out: Takes the result; same shape and dtype, any strides; may be `x` itself.
        rotation: Tables whose row i is for token i.
    """
    cos, sin = (table.reshape(*x.shape[1:-1], table.shape[-1]) for table in rotation)
    out.copy_(rotate(x, (cos, sin)))


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
    """Write a step's tokens into an arena, keys rotated.

    Token i goes to row `(first + i) % P` of slot `slots[(first + i) // P]`.

    Args:
        keys: `[H, T, D]`, position-free; T may be 0.
        values: `[H, T, D]`.
        into_keys: Arena `[H, S * P, D]` of the keys' dtype.
        into_values: Arena `[H, S * P, D]`.
        rotation: Tables whose row i is for token i.
        page_tokens: P.
        first: Row of the first token, counted from the start of `slots[0]`.
        slots: int64 `[ceil((first + T) / P)]`; a negative slot means that its tokens are not
            written. None is slot i at index i.
        own: `[H, T, D]` to be filled with the rotated keys as well, if given.
    """
    turned = rotate(keys, rotation)
    if own is not None:
        own.copy_(turned)
    tokens, rows = _rows(keys.shape[1], first, page_tokens, slots, keys.device)
    into_keys[:, rows] = turned[:, tokens]
    into_values[:, rows] = values[:, tokens]


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
    """Promote pages at rest into an arena: keys rotated, values copied.

    Args:
        keys: `[N, H, P, D]`, position-free; N may be 0.
        values: `[N, H, P, D]`.
        into_keys: Arena `[H, S * P, D]` of the same dtype.
        into_values: Arena `[H, S * P, D]`.
        rotation: Tables of positions.
        slots: int64 `[N]`, distinct, the slot of each page; None is page i at slot i.
        starts: int64 `[N]`, the row of the tables for the first token of each page; None is
            `i * P` for page i, a run of neighbouring pages.
    """
    num_pages, _, page_tokens, _ = keys.shape
    tokens = torch.arange(page_tokens, device=keys.device)
    first_rows = (
        torch.arange(num_pages, device=keys.device) * page_tokens if starts is None else starts
    )
    rows = (first_rows[:, None] + tokens).flatten()
    cos, sin = (table[rows].view(num_pages, 1, page_tokens, table.shape[-1]) for table in rotation)
    place_pages(rotate(keys, (cos, sin)), into_keys, slots=slots)
    place_pages(values, into_values, slots=slots)


def place_pages(pages: Tensor, arena: Tensor, *, slots: Tensor | None = None) -> None:
    """Copy pages `[N, H, P, D]` into the slots of an arena `[H, S * P, D]`, as they are."""
    num_pages, _, page_tokens, _ = pages.shape
    tokens = torch.arange(page_tokens, device=pages.device)
    slot_ids = torch.arange(num_pages, device=pages.device) if slots is None else slots
    rows = (slot_ids[:, None] * page_tokens + tokens).flatten()
    arena[:, rows] = pages.transpose(0, 1).flatten(1, 2)


def scatter_pages(x: Tensor, pages: Tensor, *, first: int = 0) -> None:
    """Demote a step's tokens to pages at rest, as they come from the model.

    Keys must be position-free here: rotating them back would not give the bits they had.

    Args:
        x: `[H, T, D]`; T may be 0.
        pages: `[N, H, P, D]`, written from row `first` of page 0 on; what lies before and after
            is left alone.
        first: Row of the first token, counted over all pages.
    """
    page_tokens = pages.shape[2]
    at = torch.arange(x.shape[1], device=x.device) + first
    pages[at // page_tokens, :, at % page_tokens] = x.transpose(0, 1)


def copy_pages(arena: Tensor, sources: Tensor, targets: Tensor, *, page_tokens: int) -> None:
    """Copy pages within an arena (copy on write), every layer and both halves at once.

    Args:
        arena: `[..., S * P, D]`.
        sources: int64 `[N]`, slots to copy; may repeat.
        targets: int64 `[N]`, distinct slots, none of which is a source.
        page_tokens: P.
    """
    tokens = torch.arange(page_tokens, device=arena.device)
    begin, end = ((slots[:, None] * page_tokens + tokens).flatten() for slots in (sources, targets))
    arena[..., end, :] = arena[..., begin, :]


def _rows(
    num_tokens: int, first: int, page_tokens: int, slots: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Indices of the tokens that are written, and their rows in the arena."""
    tokens = torch.arange(num_tokens, device=device)
    at = tokens + first
    if slots is None:
        return tokens, at
    page = slots[at // page_tokens]
    kept = page >= 0
    return tokens[kept], (page * page_tokens + at % page_tokens)[kept]
