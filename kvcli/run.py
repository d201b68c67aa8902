"""One open run of the main job: it reads, asks, keeps and tells, and ends well whatever happens.

Owns what the user is told and what is committed when. Made by `kvcli.opening`; knows the engine
through the conversation.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from engine.engine import Engine
from engine.model.load import LoadedModel
from engine.session import SessionFile
from engine.telemetry import Telemetry
from kvcli.conversation import Answer, Conversation, Ending
from kvcli.dashboard import Dashboard
from kvcli.estimate import reading_flops, remember_speed
from kvcli.notes import Notes
from kvcli.options import RunOptions
from kvcli.output import Interrupted, Output
from kvcli.results import RunResult, Skipped, Timings, Usage, io_of, tiers_of
from kvcli.stopping import StopRequest, StopRequested

EMBEDDINGS = ("embed_tokens.weight", "lm_head.weight")
"""Weights that reading a token hardly touches."""


@dataclass(slots=True)
class Run:
    """An open run; a context manager that closes everything it was given."""

    options: RunOptions
    output: Output
    telemetry: Telemetry
    stack: ExitStack
    stop: StopRequest
    model: LoadedModel
    engine: Engine
    conversation: Conversation
    dashboard: Dashboard
    notes: Notes
    file: SessionFile | None
    """The session file; None: nothing is kept."""
    is_resumed: bool = False
    reused_tokens: int = 0
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[str, ...] = ()
    timings: Timings = field(default_factory=Timings)
    recomputed_tokens: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, StopRequested) and not self.conversation.is_asking:
                with suppress(KeyboardInterrupt):  # the last checkpoint stands
                    self._commit()
            if isinstance(error, KeyboardInterrupt):
                raise self._interrupted() from None
        finally:
            self.stack.close()

    def read(self) -> None:
        """Read the documents, or finish reading them, and keep them."""
        started = time.monotonic()
        had_neutral = self.conversation.neutral is not None
        waiting = len(self.conversation.sequence.token_ids) - self.reused_tokens
        self._require_space(waiting)
        computed = self.conversation.read("reading")
        if self.is_resumed:
            self.recomputed_tokens = computed
            self.output.status(f"{self.reused_tokens:,} tokens reused, {computed:,} recomputed")
        seconds = time.monotonic() - started
        self.timings = replace(self.timings, ingest_s=round(seconds, 3))
        if computed and not self.is_resumed:
            remember_speed(self.model.device.type, self._reading_flops(computed), seconds)
        has_neutral = self.conversation.neutral is not None
        if self.conversation.is_fresh and not has_neutral:
            self.output.detail("no room for a neutral question: citations will be less sharp")
        if computed or has_neutral != had_neutral:
            self.save()

    def _reading_flops(self, tokens: int) -> float:
        weights = self.model.model.named_parameters()
        matrices = [w for name, w in weights if w.ndim == 2 and not name.endswith(EMBEDDINGS)]
        return reading_flops(
            tokens,
            is_bounded=self.conversation.sequence.local_window is not None,
            matrix_params=sum(weight.numel() for weight in matrices),
            num_layers=self.model.geometry.num_layers,
            num_heads=self.model.num_heads,
            head_dim=self.model.geometry.head_dim,
        )

    def ask(self, question: str, *, is_request: bool = False) -> Answer:
        """Ask, stream the answer to stdout, keep the turn; also a turn that the user stopped.

        Raises:
            StopRequested: The user stopped before the answer began.
            KVError: Whatever stops the run.
        """
        more = len(self.conversation.question_ids(question, is_request=is_request))
        self._require_space(more + self.options.max_tokens)
        with self.dashboard.pause():
            try:
                answer = self.conversation.ask(
                    question, self.options.sampling, self.output.answer_token, is_request=is_request
                )
            finally:
                self.output.end_answer()
        self.timings = replace(
            self.timings,
            first_token_s=round(answer.first_token_s, 3),
            decode_s=round(answer.decode_s, 3),
        )
        self.save()
        return answer

    def answer(self, question: str, *, is_request: bool = False) -> None:
        """Ask the one question of this run and tell everything about it.

        Raises:
            Interrupted: The user stopped the answer; what was said is kept.
            KVError: Whatever stops the run.
        """
        answer = self.ask(question, is_request=is_request)
        if answer.ending is Ending.STOPPED:
            raise self._interrupted()
        self.tell(answer)

    def save(self) -> None:
        """Commit the conversation with nothing left to compute, if there is a file."""
        if self.file is not None:
            self.conversation.save(self._new_notes().to_json())

    def _commit(self) -> None:
        """Commit what is computed, if there is a file; computes nothing."""
        self.engine.commit(self.conversation.sequence, notes=self._new_notes().to_json())

    def _new_notes(self) -> Notes:
        self.notes = replace(
            self.notes, turns=self.conversation.turns, neutral=self.conversation.neutral
        )
        return self.notes

    def tell(self, answer: Answer | None) -> None:
        """Print the citations and what the user should know, or everything as JSON."""
        if answer is not None:
            self.output.citations(answer.citations)
            for warning in self._doubts(answer):
                self.output.warn(warning)
                self.warnings += (warning,)
        if self.options.json:
            self.output.json(self.result(answer).to_json())

    def _doubts(self, answer: Answer) -> list[str]:
        if answer.ending is Ending.CUT:
            return [f"the answer was cut at --max-tokens {self.options.max_tokens:,}"]
        if not answer.text and answer.ending is Ending.DONE:
            return ["the model gave an empty answer"]
        return []

    def result(self, answer: Answer | None) -> RunResult:
        """Everything this run has to tell."""
        sample = self.telemetry.sample()
        all_tokens = len(self.conversation.sequence.token_ids)
        return RunResult(
            answer=answer.text if answer else None,
            citations=answer.citations if answer else (),
            model=self.model.name,
            mode=self.notes.mode,
            usage=Usage(
                prompt_tokens=answer.prompt_tokens if answer else all_tokens,
                reused_tokens=self.reused_tokens,
                recomputed_tokens=self.recomputed_tokens,
                new_tokens=answer.new_tokens if answer else 0,
            ),
            tiers=tiers_of(sample),
            io=io_of(sample),
            timings=self.timings,
            session=str(self.file.path) if self.file else None,
            skipped=self.skipped,
            warnings=self.warnings,
        )

    def _require_space(self, more_tokens: int) -> None:
        """Refuse work whose pages the disk has no room for.

        Raises:
            StorageError: Names the bytes needed and free.
        """
        if self.file is None:
            return
        geometry = self.model.geometry
        before = self.conversation.sequence.num_tokens
        segments = geometry.num_segments(before + more_tokens) - geometry.num_segments(before)
        self.file.free_space_check(segments * geometry.segment_bytes + geometry.page_bytes)

    def _interrupted(self) -> Interrupted:
        """What the session file holds now, whatever was lost since."""
        if self.file is None:
            return Interrupted(
                "interrupted; nothing was kept", "Work is kept in a session: --session S.kv."
            )
        kept, known = self.file.kv_tokens, len(self.file.token_ids)
        return Interrupted(
            f"interrupted; {kept:,} of {known:,} tokens are kept in {self.file.path}",
            f"Go on with: kvcli resume {self.file.path}",
        )
