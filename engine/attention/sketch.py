"""The key sketch: what the probe reads of every key, small enough for RAM and a single read.

Owns the coding of position-free keys and the scoring of pages by the codes. Of each layer and KV
head those components of the keys are kept, in 8 bits, that count most in products with queries:
the principal ones after both have been scaled so that queries spread alike in all directions. With
the plain principal components, or with half as many, a third of the right pages was lost on 16
questions to a repository; with these as many were found as by all keys. Knows no tiers and no
files, nor which keys it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.probe import PageScores
from engine.model.hook import LayerSpec
from engine.types import KVGeometry
from kernels.attention import page_lse

BASIS_TOKENS = 4096
"""Leading tokens whose keys and queries choose the components. Until then keys are kept whole."""

COMPONENT_SHARE = 2
"""A head keeps one component for so many dimensions."""

HEADROOM = 1.25
"""Largest component that can be coded, in units of the largest one seen when they were chosen."""

LEAST_SPREAD = 1e-4
"""Queries are taken to spread at least so far in any direction, as a share of the largest."""

BLOCK_TOKENS = 8192
"""Codes scored at once. With so many, a quarter less time goes by on two cores than with those
whose scores would stay in the processor's cache."""


def sketch_rank(geometry: KVGeometry) -> int:
    """Components kept of each key."""
    return max(1, geometry.head_dim // COMPONENT_SHARE)


def sketch_bytes(geometry: KVGeometry, num_layers: int, max_tokens: int) -> int:
    """Bytes that a sketch of `num_layers` layers takes at most while it grows; 0 if too short."""
    if max_tokens < BASIS_TOKENS:
        return 0
    heads = num_layers * geometry.num_kv_heads
    raw = BASIS_TOKENS * geometry.head_dim * geometry.itemsize
    joined = 2 * raw  # for a moment there are the pieces, too
    return heads * (max_tokens * sketch_rank(geometry) + joined)


@dataclass(frozen=True, slots=True, eq=False)
class SketchBasis:
    """What codes mean. All fp32, on the CPU."""

    mean: Tensor
    """`[layers, num_kv_heads, 1, head_dim]`."""
    for_keys: Tensor
    """What keys are multiplied with, `[layers, num_kv_heads, head_dim, rank]`."""
    for_queries: Tensor
    """What queries are multiplied with, of the same shape."""
    scale: Tensor
    """Of one step of a code, `[layers, num_kv_heads, 1, rank]`."""

    @classmethod
    def fit(cls, keys: Tensor, spread: Tensor, rank: int) -> SketchBasis:
        """Choose the components.

        Args:
            keys: `[layers, num_kv_heads, tokens, head_dim]`.
            spread: Sum of the queries' outer products, `[layers, num_kv_heads, head_dim, head_dim]`
                fp32.
            rank: Components to keep.
        """
        parts = [_fit_layer(*layer, rank) for layer in zip(keys, spread, strict=True)]
        return cls(*(torch.stack(part) for part in zip(*parts, strict=True)))

    def encode(self, keys: Tensor) -> Tensor:
        """Give the codes of keys, both `[layers, num_kv_heads, tokens, ...]`, the codes int8."""
        mean, axes, scale = (
            field.to(keys.device) for field in (self.mean, self.for_keys, self.scale)
        )
        return ((keys.float() - mean) @ axes / scale).round_().clamp_(-127, 127).to(torch.int8)

    def project(self, index: int, queries: Tensor) -> Tensor:
        """Turn queries of the layer at `index` so that they can be multiplied with codes.

        Args:
            index: Which of the layers.
            queries: `[num_heads, T, head_dim]`.

        Returns:
            `[num_heads, T, rank + 1]` fp32; the last is what the mean adds to every score.
        """
        num_heads, num_queries, _ = queries.shape
        weights = torch.cat((self.for_queries[index] * self.scale[index], self.mean[index].mT), -1)
        weights = weights.to(queries.device)
        rows = queries.float().reshape(len(weights), -1, weights.shape[1])
        return (rows @ weights).view(num_heads, num_queries, -1)


def _fit_layer(keys: Tensor, spread: Tensor, rank: int) -> tuple[Tensor, ...]:
    """The fields of a `SketchBasis` for one layer."""
    mean = keys.float().mean(dim=1, keepdim=True)
    centred = keys.float() - mean
    squares, turn = torch.linalg.eigh(spread)
    squares = squares.clamp(min=0.0) + LEAST_SPREAD * squares.amax(-1, keepdim=True) + 1e-12
    widths = squares.sqrt()[:, None, :]
    root, inverse = (turn * widths) @ turn.mT, (turn / widths) @ turn.mT
    seen = root @ (centred.mT @ centred) @ root
    chosen = torch.linalg.eigh(seen).eigenvectors[..., -rank:]
    for_keys, for_queries = root @ chosen, inverse @ chosen
    largest = (centred @ for_keys).abs().amax(dim=1, keepdim=True)
    return mean, for_keys, for_queries, largest.clamp(min=1e-9) * (HEADROOM / 127)


class KeySketch:
    """The coded keys of some layers of one sequence, from its first token on.

    Args:
        layers: Which layers, ascending.
        geometry: Shape of the KV.
        max_tokens: Tokens to reserve room for; later ones are left out.
        rank: Components kept of each key; None: `sketch_rank`.
        basis_tokens: Leading tokens that choose the components; None: `BASIS_TOKENS`.
    """

    def __init__(
        self,
        layers: Sequence[int],
        geometry: KVGeometry,
        max_tokens: int,
        *,
        rank: int | None = None,
        basis_tokens: int | None = None,
    ) -> None:
        self.layers = tuple(layers)
        self.basis: SketchBasis | None = None
        self.num_tokens = 0
        """Leading tokens that have been given, coded or not."""
        self._basis_tokens = BASIS_TOKENS if basis_tokens is None else basis_tokens
        self._page_tokens = geometry.page_tokens
        self._raw: list[Tensor] = []
        heads = (len(layers), geometry.num_kv_heads)
        self._spread = torch.zeros((*heads, geometry.head_dim, geometry.head_dim))
        # Memory is taken as it is filled: an untouched page of it costs nothing.
        rank = sketch_rank(geometry) if rank is None else rank
        self._codes = torch.empty((*heads, max_tokens, rank), dtype=torch.int8)

    @property
    def max_tokens(self) -> int:
        """Tokens there is room for."""
        return self._codes.shape[2]

    @property
    def rank(self) -> int:
        """Components kept of each key."""
        return self._codes.shape[3]

    @property
    def coded_tokens(self) -> int:
        """Leading tokens that have codes."""
        return 0 if self.basis is None else self.num_tokens

    @torch.inference_mode()
    def append(self, keys: Mapping[int, Tensor], queries: Mapping[int, Tensor]) -> None:
        """Add the tokens that follow.

        Args:
            keys: Position-free, of every layer of the sketch, `[num_kv_heads, T, head_dim]`.
            queries: Likewise, `[num_heads, T, head_dim]`; not looked at once there is a basis.
        """
        room = self.max_tokens - self.num_tokens
        device = keys[self.layers[0]].device  # layers may lie on several
        new = torch.stack([keys[layer][:, :room].to(device) for layer in self.layers])
        if self.basis is None:
            self._collect(new.cpu(), queries)
        else:
            self._put(new)

    def _collect(self, new: Tensor, queries: Mapping[int, Tensor]) -> None:
        """Keep keys as they are, until there are enough to choose the components by."""
        wanted = self._basis_tokens - self.num_tokens
        for spread, layer in zip(self._spread, self.layers, strict=True):
            asked = queries[layer][:, :wanted].float()
            rows = asked.reshape(len(spread), -1, asked.shape[-1])
            spread += (rows.mT @ rows).cpu()
        self._raw.append(new)
        self.num_tokens += new.shape[2]
        if self.num_tokens >= self._basis_tokens:
            # By exactly so many tokens, so that it does not matter how they were cut into steps.
            raw, self._raw, self.num_tokens = torch.cat(self._raw, dim=2), [], 0
            first = raw[:, :, : self._basis_tokens]
            self.basis = SketchBasis.fit(first, self._spread, self.rank)
            for piece in torch.split(raw, BLOCK_TOKENS, dim=2):
                self._put(piece)

    def _put(self, new: Tensor) -> None:
        assert self.basis is not None
        end = self.num_tokens + new.shape[2]
        self._codes[:, :, self.num_tokens : end] = self.basis.encode(new)
        self.num_tokens = end

    def codes(self, first: int, end: int) -> Tensor:
        """Give the codes of tokens `[first, end)`, `[layers, num_kv_heads, tokens, rank]` int8."""
        assert first <= end <= self.coded_tokens
        return self._codes[:, :, first:end].contiguous()

    def restore(self, first: int, codes: Tensor) -> None:
        """Put codes in place from token `first` on; they may replace those behind it."""
        assert self.basis is not None and first <= self.num_tokens
        end = min(first + codes.shape[2], self.max_tokens)
        self._codes[:, :, first:end] = codes[:, :, : end - first]
        self.num_tokens = end

    def truncate(self, num_tokens: int) -> None:
        """Forget what lies behind the first `num_tokens` tokens."""
        assert self.basis is not None
        self.num_tokens = min(self.num_tokens, num_tokens)

    @torch.inference_mode()
    def probe(
        self, num_tokens: int, layers: Sequence[LayerSpec], queries: Mapping[int, Tensor]
    ) -> Tensor:
        """Score the pages of the first `num_tokens` tokens, as `engine.attention.probe.probe` does.

        Args:
            num_tokens: At most `coded_tokens`.
            layers: One spec per layer of the model.
            queries: Position-free queries of every layer of the sketch, `[num_heads, T, head_dim]`.

        Returns:
            Softmax mass of each page over all keys, the largest over the query tokens,
            `[layers, num_heads, num_pages]` fp32, layers ascending.
        """
        assert self.basis is not None and 0 < num_tokens <= self.num_tokens
        size = max(1, BLOCK_TOKENS // self._page_tokens) * self._page_tokens
        masses = []
        for index, layer in enumerate(self.layers):
            spec, turned = layers[layer], self.basis.project(index, queries[layer])
            scores = PageScores(queries[layer], -(-num_tokens // self._page_tokens))
            for first in range(0, num_tokens, size):
                codes = self._codes[index, :, first : min(first + size, num_tokens)]
                scores.add(
                    page_lse(
                        turned[..., :-1], codes.to(turned.device).float(), scaling=spec.scaling,
                        page_tokens=self._page_tokens, softcap=spec.softcap, bias=turned[..., -1:],
                    )
                )  # fmt: skip
            masses.append(scores.mass())
        return torch.stack(masses)
