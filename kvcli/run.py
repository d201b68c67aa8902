"""One open run of the main job: it reads, asks, keeps and tells, and ends well whatever happens.

Owns what the user is told and what is committed when. Made by `kvcli.opening`; knows the engine
through the conversation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from engine.engine import Engine
from engine.errors import OverBudget
from engine.model.load import LoadedModel
from engine.session import SessionFile, extents_bytes
from engine.telemetry import Telemetry
from kvcli.answer import Answer, Ending
from kvcli.conversation import Conversation
from kvcli.dashboard import Dashboard
from kvcli.estimate import reading_flops, remember_speed
from kvcli.focus import require_room
from kvcli.mode import Mode
from kvcli.notes import Notes, SectionNote
from kvcli.options import RunOptions
from kvcli.output import Interrupted, Output
from kvcli.results import RunResult, SectionResult, Skipped, Timings, Usage, io_of, tiers_of
from kvcli.stopping import StopRequest, StopRequested

NOTE_SECONDS = 5.0
"""Longest time between two commits while notes on sections are made."""


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
    sections: tuple[SectionResult, ...] = ()
    """What was written about sections, in document order."""
    num_sections: int = 0
    """Sections that are to be noted in the session, if this run does that."""
    _kept_at: float = field(default_factory=time.monotonic)

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
        sequence = self.conversation.sequence
        waiting = len(sequence.token_ids) - sequence.num_tokens
        self._require_space(waiting)
        computed = self.conversation.read("reading")
        if self.is_resumed:
            self.recomputed_tokens += computed
            again = self.recomputed_tokens
            self.output.status(f"{self.reused_tokens:,} tokens reused, {again:,} recomputed")
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
        return reading_flops(
            tokens,
            is_bounded=self.conversation.sequence.local_window is not None,
            matrix_params=self.model.matrix_params,
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
        return self.stream(
            lambda on_text: self.conversation.ask(
                question, self.options.sampling, on_text, is_request=is_request
            )
        )

    def stream(self, write: Callable[[Callable[[str], None]], Answer]) -> Answer:
        """Stream an answer to stdout and keep what there is to keep.

        Args:
            write: Writes it, handing each piece on.

        Raises:
            StopRequested: The user stopped before the answer began.
            KVError: Whatever stops the run.
        """
        with self.dashboard.give_way(self.output.answer_token) as on_text:
            try:
                answer = write(on_text)
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
        self.finish(self.ask(question, is_request=is_request))

    def finish(self, answer: Answer) -> None:
        """Tell everything about the one answer of this run.

        Raises:
            Interrupted: The user stopped the answer; what was said is kept.
        """
        if answer.ending is Ending.STOPPED:
            raise self._interrupted()
        self.tell(answer)

    def can_go_beyond(self, question: str) -> bool:
        """Whether a question that does not fit the window any more can be answered with focus."""
        is_exact = self.notes.mode == Mode.EXACT.value and self.options.attention != "exact"
        if self.file is None or not is_exact:
            return False
        asked = len(self.conversation.builder.first_question(question))
        page_tokens = self.model.geometry.page_tokens
        try:
            require_room(self.model.window, asked, self.options.max_tokens, page_tokens)
        except OverBudget:
            return False
        return True

    def keep_note(self, note: SectionNote) -> None:
        """Keep a note on a section, durably within `NOTE_SECONDS`."""
        self.notes = replace(self.notes, sections=(*self.notes.sections, note))
        if time.monotonic() - self._kept_at > NOTE_SECONDS:
            self._commit()

    def save(self) -> None:
        """Commit the conversation with nothing left to compute, if there is a file."""
        if self.file is not None:
            self.conversation.save(self._new_notes().to_json())

    def _commit(self) -> None:
        """Commit what is computed, if there is a file; computes nothing."""
        self.engine.commit(self.conversation.sequence, notes=self._new_notes().to_json())
        self._kept_at = time.monotonic()

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
        refusal = self.engine.sketch_refusal
        if refusal is not None and refusal != self.engine.memory_plan.sketch_refusal:
            return [refusal, *self._doubts_about(answer)]
        return self._doubts_about(answer)

    def _doubts_about(self, answer: Answer) -> list[str]:
        if answer.ending is Ending.CUT:
            return [f"the answer was cut at --max-tokens {self.options.max_tokens:,}"]
        if not answer.text and answer.ending is Ending.DONE:
            return ["the model gave an empty answer"]
        if answer.lookup is not None and answer.lookup.is_spread:
            return ["many places answer to this question; --thorough reads every section"]
        return []

    def result(self, answer: Answer | None) -> RunResult:
        """Everything this run has to tell."""
        sample = self.telemetry.sample()
        all_tokens = len(self.conversation.sequence.token_ids)
        return RunResult(
            answer=answer.text if answer else None,
            citations=answer.citations if answer else (),
            model=self.model.name,
            mode=self.notes.mode if answer is None else answer.mode_of(self.notes.mode),
            is_found=answer is None or answer.is_found,
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
            sections=self.sections,
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
        now, then = (
            extents_bytes(geometry, self.file.coded, tokens)
            for tokens in (before, before + more_tokens)
        )
        self.file.free_space_check(then - now + geometry.page_bytes)

    def _interrupted(self) -> Interrupted:
        """What the session file holds now, whatever was lost since."""
        if self.file is None:
            return Interrupted(
                "interrupted; nothing was kept", "Work is kept in a session: --session S.kv."
            )
        kept, known, path = self.file.kv_tokens, len(self.file.token_ids), self.file.path
        command = "summarize" if self.num_sections else "resume"
        return Interrupted(
            f"interrupted; {kept:,} of {known:,} tokens are kept in {path}" + self._notes_kept(),
            f"Go on with: kvcli {command} {path}",
        )

    def _notes_kept(self) -> str:
        if self.file is None or not self.num_sections:
            return ""
        kept = len(Notes.from_json(self.file.notes).sections)
        return f" and {min(kept, self.num_sections):,} of {self.num_sections:,} notes"
