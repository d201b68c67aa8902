"""What a codec is: page slices to bytes of a fixed size and back.

Owns the face that the engine sees. How slices are coded is the kernels'; where the bytes lie is the
session file's. Knows no tiers and no files.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import ConfigError
from engine.types import CodedSizes, KVGeometry, Part
from kernels import quantize


@dataclass(frozen=True, slots=True)
class Codec:
    """One way to code pages at rest."""

    name: str
    """As in a session's identity and in `--kv-dtype`."""

    def sizes(self, geometry: KVGeometry) -> CodedSizes | None:
        """Bytes of a coded page slice of each half; None if it is raw.

        Raises:
            ConfigError: Pages of this shape cannot be coded so.
        """
        shape, dtype = _slice_of(geometry)
        try:
            keys, values = (
                quantize.coded_bytes(self.name, part, shape, dtype)
                for part in (quantize.KEYS, quantize.VALUES)
            )
        except ValueError as error:
            raise ConfigError(str(error), "Take another --kv-dtype for this model.") from error
        return None if self.name == "raw" else CodedSizes(keys, values)

    def encode(self, part: Part, pages: Tensor) -> Tensor:
        """Code page slices.

        Args:
            part: Keys or values.
            pages: `[N, num_kv_heads, page_tokens, head_dim]`, position-free.

        Returns:
            `[N, coded bytes]` uint8, contiguous; the same of a slice whatever stands beside it.

        Raises:
            ValueError: A value is not finite, or beyond what the codec can give back.
        """
        with torch.inference_mode():  # a fifth less time for what is so short
            return quantize.encode(self.name, int(part), pages)

    def decode(self, part: Part, coded: Tensor, out: Tensor) -> None:
        """Give page slices back.

        Args:
            part: Keys or values.
            coded: `[N, coded bytes]` uint8.
            out: Takes them, `[N, num_kv_heads, page_tokens, head_dim]` in the KV's dtype.
        """
        heads, tokens, dim = out.shape[1:]
        with torch.inference_mode():
            quantize.decode(self.name, int(part), coded, (heads, tokens, dim), out.dtype, out)


def _slice_of(geometry: KVGeometry) -> tuple[tuple[int, int, int], torch.dtype]:
    shape = (geometry.num_kv_heads, geometry.page_tokens, geometry.head_dim)
    return shape, getattr(torch, geometry.dtype)
