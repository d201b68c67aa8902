"""KV that is no number is neither kept nor served.

Owns the test of bytes and what is said of those that fail. A model that overflows, or a device that
computes nonsense, would otherwise fill a session with pages that spoil every later answer, under
checksums that hold.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engine.errors import NonFiniteKV, PageCorrupt
from engine.types import Part

_BITS = {
    "bfloat16": (np.int16, 0x7F80, np.uint16, 0xFF80),
    "float16": (np.int16, 0x7C00, np.uint16, 0xFC00),
    "float32": (np.int32, 0x7F800000, np.uint32, 0xFF800000),
}
"""Of each dtype the bits of infinity, read with a sign, and those of minus infinity, read without:
what is no number is one of them or above."""


def is_finite(data: memoryview, dtype: str) -> bool:
    """Whether all elements are numbers: two largest values of their bits, and no copy of them.

    Args:
        data: Whole elements, at least one.
        dtype: "bfloat16", "float16" or "float32".
    """
    signed, infinity, unsigned, minus_infinity = _BITS[dtype]
    bits = np.frombuffer(data, signed)
    return bool(bits.max() < infinity and bits.view(unsigned).max() < minus_infinity)


def require_finite_to_keep(data: memoryview, dtype: str, where: str) -> None:
    """Refuse to keep KV that is no number.

    Args:
        data: As for `is_finite`.
        dtype: As for `is_finite`.
        where: Which KV it is, for the message.

    Raises:
        NonFiniteKV: It is not.
    """
    if not is_finite(data, dtype):
        raise NonFiniteKV(
            f"the model computed {where} that are not numbers; they are not kept",
            "Try another --model or --device; what was committed before is kept.",
        )


def require_finite_to_serve(data: memoryview, dtype: str, where: str) -> None:
    """Refuse KV that was kept although it is no number.

    Args:
        data: As for `is_finite`.
        dtype: As for `is_finite`.
        where: Which KV it is and of which file, for the message.

    Raises:
        PageCorrupt: It is not.
    """
    if not is_finite(data, dtype):
        raise PageCorrupt(
            f"{where}: not numbers, although the checksums hold",
            "The pages are not used; ingest the documents again.",
        )


def place(path: Path, first_page: int, part: Part, layer: int) -> str:
    """Say where neighbouring page slices of a file lie."""
    return f"{path}: from page {first_page} on, layer {layer}, {part.name.lower()}"
