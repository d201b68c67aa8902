"""The engine: token ids in, token ids out, their KV kept in pages over three tiers.

Owns the step loop, commits of the session file and the life of every tier. Knows no documents, no
prompts and no screens. A caller appends ids to a `Sequence` and calls `compute` or `generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from engine.assembly import assemble
from engine.attention.gather import gather
from engine.attention.recorder import QueryRecorder
from engine.config import EngineConfig, SamplingConfig
from engine.errors import OverBudget
from engine.heap import HeapTrimmer
from engine.keeper import Keeper
from engine.lookup import PageLookup, ProbeWay
from engine.memory.budget import FORK_TOKENS, MemoryPlan
from engine.memory.page_table import PageTable
from engine.model.load import LoadedModel
from engine.restoring import restore, step_again
from engine.sampler import Sampler
from engine.sequence import Sequence
from engine.session import SessionFile
from engine.stepper import Stepper
from engine.telemetry import Phase, Telemetry
from engine.tiers.coding import page_in_codec


class Engine:
    """One model, its tiers and at most one session file.

    Args:
        model: A loaded and hooked model.
        config: Settings.
        telemetry: Where work is booked.
        num_tokens: Tokens the longest sequence may grow to; memory is planned for them.
        file: The session file that takes sealed segments, if the work is to be kept.
        fork_tokens: Tokens that sequences beside the main one may hold.

    Raises:
        OverBudget: The budgets do not hold one segment; nothing was allocated.
        IdentityMismatch: The file belongs to another model, other pages or another codec.
    """

    def __init__(
        self,
        model: LoadedModel,
        config: EngineConfig,
        telemetry: Telemetry,
        *,
        num_tokens: int,
        file: SessionFile | None = None,
        fork_tokens: int = FORK_TOKENS,
    ) -> None:
        self.model = model
        self.config = config
        self.telemetry = telemetry
        self._parts = assemble(
            model, config, telemetry, num_tokens=num_tokens, file=file, fork_tokens=fork_tokens
        )
        self._stack, self._memory = self._parts.stack, self._parts.memory
        self._prefetcher = self._parts.prefetcher
        self._session = file
        self._lookup = PageLookup(
            self._parts, model, telemetry, num_tokens=num_tokens, session=file
        )
        self._stepper = Stepper(self._parts, model, self._lookup, telemetry, config.step_tokens)
        self._heap = HeapTrimmer()
        self._keeper = Keeper(
            self._parts,
            self._lookup,
            telemetry,
            is_named=file is not None,
            checkpoint_seconds=config.checkpoint_seconds,
        )

    @property
    def memory_plan(self) -> MemoryPlan:
        """What was allocated."""
        return self._parts.plan

    # -- sequences ---------------------------------------------------------------------------

    def new_sequence(self) -> Sequence:
        """Make the empty main sequence; its sealed segments go to the file, if there is one.

        A file holds one sequence: the main one before it and its forks must have been dropped, and
        a session that has KV is resumed instead.
        """
        file = self._parts.file
        assert file is None or not (self._stack.pool.live() or file.kv_tokens), "the file is taken"
        sequence = self._empty_sequence()
        self._follow(sequence)
        return sequence

    def _follow(self, sequence: Sequence) -> None:
        """Take a new or resumed sequence for the main one."""
        self._stack.residency.main = sequence.table
        self._lookup.follow(sequence)
        if self._prefetcher is not None:
            for policy in self._prefetcher.policies:
                policy.follow(sequence.table.pages)
            self._prefetcher.run()

    def side_sequence(self) -> Sequence:
        """Make an empty sequence beside the main one; it stays in memory."""
        sequence = self._empty_sequence()
        sequence.on_disk = False
        return sequence

    def _empty_sequence(self) -> Sequence:
        table = PageTable(self._stack.pool, self.model.geometry.page_tokens)
        return Sequence(table, on_disk=self._parts.file is not None)

    def resume(
        self, *, recompute: int = 0, on_step: Callable[[Sequence], None] | None = None
    ) -> Sequence:
        """Make the sequence that the session file holds; no KV is read yet but the last page.

        Args:
            recompute: Leading tokens, whole segments, whose KV is computed again instead of being
                read when it is needed (`engine.tiers.cost`). Nothing of the file changes.
            on_step: Given the sequence after each such step; may raise to stop.

        Raises:
            PageCorrupt: The last page fails its checksum.
            OverBudget: The host tier has no slot for it.
        """
        assert self._session is not None
        sequence = self._empty_sequence()
        restore(sequence, self._session, self._parts, self._stepper, recompute, on_step)
        self._follow(sequence)
        return sequence

    def recompute(self, first: int, end: int, *, local_window: int | None) -> list[memoryview]:
        """Compute the KV of stored tokens anew, in the step in which it was computed.

        Nothing changes, neither in the file nor in any sequence.

        Args:
            first: First token of the step; all before it is read from the file, or computed as well
                where that is coded.
            end: One past its last token.
            local_window: As of the sequence that is stored.

        Returns:
            The step's pages at rest, `[num_layers, 2, page slice]` each; the last may be partial.

        Raises:
            PageCorrupt: A page before them fails its checksum.
            OverBudget: The host tier has no room for them.
        """
        assert self._session is not None
        sequence = self.side_sequence()
        sequence.local_window = local_window
        try:
            return step_again(sequence, self._session, self._parts, self._stepper, first, end)
        finally:
            self.drop(sequence)

    def restore_page(self, page_index: int, page: memoryview) -> bool:
        """Give a damaged page of the session its committed bytes back, if it is as it was.

        Args:
            page_index: Counted from the start of the sequence.
            page: As `recompute` gives it.

        Returns:
            Whether it is; if not, nothing was written.

        Raises:
            StorageError: The device failed.
        """
        assert self._session is not None
        coded = page_in_codec(self._session, page_index, page)
        return self._session.restore_page(page_index, coded)

    def fork(self, sequence: Sequence, num_tokens: int | None = None) -> Sequence:
        """Make a sequence that shares the pages so far; what it adds stays in memory.

        Args:
            sequence: Whose pages.
            num_tokens: It ends with so many leading tokens, of which those on no full page have no
                KV yet; None: with all of them.
        """
        full = None if num_tokens is None else num_tokens // self.model.geometry.page_tokens
        return Sequence(
            sequence.table.fork(full), sequence.token_ids[:num_tokens], on_disk=False,
            local_window=sequence.local_window,
        )  # fmt: skip

    def gather(self, sequence: Sequence, pages: list[int]) -> Sequence:
        """Make a sequence of copies of some pages, side by side at compact positions.

        Args:
            sequence: Whose pages are copied, with their token ids.
            pages: Their indices, in the order wanted; all full.

        Raises:
            OverBudget: The host tier has no room for the copies; nothing changed.
            PageCorrupt: A page read back fails its checksum.
            StorageError: The device failed.
        """
        size, gathered = self.model.geometry.page_tokens, self.side_sequence()
        assert all((index + 1) * size <= sequence.num_tokens for index in pages)
        with self.telemetry.phase(Phase.COMPUTE):
            parts, slots = self._stack.plan_gather(sequence, pages, gathered)
            try:
                gather(parts, slots, self._memory)
            except BaseException:
                self._stack.give_up(source for part in parts for source in part.sources)
                self.drop(gathered)
                raise
        gathered.table.advance(len(pages) * size)
        for index in pages:
            gathered.token_ids += sequence.token_ids[index * size : (index + 1) * size]
        self.prefetch()
        self._stack.residency.publish()
        return gathered

    def drop(self, sequence: Sequence) -> None:
        """Release a sequence's pages."""
        gone = sequence.table.drop()
        if self._prefetcher is not None:
            self._prefetcher.forget(gone)
        self._stack.residency.forget(gone)
        self._stack.residency.publish()

    # -- computing ---------------------------------------------------------------------------

    def compute(
        self,
        sequence: Sequence,
        *,
        recorder: QueryRecorder | None = None,
        on_step: Callable[[], None] | None = None,
    ) -> Tensor:
        """Compute the KV of every token that has none yet; at least one must wait.

        Args:
            sequence: Its ids beyond `num_tokens` are computed.
            recorder: Keeps the queries of its layers.
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
        if sequence.local_window is None and total > self.model.window:
            raise OverBudget(
                f"{total:,} tokens do not fit the model's window of {self.model.window:,}",
                "Ask with fewer documents or a model with a longer window.",
            )
        while True:
            end = self._stepper.end(sequence, total)
            logits = self._stepper.run(sequence, end, recorder)
            self._keeper.after_step(sequence)
            self._heap.after_step()
            self.prefetch()
            if on_step is not None:
                on_step()
            if end == total:
                return logits[-1]

    def generate(
        self,
        sequence: Sequence,
        logits: Tensor,
        sampling: SamplingConfig,
        *,
        recorder: QueryRecorder | None = None,
        sampler: Sampler | None = None,
    ) -> Iterator[int]:
        """Generate an answer token by token; the ids are appended to the sequence as they come.

        The last id of an answer may have no KV yet; the next `compute` gives it some.

        Args:
            sequence: Where the answer goes.
            logits: Logits after its last token, from `compute`.
            sampling: How to choose.
            recorder: Keeps the queries of its layers.
            sampler: Has chosen the answer's tokens so far, which count; None: there are none.

        Yields:
            Token ids; an end-of-turn token is appended to the sequence but not yielded.
        """
        sampler = sampler or Sampler(sampling)
        while sampler.num_tokens < sampling.max_tokens:
            token = sampler.choose(logits)
            sequence.token_ids.append(token)
            self.telemetry.count_decoded()
            if token in self.model.eos_ids:
                return
            yield token
            if sampler.num_tokens < sampling.max_tokens:
                logits = self.compute(sequence, recorder=recorder)

    def probe(
        self,
        sequence: Sequence,
        num_tokens: int,
        recorder: QueryRecorder,
        way: ProbeWay = ProbeWay.AUTO,
        first_token: int = 0,
    ) -> Tensor:
        """Score pages of a sequence by the mass that recorded queries put on them.

        Args:
            sequence: Its pages may lie anywhere.
            num_tokens: One past the last token to score; all before it have KV.
            recorder: Queries of a question or an answer.
            way: By every key or by the key sketch, which is of all tokens from the first on.
            first_token: First token to score, the first of a page; none before it counts.

        Returns:
            `[layers, num_heads, num_pages]` fp32, see `engine.attention.probe`.

        Raises:
            PageCorrupt: A page read back fails its checksum.
            StorageError: The device failed.
        """
        with self.telemetry.phase(Phase.COMPUTE):
            queries = recorder.queries
            mass = self._lookup.probe(sequence, num_tokens, queries, way, first_token)
        first_page = first_token // self.model.geometry.page_tokens
        self._stack.weigh(sequence, first_page, mass.sum(dim=(0, 1)).tolist())
        return mass

    def probe_ways(self, sequence: Sequence, num_tokens: int) -> tuple[ProbeWay, ...]:
        """Say in which ways the first tokens can be probed; every key can always be read."""
        return self._lookup.ways(sequence, num_tokens)

    @property
    def sketch_refusal(self) -> str | None:
        """Why there is no key sketch, or not all of it, although one is wanted; one line."""
        return self._lookup.refusal

    # -- prefetching --------------------------------------------------------------------------

    def expect(self, sequence: Sequence, pages: list[int]) -> None:
        """Say which pages of a sequence may be gathered next, likeliest first.

        Args:
            sequence: Whose pages.
            pages: Their indices.
        """
        if self._prefetcher is not None:
            for policy in self._prefetcher.policies:
                policy.rank([sequence.table.pages[index] for index in pages])
            self._prefetcher.run()

    def prefetch(self) -> None:
        """Let in pages that have come, and send for what is wanted next; returns at once."""
        if self._prefetcher is not None:
            self._prefetcher.run()

    # -- keeping -----------------------------------------------------------------------------

    def commit(
        self,
        sequence: Sequence,
        *,
        spans: list[dict[str, object]] | None = None,
        notes: dict[str, object] | None = None,
    ) -> None:
        """Make everything computed so far durable in the session file, if there is one.

        Args:
            sequence: The main sequence.
            spans: Source map entries to append, JSON.
            notes: The caller's own state, replaced whole; None leaves it.

        Raises:
            StorageError: The disk is full or failed; the last commit stands.
        """
        self._keeper.commit(sequence, spans=spans, notes=notes)

    def check_integrity(self) -> None:
        """Recount pages, slots and counts; raises AssertionError on our own bug."""
        self._stack.check_integrity()

    def close(self) -> None:
        """Stop the threads and close the file; whatever was not committed is gone."""
        self._lookup.close()
        if self._prefetcher is not None:
            self._prefetcher.close()
        if self._memory.transfer is not None:
            self._memory.transfer.close()
        if self._parts.file is not None:
            self._parts.file.close()
