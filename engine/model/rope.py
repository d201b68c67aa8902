"""Rotary positions: the frequencies a model was built with, and the rotation by a position.

Owns the tables of cosines and sines and the one rotation used for queries and keys. Knows nothing
of pages or attention. Keys at rest are position-free; they pass through here on their way in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import xxhash
from torch import Tensor, nn

from engine.errors import ModelError
from kernels import pages as page_kernels

MAX_POSITION = 1 << 24
"""Positions are exact below this: fp32 holds every integer up to it."""

CACHED_POSITIONS = 1 << 20
"""Tables grow up to here and are kept; positions beyond are computed anew on each call."""

CPU_CHUNK = 512 * 1024
"""Elements rotated at once on a CPU: few enough to stay in the processor's cache, and many enough
that the operations are few. Each of them gives up the interpreter and has to get it back from the
threads that read meanwhile: in chunks of 32,768 bringing pages up took twice as long."""


@dataclass(frozen=True, slots=True)
class FrequencySet:
    """The rotation of one kind of layer.

    Attributes:
        inverse: fp32 `[rotary_dim / 2]` on the CPU, radians per position.
        scaling: Factor on cosine and sine (YaRN's attention factor), 1 for most models.
    """

    inverse: Tensor
    scaling: float

    @property
    def rotary_dim(self) -> int:
        """Leading dimensions of a head that are rotated; the rest passes through."""
        return 2 * self.inverse.numel()


class _Tables(NamedTuple):
    """Full-width tables, so that one product does both halves: `[c, c]` and `[-s, s]`."""

    cos: Tensor
    sin: Tensor


class Rope:
    """Rotates queries and keys by their positions, with one frequency set per layer type.

    The result for a token depends on its position alone, bit for bit: not on how many tokens are
    rotated together, nor on strides. Every operation used is a single IEEE one for that reason.
    Threads may share an instance.
    """

    def __init__(self, sets: dict[str, FrequencySet], device: torch.device | None = None) -> None:
        """Keep frequency sets by layer type; a model with a single set names it `""`.

        Args:
            sets: At least one set; its order is the order of indices given to `rotate`.
            device: Where `tables` are made when it is not told otherwise.
        """
        assert sets
        self.sets: Sequence[FrequencySet] = tuple(sets.values())
        self.device = device or torch.device("cpu")
        self._index = {name: index for index, name in enumerate(sets)}
        self._tables: dict[tuple[int, torch.device], _Tables] = {}

    def which(self, layer_type: str) -> int:
        """Return the index of the set used by layers of this type."""
        return self._index[layer_type] if len(self._index) > 1 else 0

    @property
    def fingerprint(self) -> str:
        """Digest of everything that decides a rotation; equal for equal rotations only."""
        digest = xxhash.xxh3_128()
        for name, index in self._index.items():
            chosen = self.sets[index]
            digest.update(f"{name}:{chosen.rotary_dim}:{chosen.scaling!r};".encode())
            digest.update(chosen.inverse.numpy().tobytes())
        return digest.hexdigest()

    def table_bytes(self, positions: int) -> int:
        """Bytes of tables kept for positions `0 .. positions - 1` on one device."""
        kept = _grown(min(positions, CACHED_POSITIONS))
        return sum(kept * chosen.rotary_dim * 4 * 2 for chosen in self.sets)

    def tables(
        self,
        positions_first: int,
        count: int,
        which: int,
        device: torch.device | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of `count` consecutive positions.

        Args:
            positions_first: The first position.
            count: How many positions.
            which: Index of the frequency set.
            device: Defaults to the device given at construction.

        Returns:
            Two fp32 views `[count, rotary_dim / 2]`, scaling included. Do not write to them.
        """
        cos, sin = self._full(positions_first, count, which, device or self.device)
        half = self.sets[which].rotary_dim // 2
        return cos[:, :half], sin[:, half:]

    def rotate(
        self, x: Tensor, first_position: int, which: int, out: Tensor | None = None
    ) -> Tensor:
        """Rotate consecutive tokens, the first of which stands at `first_position`.

        Args:
            x: `[heads, T, D]`, or `[heads, pages, T, D]` with the tokens of neighbouring pages in
                order; any strides and any floating dtype; computed in fp32.
            first_position: Position of the first token.
            which: Index of the frequency set.
            out: Where to write, same shape and dtype, any strides; may be `x` itself.

        Returns:
            `out`, or a new contiguous tensor like `x`.
        """
        heads, *tokens, head_dim = x.shape
        width = self.sets[which].rotary_dim
        if out is None:
            out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if page_kernels.by_triton(x.device):
            turns = self.tables(first_position, math.prod(tokens), which, x.device)
            page_kernels.page_ops(x.device).rotate_into(x, out, turns)
            return out
        if width < head_dim:
            out[..., width:].copy_(x[..., width:])
        tables = self._full(first_position, math.prod(tokens), which, x.device)
        cos, sin = (table.view(*tokens, width) for table in tables)
        row = heads * math.prod(tokens[1:]) * width
        step = max(1, CPU_CHUNK // row) if x.device.type == "cpu" else tokens[0]
        if tokens[0] <= step and width == head_dim:
            _turn(x, cos, sin, out)
            return out
        for start in range(0, tokens[0], step):
            rows = slice(start, start + step)
            _turn(x[:, rows, ..., :width], cos[rows], sin[rows], out[:, rows, ..., :width])
        return out

    def _full(self, first: int, count: int, which: int, device: torch.device) -> _Tables:
        """Return full-width tables of a range, from the kept ones where they reach."""
        end = first + count
        assert first >= 0 and end <= MAX_POSITION
        if end > CACHED_POSITIONS:
            return _compute(self.sets[which], first, end, device)
        kept = self._tables.get((which, device))
        if kept is None or kept.cos.shape[0] < end:
            # Two threads may both grow; either result is right, and the last one stays.
            kept = _compute(self.sets[which], 0, _grown(end), device)
            self._tables[which, device] = kept
        return _Tables(kept.cos[first:end], kept.sin[first:end])


def frequency_sets(rotary: nn.Module) -> dict[str, FrequencySet]:
    """Read the frequency sets of a transformers rotary module.

    Args:
        rotary: A module with `inv_freq` and `attention_scaling`, or with one such pair for each
            layer type, prefixed by its name.

    Raises:
        ModelError: The module has no frequencies.
    """
    found = {
        name.removesuffix("inv_freq").removesuffix("_"): buffer
        for name, buffer in rotary.named_buffers(recurse=False)
        if name.endswith("inv_freq") and not name.endswith("original_inv_freq")
    }
    if not found:
        raise ModelError(f"{type(rotary).__name__} holds no rotary frequencies")
    return {
        name: FrequencySet(
            buffer.detach().to("cpu", torch.float32, copy=True),
            float(getattr(rotary, f"{name}_attention_scaling" if name else "attention_scaling", 1)),
        )
        for name, buffer in sorted(found.items())
    }


def _turn(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> None:
    """Rotate all of the last dimension into `out`, which may be `x`."""
    turned = x.to(torch.float32, copy=True)
    crossed = torch.roll(turned, x.shape[-1] // 2, -1)
    out.copy_(turned.mul_(cos).add_(crossed.mul_(sin)))


def _grown(positions: int) -> int:
    """Round up to a power of two of at least 1,024, so that growing is rare."""
    return max(1024, 1 << (positions - 1).bit_length())


def _compute(chosen: FrequencySet, first: int, end: int, device: torch.device) -> _Tables:
    """Compute tables of `first .. end - 1`; angles in fp64, because they grow with the position."""
    positions = torch.arange(first, end, dtype=torch.float64)
    angles = positions[:, None] * chosen.inverse.to(torch.float64)
    cos = (angles.cos() * chosen.scaling).to(torch.float32)
    sin = (angles.sin() * chosen.scaling).to(torch.float32)
    return _Tables(torch.cat((cos, cos), 1).to(device), torch.cat((-sin, sin), 1).to(device))
