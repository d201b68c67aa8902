"""Focus: answers from documents longer than the window, from the pages that a question looks for.

Owns what a question does to such documents: every page is scored, the best pages and their
neighbours are put in front of the question, the best last, and the turn is kept behind the
documents. Knows the engine and prompts; prints nothing.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.attention.recorder import QueryRecorder
from engine.config import SamplingConfig
from engine.errors import OverBudget
from kvcli.answer import Answer
from kvcli.answer_text import AnswerText
from kvcli.conversation import Conversation
from kvcli.focus_answer import FocusAnswer
from kvcli.lexical import num_words
from kvcli.lookup import Lookup, look_up
from kvcli.prompts import QUESTION
from kvcli.recall import Recall, Recalled
from kvcli.working_set import Reading

FOCUS_TOKENS = 2048
"""Most tokens of a working set: a small model answers better from little."""

LEAST_PAGES = 3
"""A page and its neighbours."""

HISTORY_TOKENS = 512
"""Longest earlier turn that stands in front of a question; a longer one is left out."""

NEXT_ANCHORS = 16
"""Best pages that are brought in, with their neighbours, for the next question."""

FOLLOW_UP_WORDS = 1
"""A question with no more words than this that name something follows on from the last turn. In
front of any other that turn does harm: with it the default model repeated the last answer to 13 of
20 questions on a manual."""


def require_room(window: int, question_tokens: int, answer_tokens: int, page_tokens: int) -> int:
    """Give the most pages that can be read in front of a question.

    Raises:
        OverBudget: Question and answer leave no room to read anything.
    """
    room = window - question_tokens - answer_tokens
    most_pages = min(FOCUS_TOKENS, room // 2) // page_tokens
    if most_pages < LEAST_PAGES:
        raise OverBudget(
            f"{question_tokens:,} tokens of the question and {answer_tokens:,} for the answer "
            f"leave {max(0, room):,} of the window of {window:,} to read with",
            "Ask for a shorter answer with --max-tokens, or shorten the question.",
        )
    return most_pages


@dataclass(slots=True)
class FocusConversation(Conversation):
    """Questions over documents longer than the window. Arguments as for `Conversation`."""

    reading: Reading = Reading.REREAD
    _earlier: Recall | None = None

    def ask(
        self,
        question: str,
        sampling: SamplingConfig,
        on_text: Callable[[str], None],
        *,
        is_request: bool = False,
    ) -> Answer:
        """Look up, read the best pages, answer from them, keep the turn.

        Args:
            question: Plain text.
            sampling: How to answer.
            on_text: Given each piece of the answer as it comes.
            is_request: Must not be set: a request that names nothing to look for finds no page.

        Raises:
            OverBudget: Question and answer leave no room to read anything.
            StopRequested: The user stopped before the answer began.
        """
        assert not is_request
        started = time.monotonic()
        kept, window = self.question_ids(question), self.engine.model.window
        longest = self._request(question, Recalled())
        require_room(window, len(longest), sampling.max_tokens, self.page_tokens)
        found, recalled = self._look_up_all(question)
        asked = self._request(question, recalled)
        most_pages = require_room(window, len(asked), sampling.max_tokens, self.page_tokens)
        most_pages = 0 if recalled.is_any else most_pages
        answer = FocusAnswer(self, self.reading, found.scores, asked, sampling, most_pages)
        writing = AnswerText(self.builder.backend, on_text)
        is_found = found.is_found or recalled.is_any
        caveat = "" if is_found else f"Not found: {found.doubt}. The nearest pages say:\n"
        try:
            self._publish("focus")
            logits = answer.read()
            if self.reading is Reading.STORED:
                self.engine.expect(self.sequence, self._runners_up(answer.scores))
            prompt_tokens = answer.prompt_tokens
            self._publish("answer")
            if caveat:
                on_text(caveat)
            tokens = answer.tokens(logits)
            ending = self._write(tokens, writing, lambda: answer.last_id)
            answer_ids = answer.ids
        finally:
            answer.close()
        self._keep_turn(kept + answer_ids)
        ended = time.monotonic()
        begun = writing.started_at or ended
        return Answer(
            text=caveat + writing.text.strip(),
            citations=recalled.citations or self.sources(question, answer.scores),
            ending=ending,
            prompt_tokens=prompt_tokens,
            new_tokens=writing.num_tokens,
            first_token_s=begun - started,
            decode_s=ended - begun,
            lookup=found,
            reading=self.reading.value,
            is_recalled=recalled.is_any,
        )

    def _runners_up(self, scores: list[float]) -> list[int]:
        """Full pages that a question on the same subject may be answered from, likeliest first."""
        full = self.document_tokens // self.page_tokens
        best = heapq.nlargest(NEXT_ANCHORS, range(len(scores)), scores.__getitem__)
        near = dict.fromkeys(p for page in best for p in (page, page - 1, page + 1))
        return [page for page in near if 0 <= page < full]

    def question_ids(self, question: str, *, is_request: bool = False) -> list[int]:
        """As `Conversation.question_ids`; later questions have the form of the first, so that what
        neutral ones draw is taken from like."""
        if self.is_fresh:
            return self.builder.first_question(question)
        last = self.sequence.token_ids[-1]
        return self.builder.next_question(f"{QUESTION} {question}", last)

    def page_scores(self, question: str) -> list[float]:
        """As `Conversation.page_scores`, by shared words as well."""
        return self.look_up(question).scores

    def look_up(self, question: str) -> Lookup:
        """Score every page of the documents, and judge whether anything was found."""
        found, _ = self._look_up(question)
        return found

    def _look_up_all(self, question: str) -> tuple[Lookup, Recalled]:
        """Look up in the documents and in what was said before."""
        found, queries = self._look_up(question)
        return found, self._recall().recall(question, queries, found)

    def _recall(self) -> Recall:
        if self._earlier is None:
            self._earlier = Recall(self)
        return self._earlier

    def _look_up(self, question: str) -> tuple[Lookup, QueryRecorder]:
        self._publish("probe")
        self.words.begin()
        queries = self._queries_of(question)
        mass = self.mass_of(queries)
        beyond = mass if self.neutral is None else mass - self.neutral
        probed = np.array(self._scores(mass), np.float32)
        evidence = max(0.0, float(beyond.max())) if beyond.numel() else 0.0
        return look_up(probed, evidence, self.words.look_up(question)), queries

    def _queries_of(self, question: str) -> QueryRecorder:
        """Put a question behind the documents alone, if it does not follow on from the last turn:
        behind a chat with questions like it, it looks for those."""
        if self.is_fresh or num_words(question) <= FOLLOW_UP_WORDS:
            return self.queries_of(self.question_ids(question))
        return self.queries_of(self.builder.first_question(question), self.document_tokens)

    # -- turns -----------------------------------------------------------------------------------

    def _request(self, question: str, recalled: Recalled) -> list[int]:
        """The question, and in front of it the turns it looks for, or the last one if it follows on
        from that."""
        is_follow_up = not recalled.is_any and num_words(question) <= FOLLOW_UP_WORDS
        if is_follow_up and (last := self._last_turn()):
            return last + self.question_ids(question)
        return [*recalled.ids, *self.builder.first_question(question)]

    def _last_turn(self) -> list[int]:
        """Ids of the turn before this one, as the first turn of a conversation would have them."""
        turns = self.sequence.token_ids[self.document_tokens :]
        mark = self.builder.scaffolding.between[1:]
        starts = range(len(turns) - len(mark), -1, -1) if mark else ()
        for start in starts:
            if turns[start : start + len(mark)] == mark:
                turns = turns[start + len(mark) :]
                break
        return turns if len(turns) <= HISTORY_TOKENS else []

    def _keep_turn(self, ids: list[int]) -> None:
        """Append a turn to the documents, so that later questions follow on from it."""
        self.turns += 1
        self.sequence.token_ids += ids
        self.engine.compute(self.sequence)
