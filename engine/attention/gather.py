"""Gathering: copies of pages from wherever they lie, side by side in a sequence of their own.

Owns the copying, layer by layer, streamed from the host tier and the session file. Pages at rest
have no positions, so a copy can stand anywhere; which pages and where is the caller's choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.attention.layout import Piece, layout_part
from engine.attention.source import TierMemory, at_rest, keep_at_rest
from engine.telemetry import Phase
from engine.tiers.plan import PartPlan
from engine.tiers.transfer import ReadJob, Staged
from engine.types import Part, SlotId


def gather(parts: Sequence[PartPlan], slots: Sequence[SlotId], memory: TierMemory) -> None:
    """Copy pages at rest into slots of the host tier, every layer.

    Args:
        parts: Where the pages lie (`TierStack.plan_gather`).
        slots: A host slot for each page, in order.
        memory: The tiers.

    Raises:
        PageCorrupt: A page read back fails its checksum.
        StorageError: The device failed.
    """
    layouts = [layout_part(None, part) for part in parts]
    layers = range(memory.geometry.num_layers)
    jobs = [ReadJob(layer, one.runs) for layer in layers for one in layouts if one.runs]
    stream = memory.transfer.stream(jobs) if memory.transfer is not None and jobs else None
    try:
        for layer in layers:
            first = 0
            for part, layout in zip(parts, layouts, strict=True):
                staged = next(stream) if stream is not None and layout.runs else None
                with memory.telemetry.phase(Phase.DECODE):
                    for piece in layout.pieces:
                        begin = first + piece.first_page
                        _copy(memory, piece, staged, layer, slots[begin : begin + piece.num_pages])
                first += len(part.sources)
    finally:
        if stream is not None:
            stream.close()


def _copy(
    memory: TierMemory,
    piece: Piece,
    staged: Staged | None,
    layer: int,
    slots: Sequence[SlotId],
) -> None:
    for half in Part:
        keep_at_rest(memory, piece, staged, layer, half)
        rest = at_rest(memory, piece, staged, layer, half)
        for page, slot in zip(rest, slots, strict=True):
            memory.host.pages(layer, half, slot, 1).copy_(page[None])
