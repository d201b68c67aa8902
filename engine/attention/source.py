"""Keys and values of the past, part by part, from whichever tier has them.

Owns the gathering of one step: views into the device tier where a part lies there in one piece, and
a scratch copy where it does not; rotation on the way in; promotion, and keeping in the host tier
what came from disk, on the way past. The values are the same bits either way, and so is the result
of attention.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from torch import Tensor

from engine.attention.layout import PartLayout, Piece, layout_part
from engine.model.rope import Rope
from engine.telemetry import Telemetry
from engine.tiers.device import DeviceTier
from engine.tiers.host import HostTier
from engine.tiers.plan import PartPlan, StepPlan
from engine.tiers.transfer import ReadJob, Staged, Transfer
from engine.types import KVGeometry, Part, SlotId, Tier


@dataclass(frozen=True, slots=True)
class TierMemory:
    """The tensors and threads behind the tiers."""

    geometry: KVGeometry
    device: DeviceTier
    host: HostTier
    transfer: Transfer | None
    scratch: Tensor
    """`[2, num_kv_heads, part_tokens, head_dim]` on the device, for parts that lie in pieces."""
    telemetry: Telemetry
    """Where the time is booked that bringing pages up takes."""


def at_rest(
    memory: TierMemory, piece: Piece, staged: Staged | None, layer: int, half: Part
) -> Tensor:
    """Give one half of a piece's pages, `[num_pages, num_kv_heads, page_tokens, head_dim]`.

    Args:
        memory: The tiers.
        piece: Pages in the host tier or on disk; those of the device tier are not at rest.
        staged: What was read from disk for the piece's part.
        layer: Layer of the model.
        half: Keys, before RoPE, or values.
    """
    if piece.slot is not None:
        return memory.host.pages(layer, half, piece.slot, piece.num_pages)
    assert staged is not None
    return staged.rest(half, piece.first_page, piece.num_pages)


def keep_at_rest(
    memory: TierMemory, piece: Piece, staged: Staged | None, layer: int, half: Part
) -> None:
    """Copy one half of a piece from disk to the host slots that its pages were given, if any."""
    if piece.keep is not None:
        slots = memory.host.pages(layer, half, piece.keep, piece.num_pages)
        slots.copy_(at_rest(memory, piece, staged, layer, half))


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
        jobs = [
            ReadJob(layer, runs) for layer, index in order if (runs := self._layouts[index].runs)
        ]
        self._stream: Generator[Staged] | None = None
        self.slices_in_memory = 0
        """Page slices planned to come from disk for which the device was not asked."""
        if jobs:
            assert memory.transfer is not None
            self._stream = memory.transfer.stream(jobs)

    def read(
        self, layer: int, index: int, rope_index: int, own: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Give keys and values of one part.

        Args:
            layer: Layer of the model.
            index: Index of the part in the plan.
            rope_index: Frequency set of the layer.
            own: Rotated keys and values of the step, `[num_kv_heads, T, head_dim]`; the token of a
                decode step is appended to its part.

        Returns:
            Rotated keys and values, `[num_kv_heads, part.num_tokens, head_dim]`, valid until the
            next call.
        """
        part, layout = self._plan.parts[index], self._layouts[index]
        staged = next(self._stream) if self._stream is not None and layout.runs else None
        self.slices_in_memory += staged.slices_in_memory if staged is not None else 0
        device, count = self._memory.device, part.num_tokens
        if pages := layout.pages_at_rest:
            num_bytes = pages * len(Part) * self._memory.geometry.page_slice_bytes
            with self._memory.telemetry.bring_up(num_bytes):
                self._gather(part, layout, staged, layer, rope_index)
        elif layout.first_slot is None:
            self._gather(part, layout, staged, layer, rope_index)
        if layout.first_slot is not None:
            return (
                device.view(layer, Part.KEYS, layout.first_slot, 0, count),
                device.view(layer, Part.VALUES, layout.first_slot, 0, count),
            )
        if part.own:
            for half, tensor in zip(self._memory.scratch, own, strict=True):
                half[:, count - 1 : count] = tensor
        return self._memory.scratch[0, :, :count], self._memory.scratch[1, :, :count]

    def close(self) -> None:
        """Stop reading ahead; waits for the reads in flight."""
        if self._stream is not None:
            self._stream.close()

    def _gather(
        self,
        part: PartPlan,
        layout: PartLayout,
        staged: Staged | None,
        layer: int,
        rope_index: int,
    ) -> None:
        """Keep and promote what is to stay, and put the part together if it lies in pieces."""
        for piece in layout.pieces:
            for half in Part:
                keep_at_rest(self._memory, piece, staged, layer, half)
            if piece.promote is not None:
                keys = self._slots(piece, piece.promote, layer, Part.KEYS)
                values = self._slots(piece, piece.promote, layer, Part.VALUES)
                self._bring_up(part, piece, staged, layer, rope_index, keys, values)
            if layout.first_slot is None:
                self._to_scratch(part, piece, staged, layer, rope_index)

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
        self, part: PartPlan, piece: Piece, staged: Staged | None, layer: int, rope_index: int
    ) -> None:
        size = self._memory.geometry.page_tokens
        begin, count = piece.first_page * size, piece.num_pages * size
        halves = [
            self._paged(half[:, begin : begin + count], piece) for half in self._memory.scratch
        ]
        slot = piece.slot if piece.tier is Tier.DEVICE else piece.promote
        if slot is None:
            self._bring_up(part, piece, staged, layer, rope_index, halves[0], halves[1])
            return
        for half, target in zip(Part, halves, strict=True):
            target.copy_(self._slots(piece, slot, layer, half))

    def _bring_up(
        self,
        part: PartPlan,
        piece: Piece,
        staged: Staged | None,
        layer: int,
        rope_index: int,
        keys: Tensor,
        values: Tensor,
    ) -> None:
        """Rotate and copy a piece at rest into `[num_kv_heads, num_pages, P, D]` views."""
        first = part.position + piece.first_page * self._memory.geometry.page_tokens
        key_rest, value_rest = (
            at_rest(self._memory, piece, staged, layer, half).transpose(0, 1) for half in Part
        )
        self._rope.rotate(key_rest.to(keys.device), first, rope_index, out=keys)
        values.copy_(value_rest)
