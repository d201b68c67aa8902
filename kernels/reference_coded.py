"""Plain torch: promotion of coded pages, the definition that the Triton kernel is tested against.

Owns nothing but the order: decode to the dtype of the KV, then rotate. Codecs are in `quantize.py`,
placing and rotation in `reference_pages.py`.
"""

from __future__ import annotations

from torch import Tensor

from kernels.quantize import KEYS, VALUES, decode
from kernels.reference_pages import Rotation, gather_pages


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
    """Promote coded pages into an arena: decoded, and keys rotated.

    Args:
        name: One of `kernels.quantize.CODECS`.
        keys: `[N, bytes]` uint8, each row a coded page slice, position-free; N may be 0.
        values: `[N, bytes]` uint8.
        into_keys: Arena `[H, S * P, D]` of the dtype that was coded.
        into_values: Arena `[H, S * P, D]`.
        page_tokens: P.
        rotation: As for `kernels.reference_pages.gather_pages`, and so are `slots` and `starts`.
        slots: int64 `[N]`, distinct, or None.
        starts: int64 `[N]`, or None.

    Raises:
        ValueError: As for `kernels.quantize.decode`.
    """
    heads, _, head_dim = into_keys.shape
    shape, dtype = (heads, page_tokens, head_dim), into_keys.dtype
    gather_pages(
        decode(name, KEYS, keys, shape, dtype),
        decode(name, VALUES, values, shape, dtype),
        into_keys,
        into_values,
        rotation=rotation,
        slots=slots,
        starts=starts,
    )
