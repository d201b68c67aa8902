"""Gathering: copies of pages from wherever they lie, side by side in a sequence of their own.

Owns the copying, layer by layer, streamed from the host tier and the session file. Pages at rest
have no positions, so a copy can stand anywhere; which pages and where is the caller's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate

from engine.attention.layout import Piece, layout_part
from engine.attention.memory import TierMemory
from engine.attention.rest import RestPart, RestReader
from engine.telemetry import Phase
from engine.tiers.plan import PartPlan
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
    order = [
        (layer, index) for layer in range(memory.geometry.num_layers) for index in range(len(parts))
    ]
    begins = [0, *accumulate(len(part.sources) for part in parts)]
    reader = RestReader(memory, layouts, order, in_ram=True)
    with closing(reader):
        for layer, index in order:
            rest = reader.next(layer, index)
            with memory.telemetry.phase(Phase.DECODE):
                for piece in layouts[index].pieces:
                    first = begins[index] + piece.first_page
                    _copy(memory, piece, rest, layer, slots[first : first + piece.num_pages])


def _copy(
    memory: TierMemory, piece: Piece, rest: RestPart, layer: int, slots: Sequence[SlotId]
) -> None:
    for half in Part:
        for page, slot in zip(rest.of(piece, half), slots, strict=True):
            memory.host.pages(layer, half, slot, 1).copy_(page[None])
