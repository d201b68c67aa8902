"""Attention mass per page: which pages an answer was read from.

Owns the sums behind citations. A page's mass is the softmax weight of its tokens, summed over query
tokens, heads and the observed layers. Knows pages by their index in the sequence only.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from engine.model.hook import LayerSpec
from kernels.attention import page_lse


class MassObserver:
    """Sums attention mass per page over the steps it watches.

    Args:
        layers: Layers to observe; observing costs about as much as their score product.
        page_tokens: Tokens per page.
        num_pages: Pages to account for, from the start of the sequence.
        last_queries: How many of a step's last tokens count.
    """

    def __init__(
        self, layers: Collection[int], page_tokens: int, num_pages: int, last_queries: int = 1
    ) -> None:
        self._layers = frozenset(layers)
        self._page_tokens = page_tokens
        self._last_queries = last_queries
        self._seen: list[tuple[int, Tensor]] = []
        self.mass: Tensor | None = None
        """`[layers, heads, num_pages]` fp32 once something was seen."""
        self._num_pages = num_pages
        self._order = {layer: row for row, layer in enumerate(sorted(self._layers))}

    def see(
        self, layer: int, queries: Tensor, keys: Tensor, spec: LayerSpec, first_key: int
    ) -> None:
        """Score the last queries of a step against one part of the past."""
        if layer not in self._layers or spec.sliding_window is not None:
            return
        rows = queries[:, -self._last_queries :]
        lse = page_lse(rows, keys, scaling=spec.scaling, page_tokens=self._page_tokens)
        self._seen.append((first_key // self._page_tokens, lse))

    def end_layer(self, layer: int, lse: Tensor) -> None:
        """Normalise what the layer saw by the log-sum-exp of all its keys, `[heads, T]`."""
        if not self._seen:
            return
        total = lse[:, -self._last_queries :].unsqueeze(-1)
        if self.mass is None:
            self.mass = torch.zeros(len(self._layers), lse.shape[0], self._num_pages)
        row = self.mass[self._order[layer]]
        for first_page, page in self._seen:
            weight = torch.exp(page - total).sum(dim=1).cpu()
            end = min(self._num_pages, first_page + weight.shape[-1])
            row[:, first_page:end] += weight[:, : end - first_page]
        self._seen.clear()
