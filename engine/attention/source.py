"""Keys and values of the past, part by part, from whichever tier has them.

Owns the gathering of one step: the device tier itself where a part lies there, and a scratch copy
where it does not; rotation on the way in; promotion. Where attention finds pages by a table, a part
may lie in any slots, and a scratch copy has a table that says 0, 1, 2, ...; else it must lie in one
piece. The values are the same bits either way and go through the same kernel, and so the result of
attention is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.layout import PartLayout, Piece, layout_part
from engine.attention.memory import TierMemory
from engine.attention.rest import RestPart, RestReader
from engine.model.rope import Rope
from engine.tiers.plan import PartPlan, StepPlan
from engine.types import Part, SlotId, Tier
from kernels import pages as page_kernels
from kernels.paged import reads_tables


@dataclass(frozen=True, slots=True)
class PastPart:
    """Keys and values of one part, rotated; valid until the next is read."""

    keys: Tensor
    """`[num_kv_heads, num_tokens, head_dim]`, or with a table all slots that it may name,
    `[num_kv_heads, slots * page_tokens, head_dim]`."""
    values: Tensor
    """Likewise."""
    table: Tensor | None
    """The slot of each of its pages, int32; None: the tokens lie in order."""


class PastReader:
    """Gives the past of one step, for one layer and part after another.

    Args:
        plan: The step.
        memory: The tiers.
        rope: Rotation of keys at rest.
        order: The `(layer, part index)` pairs that will be read, in that order.
    """

    def __init__(
        self, plan: StepPlan, memory: TierMemory, rope: Rope, order: list[tuple[int, int]]
    ) -> None:
        self._plan = plan
        self._memory = memory
        self._rope = rope
        self._layouts = [layout_part(plan, part) for part in plan.parts]
        self._tables: dict[torch.device, list[Tensor]] = {}
        self._rest = RestReader(memory, self._layouts, order)

    @property
    def slices_in_memory(self) -> int:
        """Page slices planned to come from disk for which the device was not asked."""
        return self._rest.slices_in_memory

    def read(self, layer: int, index: int, rope_index: int, own: tuple[Tensor, Tensor]) -> PastPart:
        """Give keys and values of one part.

        Args:
            layer: Layer of the model.
            index: Index of the part in the plan.
            rope_index: Frequency set of the layer.
            own: Rotated keys and values of the step, `[num_kv_heads, T, head_dim]`; the token of a
                decode step is appended to its part.

        """
        part, layout = self._plan.parts[index], self._layouts[index]
        rest = self._rest.next(layer, index)
        scratch, count = self._memory.beside[layer].scratch, part.num_tokens
        by_table = reads_tables(scratch.device, self._plan.num_tokens)
        is_whole = (layout.slots if by_table else layout.first_slot) is not None
        if pages := layout.pages_at_rest:
            num_bytes = pages * len(Part) * self._memory.geometry.page_slice_bytes
            with self._memory.telemetry.bring_up(num_bytes):
                self._gather(part, layout, rest, layer, rope_index, is_whole)
        elif not is_whole:
            self._gather(part, layout, rest, layer, rope_index, is_whole)
        if part.own and not is_whole:
            for half, tensor in zip(scratch, own, strict=True):
                half[:, count - 1 : count] = tensor
        if by_table:
            table = self._table(scratch.device, index)
            halves = self._memory.device.halves(layer) if is_whole else scratch
            return PastPart(halves[0], halves[1], table)
        if layout.first_slot is None:
            return PastPart(scratch[0, :, :count], scratch[1, :, :count], None)
        where = layout.first_slot, 0, count
        keys, values = (self._memory.device.view(layer, half, *where) for half in Part)
        return PastPart(keys, values, None)

    def close(self) -> None:
        """Stop reading ahead; waits for the reads in flight."""
        self._rest.close()

    def _table(self, device: torch.device, index: int) -> Tensor:
        """Give the page table of a part, made for all parts of the step by one copy a device."""
        if device not in self._tables:
            size = self._memory.geometry.page_tokens
            rows = [
                list(range(-(-part.num_tokens // size))) if layout.slots is None else layout.slots
                for part, layout in zip(self._plan.parts, self._layouts, strict=True)
            ]
            joined = torch.tensor([slot for row in rows for slot in row], dtype=torch.int32)
            lengths = [len(row) for row in rows]
            self._tables[device] = list(torch.split(joined.to(device), lengths))
        return self._tables[device][index]

    def _gather(
        self,
        part: PartPlan,
        layout: PartLayout,
        rest: RestPart,
        layer: int,
        rope_index: int,
        is_whole: bool,
    ) -> None:
        """Promote what is to stay, and put the part together if it lies in pieces."""
        for piece in layout.pieces:
            if piece.promote is not None:
                keys = self._slots(piece, piece.promote, layer, Part.KEYS)
                values = self._slots(piece, piece.promote, layer, Part.VALUES)
                self._bring_up(part, piece, rest, rope_index, keys, values)
            if not is_whole:
                self._to_scratch(part, piece, rest, layer, rope_index)

    def _slots(self, piece: Piece, slot: SlotId, layer: int, half: Part) -> Tensor:
        """View the device slots of a piece, `[num_kv_heads, num_pages, page_tokens, head_dim]`."""
        size = self._memory.geometry.page_tokens
        view = self._memory.device.view(layer, half, slot, 0, piece.num_pages * size)
        return self._paged(view, piece)

    def _paged(self, view: Tensor, piece: Piece) -> Tensor:
        geometry = self._memory.geometry
        return view.view(
            geometry.num_kv_heads, piece.num_pages, geometry.page_tokens, geometry.head_dim
        )

    def _to_scratch(
        self, part: PartPlan, piece: Piece, rest: RestPart, layer: int, rope_index: int
    ) -> None:
        size = self._memory.geometry.page_tokens
        begin, count = piece.first_page * size, piece.num_pages * size
        scratch = self._memory.beside[layer].scratch
        halves = [self._paged(half[:, begin : begin + count], piece) for half in scratch]
        slot = piece.slot if piece.tier is Tier.DEVICE else piece.promote
        if slot is None:
            self._bring_up(part, piece, rest, rope_index, halves[0], halves[1])
            return
        for half, target in zip(Part, halves, strict=True):
            target.copy_(self._slots(piece, slot, layer, half))

    def _bring_up(
        self,
        part: PartPlan,
        piece: Piece,
        rest: RestPart,
        rope_index: int,
        keys: Tensor,
        values: Tensor,
    ) -> None:
        """Rotate and copy a piece at rest into `[num_kv_heads, num_pages, P, D]` views."""
        first = part.position + piece.first_page * self._memory.geometry.page_tokens
        key_rest, value_rest = (rest.of(piece, half) for half in Part)
        if not page_kernels.by_triton(keys.device):
            self._rope.rotate(key_rest.transpose(0, 1), first, rope_index, out=keys)
            values.copy_(value_rest.transpose(0, 1))
            return
        heads, num_pages, page_tokens, head_dim = keys.shape
        into = (half.view(heads, num_pages * page_tokens, head_dim) for half in (keys, values))
        turns = self._rope.tables(first, num_pages * page_tokens, rope_index, keys.device)
        page_kernels.page_ops(keys.device).gather_pages(key_rest, value_rest, *into, rotation=turns)
