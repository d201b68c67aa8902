"""The probe: which pages of a sequence a question looks for, wherever they lie.

Owns the scan of position-free queries over the position-free keys of every page: keys only, a few
layers only, part by part, streamed from the host tier and the session file. Without positions a
page a million tokens away scores like one beside the question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.attention.layout import PartLayout, layout_part
from engine.attention.source import TierMemory, at_rest
from engine.model.hook import LayerSpec
from engine.tiers.plan import PartPlan
from engine.tiers.transfer import ReadJob, StreamBuffer
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
        parts: Where the keys at rest lie (`TierStack.plan_scan`).
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
    order = sorted(queries)
    jobs = [
        ReadJob(layer, layout.runs, (Part.KEYS,))
        for layer in order
        for layout in layouts
        if layout.runs
    ]
    stream = memory.transfer.stream(jobs) if memory.transfer is not None and jobs else None
    masses = []
    try:
        for layer in order:
            spec, scores = layers[layer], []
            for part, layout in zip(parts, layouts, strict=True):
                staged = next(stream) if stream is not None and layout.runs else None
                keys = _keys_at_rest(memory, part, layout, layer, staged)
                scores.append(
                    page_lse(
                        queries[layer], keys, scaling=spec.scaling,
                        page_tokens=memory.geometry.page_tokens, softcap=spec.softcap,
                    )
                )  # fmt: skip
            masses.append(page_mass(scores))
    finally:
        if stream is not None:
            stream.close()
    return torch.stack(masses)


def page_mass(scores: Sequence[Tensor]) -> Tensor:
    """Turn the log-sum-exp of pages into their softmax mass.

    Args:
        scores: Of neighbouring pages, `[num_heads, T, pages]` each, together all pages.

    Returns:
        `[num_heads, num_pages]` fp32 on the CPU, the largest over the query tokens.
    """
    pages = torch.cat(list(scores), dim=-1)
    total = torch.logsumexp(pages, dim=-1, keepdim=True)
    return torch.exp(pages - total).amax(dim=1).cpu()


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
    memory: TierMemory, part: PartPlan, layout: PartLayout, layer: int, staged: StreamBuffer | None
) -> Tensor:
    """Gather the keys of a part side by side, `[num_kv_heads, part.num_tokens, head_dim]`."""
    geometry = memory.geometry
    size, scratch = geometry.page_tokens, memory.scratch[0]
    for piece in layout.pieces:
        rest = at_rest(memory, piece, staged, layer, Part.KEYS)
        begin = piece.first_page * size
        target = scratch[:, begin : begin + piece.num_pages * size]
        shape = (geometry.num_kv_heads, piece.num_pages, size, geometry.head_dim)
        target.view(shape).copy_(rest.transpose(0, 1))
    return scratch[:, : part.num_tokens]
