"""Keeps position-free queries and keys of the layers that look things up.

Owns the queries of one question or answer, and the queries and keys of one step. Which layers is
the model's fact; scoring pages by them is `probe`'s and `sketch`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class QueryRecorder:
    """Keeps the position-free queries of some layers, over as many steps as it is given to.

    Args:
        layers: Layers to keep.
    """

    def __init__(self, layers: Sequence[int]) -> None:
        self._kept: dict[int, list[Tensor]] = {layer: [] for layer in layers}

    def record(self, layer: int, queries: Tensor) -> None:
        """Keep a step's queries, `[num_heads, T, head_dim]`, if the layer is one of those."""
        if layer in self._kept:
            self._kept[layer].append(queries.clone())

    def clear(self) -> None:
        """Forget what was recorded."""
        for kept in self._kept.values():
            kept.clear()

    @property
    def queries(self) -> dict[int, Tensor]:
        """What was recorded, by layer, `[num_heads, tokens, head_dim]`."""
        return {layer: torch.cat(kept, dim=1) for layer, kept in self._kept.items() if kept}


class StepRecorder:
    """Keeps the position-free keys and queries of some layers, of one step.

    Args:
        layers: Layers to keep.
    """

    def __init__(self, layers: Sequence[int]) -> None:
        self._layers = frozenset(layers)
        self.keys: dict[int, Tensor] = {}
        """By layer, `[num_kv_heads, T, head_dim]`."""
        self.queries: dict[int, Tensor] = {}
        """By layer, `[num_heads, T, head_dim]`."""

    def record(self, layer: int, queries: Tensor, keys: Tensor) -> None:
        """Keep what a step asks and is asked, if the layer is one of those."""
        if layer in self._layers:
            self.keys[layer], self.queries[layer] = keys, queries
