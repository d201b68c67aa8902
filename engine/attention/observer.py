"""The interface of whoever watches a step attend.

Owns the contract. An observer sees tensors as they pass; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from engine.model.hook import LayerSpec


class Observer(Protocol):
    """Called by `ExactAttention`, layer after layer."""

    def begin_layer(self, layer: int, queries: Tensor) -> None:
        """See a layer's queries, `[num_heads, T, head_dim]`, position-free."""

    def see(
        self, layer: int, queries: Tensor, keys: Tensor, spec: LayerSpec, first_key: int
    ) -> None:
        """See rotated queries meet the rotated keys of one part, which starts at `first_key`."""

    def end_layer(self, layer: int, lse: Tensor) -> None:
        """See the log-sum-exp over everything the layer attended to, `[num_heads, T]` fp32."""


class QueryRecorder:
    """Keeps the position-free queries of some layers.

    Args:
        layers: Layers to keep.

    Attributes:
        queries: By layer, `[num_heads, T, head_dim]`; of the last step only.
    """

    def __init__(self, layers: Sequence[int]) -> None:
        self._layers = frozenset(layers)
        self.queries: dict[int, Tensor] = {}

    def begin_layer(self, layer: int, queries: Tensor) -> None:
        """Keep the queries."""
        if layer in self._layers:
            self.queries[layer] = queries.clone()

    def see(
        self, layer: int, queries: Tensor, keys: Tensor, spec: LayerSpec, first_key: int
    ) -> None:
        """Nothing to keep."""

    def end_layer(self, layer: int, lse: Tensor) -> None:
        """Nothing to keep."""
