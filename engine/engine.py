"""The engine: token ids in, token ids out, their KV kept in pages over three tiers.

Owns the step loop, commits of the session file and the life of every tier. Knows no documents, no
prompts and no screens. A caller appends ids to a `Sequence` and calls `compute` or `generate`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from engine.attention.exact import ExactAttention
from engine.attention.mass import MassObserver
from engine.attention.source import TierMemory
from engine.config import EngineConfig, SamplingConfig
from engine.errors import IdentityMismatch, OverBudget
from engine.memory.budget import MemoryPlan, plan_memory
from engine.memory.page_table import PageTable
from engine.memory.slot_pool import SlotPool
from engine.model.load import LoadedModel
from engine.policies import POLICIES
from engine.sampler import Sampler
from engine.sequence import Sequence
from engine.session import Identity, SessionFile
from engine.telemetry import Phase, Telemetry
from engine.tiers.device import DeviceTier
from engine.tiers.disk import PageRun
from engine.tiers.host import HostTier
from engine.tiers.plan import DiskPlace, StepPlan
from engine.tiers.residency import Arena, Residency
from engine.tiers.stack import TierStack
from engine.tiers.transfer import Transfer
from engine.types import Part, SegmentId


class Engine:
    """One model, its tiers and at most one session file.

    Args:
        model: A loaded and hooked model.
        config: Settings.
        telemetry: Where work is booked.
        num_tokens: Tokens the longest sequence may grow to; memory is planned for them.
        file: The session file that takes sealed segments, if the work is to be kept.

    Raises:
        OverBudget: The budgets do not hold one segment; nothing was allocated.
        IdentityMismatch: The file belongs to another model or other pages.
    """

    def __init__(
        self,
        model: LoadedModel,
        config: EngineConfig,
        telemetry: Telemetry,
        *,
        num_tokens: int,
        file: SessionFile | None = None,
    ) -> None:
        self.model = model
        self.config = config
        self.telemetry = telemetry
        geometry = model.geometry
        if file is not None:
            file.identity.require_same(identity_of(model))
            if file.geometry != geometry:
                raise IdentityMismatch(
                    f"the session has pages {file.geometry}, this run wants {geometry}",
                    "Give the --page-tokens it was made with, or ingest the documents again.",
                )
        self.memory_plan: MemoryPlan = plan_memory(
            geometry,
            num_tokens=num_tokens,
            ram_bytes=config.ram_bytes,
            device_bytes=config.device_bytes,
            shared_memory=model.device.type == "cpu",
            has_file=file is not None,
            part_tokens=config.part_tokens,
            stream_depth=config.stream_depth,
        )
        self._named = file is not None
        if self.memory_plan.needs_disk:
            file = SessionFile.spill(config.spill_folder or Path(tempfile.gettempdir()), geometry)
        self.file = file
        self._stack = self._make_stack()
        self._memory = self._make_memory()
        self._last_commit = time.monotonic()
        self._committed_ids = len(file.token_ids) if file is not None and self._named else 0
        self._stack.residency.publish()

    def _make_stack(self) -> TierStack:
        plan, file = self.memory_plan, self.file
        policy = POLICIES[self.config.evict]
        residency = Residency(
            device=Arena(SlotPool(plan.device_pages), policy()),
            host=Arena(SlotPool(plan.host_pages), policy()),
            page_bytes=self.model.geometry.page_bytes,
            telemetry=self.telemetry,
            disk_bytes=lambda: file.file_bytes if file is not None else 0,
        )
        return TierStack(self.model.geometry, self.config.part_tokens, residency)

    def _make_memory(self) -> TierMemory:
        plan, geometry, config = self.memory_plan, self.model.geometry, self.config
        transfer = None
        if self.file is not None:
            transfer = Transfer(
                self.file,
                geometry,
                self.telemetry,
                write_buffers=plan.write_buffers,
                part_pages=config.part_tokens // geometry.page_tokens,
                stream_depth=plan.stream_depth,
                io_threads=config.io_threads,
                deadline=config.io_deadline_seconds,
            )
        on_cuda = self.model.device.type == "cuda"
        return TierMemory(
            geometry=geometry,
            device=DeviceTier(geometry, plan.device_pages, self.model.device),
            host=HostTier(geometry, plan.host_pages, pinned=on_cuda),
            transfer=transfer,
            scratch=torch.empty(
                2, geometry.num_kv_heads, config.part_tokens, geometry.head_dim,
                dtype=getattr(torch, geometry.dtype), device=self.model.device,
            ),
        )  # fmt: skip

    # -- sequences ---------------------------------------------------------------------------

    def new_sequence(self) -> Sequence:
        """Make the empty main sequence; its sealed segments go to the file, if there is one."""
        table = PageTable(self._stack.pool, self.model.geometry.page_tokens)
        return Sequence(table, on_disk=self.file is not None)

    def resume(self) -> Sequence:
        """Make the sequence that the session file holds; no KV is read yet but the last page.

        Raises:
            PageCorrupt: The last page fails its checksum.
            OverBudget: The host tier has no slot for it.
        """
        assert self.file is not None and self._named
        sequence = self.new_sequence()
        sequence.token_ids.extend(int(token) for token in self.file.token_ids)
        self._stack.adopt(sequence, self.file.kv_tokens)
        if self.file.tail_tokens:
            slot = self._stack.residency.need_host(sequence.table.pages[-1], ())
            page = self._memory.host.page(slot)
            self.file.read_tail(memoryview(page.view(torch.uint8).numpy().reshape(-1)))
        return sequence

    def fork(self, sequence: Sequence) -> Sequence:
        """Make a sequence that shares every page so far; what it adds stays in memory."""
        table = sequence.table.fork()
        return Sequence(table, list(sequence.token_ids), on_disk=False)

    def drop(self, sequence: Sequence) -> None:
        """Release a sequence's pages."""
        self._stack.residency.forget(sequence.table.drop())
        self._stack.residency.publish()

    # -- computing ---------------------------------------------------------------------------

    def compute(
        self,
        sequence: Sequence,
        *,
        observer: MassObserver | None = None,
        on_step: Callable[[], None] | None = None,
    ) -> Tensor:
        """Compute the KV of every token that has none yet; at least one must wait.

        Args:
            sequence: Its ids beyond `num_tokens` are computed.
            observer: Collects attention mass.
            on_step: Called after each step, when everything is consistent; may raise to stop.

        Returns:
            Logits after the last token, `[vocab_size]`.

        Raises:
            OverBudget: The sequence would outgrow the model's window or the host tier.
            StorageError: The disk failed; everything up to the last commit is kept.
            PageCorrupt: A page read back fails its checksum.
        """
        total = len(sequence.token_ids)
        assert sequence.num_tokens < total
        if total > self.model.window:
            raise OverBudget(
                f"{total:,} tokens do not fit the model's window of {self.model.window:,}",
                "Ask with fewer documents or a model with a longer window.",
            )
        while True:
            end = self._step_end(sequence.num_tokens, total)
            logits = self._step(sequence, end, observer)
            self._save_full_segments(sequence)
            self._checkpoint_if_due(sequence)
            if on_step is not None:
                on_step()
            if end == total:
                return logits

    def _step_end(self, first: int, total: int) -> int:
        """Steps end at segment borders, so that whole segments can go straight to the writer.

        The rule depends on positions alone: the same tokens are always cut the same way.
        """
        size = self.model.geometry.segment_tokens
        if first % size:
            return min(total, (first // size + 1) * size)
        return min(total, first + self.config.step_tokens)

    @torch.inference_mode()
    def _step(self, sequence: Sequence, end: int, observer: MassObserver | None) -> Tensor:
        first = sequence.num_tokens
        with self.telemetry.phase(Phase.COMPUTE):
            plan = self._stack.plan_step(sequence, end - first)
            attention = ExactAttention(
                plan, self._memory, self.model.rope, self.model.layers, observer
            )
            try:
                logits = self._forward(sequence.token_ids[first:end], plan, attention)
            except BaseException:
                attention.close()
                self._stack.abort(sequence, plan)
                raise
            attention.close()
            self._stack.complete(sequence, plan)
        return logits

    def _forward(self, ids: list[int], plan: StepPlan, attention: ExactAttention) -> Tensor:
        device = self.model.device
        positions = torch.arange(plan.first_token, plan.end, device=device)
        output = self.model.model(
            input_ids=torch.tensor(ids, device=device)[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=1,
            kv_context=attention,
        )
        logits: Tensor = output.logits[0, -1]
        return logits

    def generate(
        self,
        sequence: Sequence,
        logits: Tensor,
        sampling: SamplingConfig,
        *,
        observer: MassObserver | None = None,
    ) -> Iterator[int]:
        """Generate an answer token by token; the ids are appended to the sequence as they come.

        The last id of an answer may have no KV yet; the next `compute` gives it some.

        Args:
            sequence: Where the answer goes.
            logits: Logits after its last token, from `compute`.
            sampling: How to choose.
            observer: Collects attention mass.

        Yields:
            Token ids; an end-of-turn token is appended to the sequence but not yielded.
        """
        sampler = Sampler(sampling)
        for produced in range(sampling.max_tokens):
            token = sampler.choose(logits)
            sequence.token_ids.append(token)
            self.telemetry.count_decoded()
            if token in self.model.eos_ids:
                return
            yield token
            if produced + 1 < sampling.max_tokens:
                logits = self.compute(sequence, observer=observer)

    # -- keeping -----------------------------------------------------------------------------

    def _save_full_segments(self, sequence: Sequence) -> None:
        geometry = self.model.geometry
        full = sequence.num_tokens // geometry.segment_tokens * geometry.pages_per_segment
        self._save(sequence, full)

    def _save(self, sequence: Sequence, end_page: int) -> None:
        """Queue every full page below `end_page` that lies only in memory."""
        if not sequence.on_disk:
            return
        size = self.model.geometry.pages_per_segment
        indices = self._stack.unsaved(sequence, end_page)
        for segment in sorted({index // size for index in indices}):
            members = [index for index in indices if index // size == segment]
            run = PageRun(SegmentId(segment), members[0] % size, len(members))
            with self.telemetry.phase(Phase.COMPUTE):
                self._queue_run(sequence, run)
            for index in members:
                place = DiskPlace(SegmentId(segment), index % size)
                self._stack.residency.settle(sequence.table.pages[index], disk=place)
        if indices:
            self._stack.residency.publish()

    def _queue_run(self, sequence: Sequence, run: PageRun) -> None:
        geometry, memory = self.model.geometry, self._memory
        assert memory.transfer is not None
        first = run.segment * geometry.pages_per_segment + run.first
        pages = sequence.table.pages[first : first + run.num_pages]
        slots = [self._stack.residency.need_host(page, ()) for page in pages]
        for half in Part:
            for layer in range(geometry.num_layers):
                buffer = memory.transfer.take_buffer()
                for row, slot in enumerate(slots):
                    buffer.pages[row].copy_(
                        memory.host.view(layer, half, slot, 0, geometry.page_tokens)
                    )
                memory.transfer.write(buffer, run, half, layer)

    def _checkpoint_if_due(self, sequence: Sequence) -> None:
        due = time.monotonic() - self._last_commit > self.config.checkpoint_seconds
        if due and self._named and sequence.on_disk:
            self.commit(sequence)

    def commit(
        self,
        sequence: Sequence,
        *,
        spans: list[dict[str, object]] | None = None,
        notes: dict[str, object] | None = None,
    ) -> None:
        """Make everything computed so far durable in the session file.

        Args:
            sequence: The main sequence.
            spans: Source map entries to append, JSON.
            notes: The caller's own state, replaced whole; None leaves it.

        Raises:
            StorageError: The disk is full or failed; the last commit stands.
        """
        if not self._named or self.file is None:
            return
        page_tokens = self.model.geometry.page_tokens
        self._save(sequence, sequence.num_tokens // page_tokens)
        with self.telemetry.phase(Phase.WRITE):
            if self._memory.transfer is not None:
                self._memory.transfer.drain()
            self.file.commit(
                token_ids=sequence.token_ids[self._committed_ids :],
                kv_tokens=sequence.num_tokens,
                spans=spans or [],
                notes=notes,
                tail=self._tail(sequence),
            )
        self._committed_ids = len(sequence.token_ids)
        self._last_commit = time.monotonic()
        self._stack.residency.publish()

    def _tail(self, sequence: Sequence) -> memoryview | None:
        used = sequence.table.tokens_in_last_page
        if not used:
            return None
        slot = self._stack.residency.need_host(sequence.table.pages[-1], ())
        page = self._memory.host.page(slot).clone()
        page[:, :, :, used:] = 0
        return memoryview(page.view(torch.uint8).numpy().reshape(-1))

    def check_integrity(self) -> None:
        """Recount pages, slots and counts; raises AssertionError on our own bug."""
        self._stack.check_integrity()

    def close(self) -> None:
        """Stop the threads and close the file; whatever was not committed is gone."""
        if self._memory.transfer is not None:
            self._memory.transfer.close()
        if self.file is not None:
            self.file.close()


def identity_of(model: LoadedModel) -> Identity:
    """What a session file of this model must have been computed with."""
    return Identity(
        model=model.name,
        weights=model.weights_fingerprint,
        tokenizer=model.tokenizer_fingerprint,
        template=model.template_fingerprint,
        rope=model.rope_fingerprint,
        dtype=model.geometry.dtype,
    )
