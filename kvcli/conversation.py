"""A conversation over documents: finish reading, ask, cite, keep.

Owns the turns of one sequence: what is appended, what is measured for citations, when it is
committed. Knows prompts and the engine; prints nothing and reads no files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from engine.attention.probe import probe_scores
from engine.attention.recorder import QueryRecorder
from engine.config import SamplingConfig
from engine.engine import Engine
from engine.errors import OverBudget
from engine.lookup import ProbeWay
from engine.sequence import Sequence
from kvcli.answer import Answer, Ending, WindowOutgrown
from kvcli.answer_text import AnswerText
from kvcli.citations import best_pages, cite
from kvcli.corpus.source_map import SourceMap, TokenSpan
from kvcli.lookup import look_up
from kvcli.page_words import PageWords
from kvcli.prompts import NEUTRAL_QUESTIONS, PromptBuilder
from kvcli.results import Citation
from kvcli.stopping import StopRequested


@dataclass(slots=True)
class Conversation:
    """Turns over one sequence.

    Args:
        engine: Computes and keeps.
        builder: Encodes questions.
        sequence: Documents, then turns.
        source_map: Where the documents' tokens came from.
        document_tokens: Leading tokens that are documents.
        turns: Questions put so far.
        check_stop: Called between steps and tokens; raises `StopRequested` to stop.
    """

    engine: Engine
    builder: PromptBuilder
    sequence: Sequence
    source_map: SourceMap
    document_tokens: int
    turns: int
    check_stop: Callable[[], None]
    neutral: Tensor | None = None
    """Attention mass of a neutral question, `[layers, num_heads, num_pages]`, once it is known."""
    is_asking: bool = False
    """Whether a question has been put and its answer has not begun."""
    way: ProbeWay = ProbeWay.AUTO
    """How pages are scored."""
    history: list[TokenSpan] = field(default_factory=list)
    """Earlier turns that have been kept, in order."""
    _words: PageWords | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether nothing has been asked yet, whatever became of the answer."""
        return len(self.sequence.token_ids) <= self.document_tokens

    @property
    def page_tokens(self) -> int:
        """Tokens per page."""
        return self.engine.model.geometry.page_tokens

    def read(self, task: str) -> int:
        """Compute whatever has no KV yet: the documents, or the rest of them.

        Returns:
            Tokens computed.
        """
        waiting = len(self.sequence.token_ids) - self.sequence.num_tokens
        if waiting:
            self._compute(task, None)
        if self.neutral is None and self.is_fresh:
            self.neutral = self._measure_neutral()
        return waiting

    def ask(
        self,
        question: str,
        sampling: SamplingConfig,
        on_text: Callable[[str], None],
        *,
        is_request: bool = False,
    ) -> Answer:
        """Ask and stream the answer.

        Args:
            question: Plain text.
            sampling: How to answer.
            on_text: Given each piece of the answer as it comes.
            is_request: Not a question but a request that names nothing to look for (a summary): it
                is cited by what was attended to while the answer was written, instead of by what
                the question attended to.

        Raises:
            WindowOutgrown: Question and answer do not fit the window; nothing was computed.
            StopRequested: The user stopped before the answer began. The question stays, unanswered.
        """
        started = time.monotonic()
        ids = self.question_ids(question, is_request=is_request)
        self._require_room(question, len(ids), sampling.max_tokens)
        recorder = self.recorder()
        self.is_asking = True
        self.turns += 1
        self.sequence.token_ids.extend(ids)
        logits = self._compute("question", None if is_request else recorder)
        self.is_asking = False
        prompt_tokens = len(self.sequence.token_ids)
        self._publish("answer")
        tokens = self.engine.generate(
            self.sequence, logits, sampling, recorder=recorder if is_request else None
        )
        writing = AnswerText(self.builder.backend, on_text)
        ending = self._write(tokens, writing, lambda: self.sequence.token_ids[-1])
        ended = time.monotonic()
        begun = writing.started_at or ended
        return Answer(
            text=writing.text.strip(),
            citations=self._cite(recorder, None if is_request else question),
            ending=ending,
            prompt_tokens=prompt_tokens,
            new_tokens=writing.num_tokens,
            first_token_s=begun - started,
            decode_s=ended - begun,
        )

    def _write(
        self, tokens: Iterator[int], writing: AnswerText, last_id: Callable[[], int]
    ) -> Ending:
        """Hand on an answer's tokens until there are no more, or the user stops."""
        ending = Ending.DONE
        try:
            for token in tokens:
                writing.add(token)
                if writing.is_over:
                    break
                self.check_stop()
        except StopRequested:
            ending = Ending.STOPPED
        writing.finish()
        was_ended = writing.is_over or last_id() in self.engine.model.eos_ids
        return Ending.CUT if ending is Ending.DONE and not was_ended else ending

    def save(self, notes: dict[str, object] | None = None) -> None:
        """Compute the KV of the last token, so that nothing waits, and commit."""
        waiting = len(self.sequence.token_ids) - self.sequence.num_tokens
        fits = len(self.sequence.token_ids) <= self.engine.model.window
        if waiting and (fits or self.sequence.local_window is not None):
            self.engine.compute(self.sequence)
        new = self._new_turn()
        self.engine.commit(self.sequence, spans=[turn.to_json() for turn in new], notes=notes)
        self.history += new

    def _new_turn(self) -> list[TokenSpan]:
        """What has been said since the last turn that was kept: a question with its answer, and in
        front of it questions that were stopped before theirs."""
        first = self.history[-1].end_token if self.history else self.document_tokens
        more = self.sequence.num_tokens - first
        return [TokenSpan.of_turn(self.turns, first, more)] if more > 0 else []

    def question_ids(self, question: str, *, is_request: bool = False) -> list[int]:
        """The next turn as token ids, from behind what is there to where the answer begins."""
        if self.is_fresh:
            first = self.builder.first_request if is_request else self.builder.first_question
            return first(question)
        return self.builder.next_question(question, self.sequence.token_ids[-1])

    def page_scores(self, question: str) -> list[float]:
        """How much more each page of the documents draws a question than it draws any question."""
        return self._scores(self._probe(self.question_ids(question)))

    def _require_room(self, question: str, question_tokens: int, answer_tokens: int) -> None:
        used, window = len(self.sequence.token_ids), self.engine.model.window
        need = used + question_tokens + answer_tokens
        if need > window:
            raise WindowOutgrown(
                f"{used:,} tokens so far, {question_tokens:,} of the question and "
                f"{answer_tokens:,} for the answer are {need:,}: more than the window of "
                f"{window:,}",
                "Ask for less with --max-tokens, shorten the question, or start a new session.",
                question,
            )

    def _compute(self, task: str, recorder: QueryRecorder | None) -> Tensor:
        def on_step() -> None:
            self._publish(task)
            self.check_stop()

        self._publish(task)
        return self.engine.compute(self.sequence, recorder=recorder, on_step=on_step)

    def _publish(self, task: str) -> None:
        done, total = self.sequence.num_tokens, len(self.sequence.token_ids)
        self.engine.telemetry.publish_task(task, done, total)

    def draws(self, recorder: QueryRecorder) -> list[float]:
        """How much more each page of the documents draws recorded queries than any question's."""
        mass = self.engine.probe(self.sequence, self.document_tokens, recorder, self.way)
        return self._scores(mass)

    def recorder(self) -> QueryRecorder:
        """Keeps queries of the layers that look things up."""
        return QueryRecorder(self.engine.model.lookup_layers)

    def _measure_neutral(self) -> Tensor | None:
        """Where any question looks, by neutral ones on forks; None if a fork does not fit.

        Rounded as the notes store it, so that citations are the same before and after a resume.
        One for all ways of scoring, the largest of any: which way a question takes is open yet.
        """
        ways = self.engine.probe_ways(self.sequence, self.document_tokens)
        questions = map(self.builder.first_question, NEUTRAL_QUESTIONS)
        try:
            masses = [self._probe(ids, *ways) for ids in questions]
        except OverBudget:  # sharper citations are not worth the answer
            return None
        return torch.stack(masses).amax(dim=0).half().float()

    def _probe(self, question_ids: list[int], *ways: ProbeWay) -> Tensor:
        """Run a question behind what is there, on a fork, and score the documents' pages by it.

        Args:
            question_ids: The question.
            ways: The largest mass of these counts; none: `self.way`.
        """
        return self.mass_of(self.queries_of(question_ids), *ways)

    def queries_of(self, question_ids: list[int], behind: int | None = None) -> QueryRecorder:
        """Run a question on a fork, and keep its queries.

        Args:
            question_ids: The question.
            behind: It stands behind so many leading tokens; None: behind all that is there.
        """
        fork = self.engine.fork(self.sequence, behind)
        recorder = self.recorder()
        try:
            if fork.num_tokens < len(fork.token_ids):
                self.engine.compute(fork, on_step=self.check_stop)
            fork.token_ids += question_ids
            self.engine.compute(fork, recorder=recorder, on_step=self.check_stop)
        finally:
            self.engine.drop(fork)
        return recorder

    def mass_of(self, recorder: QueryRecorder, *ways: ProbeWay) -> Tensor:
        """Score the documents' pages by recorded queries; arguments as for `_probe`."""
        masses = [
            self.engine.probe(self.sequence, self.document_tokens, recorder, way)
            for way in ways or (self.way,)
        ]
        return torch.stack(masses).amax(dim=0)

    def _scores(self, mass: Tensor) -> list[float]:
        """Score the documents' pages by what a question draws beyond what any question draws."""
        neutral = torch.zeros_like(mass) if self.neutral is None else self.neutral
        return [float(score) for score in probe_scores(mass, neutral)]

    def _cite(self, recorder: QueryRecorder, question: str | None) -> tuple[Citation, ...]:
        """Cite by what recorded queries draw, and by the words of a question, if there is one."""
        if not recorder.queries:
            return ()
        drawn = self.draws(recorder)
        if question is None:
            return cite(best_pages(drawn), self.source_map, self.page_tokens)
        words = self.words.look_up(question)
        return self.sources(question, look_up(np.array(drawn, np.float32), 0.0, words).scores)

    def sources(self, question: str, scores: list[float]) -> tuple[Citation, ...]:
        """Cite the best pages; pieces of one page are told apart by the question's words."""
        evidence = self.words.evidence(question)
        return cite(best_pages(scores), self.source_map, self.page_tokens, evidence)

    @property
    def words(self) -> PageWords:
        """The words of the documents' pages."""
        if self._words is None:
            ids, end = self.sequence.token_ids, self.document_tokens
            self._words = PageWords(self.builder.backend, ids, end, self.page_tokens)
        return self._words
