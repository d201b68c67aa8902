"""Exact attention: every token sees every earlier token at its true position.

Owns one step: the order of its sums and what becomes of its own keys and values. The past is cut
into parts at fixed positions and joined by log-sum-exp (online softmax, arXiv 1805.02867), so the
sums are the same whether a part lies on the device or is streamed, and so are the bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.attention.memory import DeviceMemory, TierMemory
from engine.attention.recorder import QueryRecorder, StepRecorder
from engine.attention.source import PastPart, PastReader
from engine.model.hook import LayerSpec
from engine.model.rope import Rope
from engine.tiers.disk import PageRun
from engine.tiers.plan import PartPlan, StepPlan
from engine.types import Part, SegmentId, Tier
from kernels import pages as page_kernels
from kernels.attention import attention_part, merge
from kernels.paged import attention_pages


class ExactAttention:
    """The context of one forward pass; layers call `attend` in order.

    Args:
        plan: What the step reads and writes.
        memory: The tiers.
        rope: Rotation by position.
        layers: One spec per layer.
        recorder: Keeps the queries, if given.
        step_recorder: Keeps the queries and keys, if given.
    """

    def __init__(
        self,
        plan: StepPlan,
        memory: TierMemory,
        rope: Rope,
        layers: Sequence[LayerSpec],
        recorder: QueryRecorder | None = None,
        step_recorder: StepRecorder | None = None,
    ) -> None:
        self._plan = plan
        self._memory = memory
        self._rope = rope
        self._recorder = recorder
        self._step_recorder = step_recorder
        # A page that enters a faster tier does so in every layer, for whoever looks further back.
        self._reads = [
            [i for i, part in enumerate(plan.parts) if part.lifts or _sees(plan, part, spec)]
            for spec in layers
        ]
        order = [(layer, i) for layer, parts in enumerate(self._reads) for i in parts]
        self._past = PastReader(plan, memory, rope, order)
        self._slots = self._device_slots()
        for copy in plan.copies:
            tier = memory.device if copy.tier is Tier.DEVICE else memory.host
            tier.copy(copy.source, copy.target)

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LayerSpec
    ) -> Tensor:
        """Store the step's keys and values, and attend.

        Args:
            layer: Layer of the model.
            queries: `[num_heads, T, head_dim]`, position-free.
            keys: `[num_kv_heads, T, head_dim]`, position-free.
            values: `[num_kv_heads, T, head_dim]`.
            spec: The layer's window, soft cap, scaling and frequency set.

        Returns:
            `[T, num_heads, head_dim]` in the queries' dtype.
        """
        first = self._plan.position
        rotated, rotated_keys = self._rotate(layer, queries, keys, values, spec)
        own = rotated_keys, values
        self._store(layer, keys, rotated_keys, values)
        if self._recorder is not None:
            self._recorder.record(layer, queries)
        if self._step_recorder is not None:
            self._step_recorder.record(layer, queries, keys)
        out: Tensor | None = None
        lse = torch.empty(0)
        for index in self._reads[layer]:
            part = self._plan.parts[index]
            past = self._past.read(layer, index, spec.rope, own)
            if not _sees(self._plan, part, spec):
                continue
            turned = rotated
            if part.query_position != first:
                turned = self._rope.rotate(queries, part.query_position, spec.rope)
            part_out, part_lse = self._attend_part(turned, past, part, spec)
            out, lse = _join(out, lse, part_out, part_lse)
        if self._plan.num_tokens > 1:
            own_out, own_lse = attention_part(
                rotated, *own, scaling=spec.scaling, first_query=first, first_key=first,
                causal=True, window=spec.sliding_window, softcap=spec.softcap,
            )  # fmt: skip
            out, lse = _join(out, lse, own_out, own_lse)
        assert out is not None
        return out.to(queries.dtype).transpose(0, 1)

    def _attend_part(
        self, queries: Tensor, past: PastPart, part: PartPlan, spec: LayerSpec
    ) -> tuple[Tensor, Tensor]:
        if past.table is None:
            return attention_part(
                queries, past.keys, past.values, scaling=spec.scaling,
                first_query=part.query_position, first_key=part.position,
                window=spec.sliding_window, softcap=spec.softcap,
            )  # fmt: skip
        return attention_pages(
            queries, past.keys, past.values, past.table, num_keys=part.num_tokens,
            page_tokens=self._memory.geometry.page_tokens, scaling=spec.scaling,
            first_query=part.query_position, first_key=part.position,
            window=spec.sliding_window, softcap=spec.softcap,
        )  # fmt: skip

    @property
    def pages_in_memory(self) -> int:
        """Pages planned to come from disk that the kernel still had, for unified memory."""
        per_page = len(Part) * self._memory.geometry.num_layers
        return self._past.slices_in_memory // per_page

    def close(self) -> None:
        """End the step; waits for reads and copies in flight. Writes may still be queued."""
        self._past.close()
        for device in self._memory.devices:
            device.down.drain()

    def _device_slots(self) -> dict[DeviceMemory, Tensor]:
        """Slots of the step's pages, -1 for none, on each device where a kernel writes them."""
        slots = [-1 if target.device is None else target.device for target in self._plan.targets]
        return {
            memory: torch.tensor(slots, dtype=torch.int64, device=memory.scratch.device)
            for memory in self._memory.devices
            if page_kernels.by_triton(memory.scratch.device)
        }

    def _rotate(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LayerSpec
    ) -> tuple[Tensor, Tensor]:
        """Rotate the step's queries and keys.

        A kernel writes keys and values into the device tier on the way; without one the two are
        rotated together where that costs less than it copies.
        """
        first, rope = self._plan.position, self._rope
        slots = self._slots.get(self._memory.beside[layer])
        if slots is None and self._plan.num_tokens == 1:
            both = rope.rotate(torch.cat((queries, keys)), first, spec.rope)
            return both[: queries.shape[0]], both[queries.shape[0] :]
        rotated = rope.rotate(queries, first, spec.rope)
        if slots is None:
            return rotated, rope.rotate(keys, first, spec.rope)
        own = torch.empty_like(keys, memory_format=torch.contiguous_format)
        page_kernels.page_ops(keys.device).append(
            keys, values, *self._memory.device.halves(layer),
            rotation=rope.tables(first, keys.shape[1], spec.rope, keys.device),
            page_tokens=self._memory.geometry.page_tokens, first=self._plan.targets[0].offset,
            slots=slots, own=own,
        )  # fmt: skip
        return rotated, own

    def _store(self, layer: int, keys: Tensor, rotated: Tensor, values: Tensor) -> None:
        memory, first = self._memory, self._plan.first_token
        down = memory.beside[layer].down
        is_written = memory.beside[layer] in self._slots
        down.after(down.compute_point())
        for target in self._plan.targets:
            begin = target.first_token - first
            span = slice(begin, begin + target.num_tokens)
            where = target.offset, target.num_tokens
            if target.device is not None and not is_written:
                memory.device.view(layer, Part.KEYS, target.device, *where).copy_(rotated[:, span])
                memory.device.view(layer, Part.VALUES, target.device, *where).copy_(values[:, span])
            if target.host is not None:
                for half, tensor in zip(Part, (keys, values), strict=True):
                    down.copy(memory.host.view(layer, half, target.host, *where), tensor[:, span])
        for segment in self._plan.direct:
            self._write(layer, segment, Part.KEYS, keys)
            self._write(layer, segment, Part.VALUES, values)

    def _write(self, layer: int, segment: SegmentId, half: Part, tensor: Tensor) -> None:
        geometry, transfer = self._memory.geometry, self._memory.transfer
        assert transfer is not None
        begin = segment * geometry.segment_tokens - self._plan.first_token
        pages = tensor[:, begin : begin + geometry.segment_tokens].reshape(
            geometry.num_kv_heads,
            geometry.pages_per_segment,
            geometry.page_tokens,
            geometry.head_dim,
        )
        buffer = transfer.writes.take_buffer()
        down = self._memory.beside[layer].down
        down.copy(buffer.pages, pages.transpose(0, 1))
        run = PageRun(segment, 0, geometry.pages_per_segment)
        transfer.writes.write(buffer, run, half, layer, filled=down.point())


def _sees(plan: StepPlan, part: PartPlan, spec: LayerSpec) -> bool:
    """Whether the first query, which sees furthest back, sees the part's last key."""
    if spec.sliding_window is None:
        return True
    last_key = part.position + part.num_tokens - 1
    return part.query_position - last_key < spec.sliding_window


def _join(
    out: Tensor | None, lse: Tensor, part_out: Tensor, part_lse: Tensor
) -> tuple[Tensor, Tensor]:
    if out is None:
        return part_out.float(), part_lse
    return merge(out, lse, part_out, part_lse)
