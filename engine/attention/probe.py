"""The probe: which pages of a sequence a question looks for, wherever they lie.

Owns the scan of position-free queries over the position-free keys of every page: keys only, a few
layers only, part by part, streamed from the host tier and the session file. Without positions a
page a million tokens away scores like one beside the question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

import torch
from torch import Tensor

from engine.attention.layout import PartLayout, layout_part
from engine.attention.memory import TierMemory
from engine.attention.rest import RestPart, RestReader
from engine.model.hook import LayerSpec
from engine.tiers.plan import PartPlan
from engine.types import Part
from kernels.attention import page_lse


@torch.inference_mode()
def probe(
    parts: Sequence[PartPlan],
    memory: TierMemory,
    layers: Sequence[LayerSpec],
    queries: Mapping[int, Tensor],
) -> Tensor:
    """Score every page of a sequence.

    Args:
        parts: Where the keys at rest lie (`PastPlanner.scan`).
        memory: The tiers.
        layers: One spec per layer of the model.
        queries: Position-free queries by layer, `[num_heads, T, head_dim]`.

    Returns:
        Softmax mass of each page over all keys, the largest over the query tokens,
        `[layers, num_heads, num_pages]` fp32, layers ascending.

    Raises:
        PageCorrupt: A page read back fails its checksum.
        StorageError: The device failed.
    """
    layouts = [layout_part(None, part) for part in parts]
    num_pages = memory.geometry.num_pages(sum(part.num_tokens for part in parts))
    order = [(layer, index) for layer in sorted(queries) for index in range(len(parts))]
    masses = []
    with closing(RestReader(memory, layouts, order, halves=(Part.KEYS,))) as reader:
        for layer in sorted(queries):
            spec, scores = layers[layer], PageScores(queries[layer], num_pages)
            for index, (part, layout) in enumerate(zip(parts, layouts, strict=True)):
                rest = reader.next(layer, index)
                num_bytes = layout.pages_at_rest * memory.geometry.page_slice_bytes
                with memory.telemetry.bring_up(num_bytes):
                    keys = _keys_at_rest(memory, layer, part, layout, rest)
                scores.add(
                    page_lse(
                        queries[layer], keys, scaling=spec.scaling,
                        page_tokens=memory.geometry.page_tokens, softcap=spec.softcap,
                    )
                )  # fmt: skip
            masses.append(scores.mass())
    return torch.stack(masses)


class PageScores:
    """The log-sum-exp of every page, block by block, and at the end their softmax mass.

    One tensor for all of them: a small one for each block, kept between the large ones that the
    next blocks need, makes the C heap grow by a large one each time, 1.5 GB over a million tokens.

    Args:
        queries: `[num_heads, T, head_dim]`.
        num_pages: Pages in all.
    """

    def __init__(self, queries: Tensor, num_pages: int) -> None:
        heads, tokens, _ = queries.shape
        self._scores = torch.empty(
            (heads, tokens, num_pages), dtype=torch.float32, device=queries.device
        )
        self._filled = 0

    def add(self, scores: Tensor) -> None:
        """Take in the next pages, `[num_heads, T, pages]`."""
        end = self._filled + scores.shape[-1]
        self._scores[..., self._filled : end] = scores
        self._filled = end

    def mass(self) -> Tensor:
        """The mass of each page, `[num_heads, num_pages]` fp32 on the CPU, the largest over the
        query tokens."""
        assert self._filled == self._scores.shape[-1]
        total = torch.logsumexp(self._scores, dim=-1, keepdim=True)
        return self._scores.sub_(total).exp_().amax(dim=1).cpu()


def probe_scores(mass: Tensor, neutral: Tensor) -> Tensor:
    """Score pages by the mass they draw beyond what neutral questions draw.

    The root lets many heads that look a little outweigh one that looks hard: for ten questions to a
    repository of 74,000 tokens the right file's page came first five times with it and three times
    without, and among the first eight always.

    Args:
        mass: `[layers, num_heads, num_pages]` of the question.
        neutral: The same of neutral questions.

    Returns:
        `[num_pages]`, the sum over layers and heads.
    """
    return (mass - neutral).clamp(min=0.0).sqrt().sum(dim=(0, 1))


def _keys_at_rest(
    memory: TierMemory, layer: int, part: PartPlan, layout: PartLayout, rest: RestPart
) -> Tensor:
    """Gather the keys of a part side by side, `[num_kv_heads, part.num_tokens, head_dim]`."""
    geometry = memory.geometry
    size, scratch = geometry.page_tokens, memory.beside[layer].scratch[0]
    for piece in layout.pieces:
        begin = piece.first_page * size
        target = scratch[:, begin : begin + piece.num_pages * size]
        shape = (geometry.num_kv_heads, piece.num_pages, size, geometry.head_dim)
        target.view(shape).copy_(rest.of(piece, Part.KEYS).transpose(0, 1))
    return scratch[:, : part.num_tokens]
