"""Earlier turns of a chat: which of them a question looks for, and how they stand in front of it.

Owns their scores, the rule when they are wanted and what is shown of them. Their KV lies in pages
like that of the documents, behind it, and is probed like it; but turns are scored among themselves,
and a question that was asked before counts by its answer alone: nothing matches it better than
itself. Knows the conversation.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from engine.attention.probe import probe_scores
from engine.attention.recorder import QueryRecorder
from engine.lookup import ProbeWay
from kvcli.conversation import Conversation
from kvcli.corpus.source_map import TokenSpan
from kvcli.lexical import LexicalIndex
from kvcli.lookup import LEAST_COVERAGE, Lookup, look_up
from kvcli.prompts import NEUTRAL_QUESTIONS
from kvcli.results import Citation

MOST_TURNS = 3
LEAST_SHARE = 0.7
"""Which turns stand in front of a question: at most so many, with this share of the best score."""

MOST_TOKENS = 256
"""Of a longer turn so many are shown, around its best page."""

TIMES_MORE = 2.0
"""So many times as much of the question's words a turn must have as any page has.

Of twelve remarks of a chat the turn had 0.67 to 1.0 of the words of the question for it, pages of
the documents 0 to 0.39; of eight questions in the documents' own words those had 0.54 to 1.0."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What of a chat a question looks for."""

    ids: tuple[int, ...] = ()
    """As it stands in front of the question, the best turn last."""
    citations: tuple[Citation, ...] = ()
    """Best first; their weights add up to 1."""

    @property
    def is_any(self) -> bool:
        """Whether there is anything; then no page of the documents is read beside it, for those
        mislead a small model: with them it told 2 of 12 remarks right, without them 11."""
        return bool(self.ids)


def is_wanted(documents: Lookup, chat: Lookup) -> bool:
    """Whether a question looks for what was said rather than read.

    By words alone: a probe tells where among some pages to look, not whether, and among the few of
    a chat one always stands out.
    """
    return chat.coverage >= max(LEAST_COVERAGE, TIMES_MORE * documents.coverage)


@dataclass(slots=True)
class Recall:
    """Looks things up in a chat.

    Args:
        talk: Whose turns.
    """

    talk: Conversation
    _neutral: list[QueryRecorder] = field(default_factory=list, init=False)
    """What neutral questions ask for, once it is needed."""

    def recall(self, question: str, asked: QueryRecorder, documents: Lookup) -> Recalled:
        """Find the earlier turns that a question looks for.

        Args:
            question: Plain text.
            asked: Its queries.
            documents: What was found in the documents.

        Returns:
            Nothing, if the documents answer to the question as well.
        """
        turns = self.talk.history
        if not turns:
            return Recalled()
        said = LexicalIndex(["\n".join(self._said(turn)) for turn in turns], are_pages=False)
        pages, evidence = self._probe(asked)
        found = look_up(self._of_turns(pages), evidence, said.look_up(question))
        if not is_wanted(documents, found):
            return Recalled()
        scores = found.scores
        best = heapq.nlargest(MOST_TURNS, range(len(turns)), scores.__getitem__)
        best = [turn for turn in best if scores[turn] >= LEAST_SHARE * scores[best[0]]]
        total = sum(scores[turn] for turn in best)
        return Recalled(
            tuple(token for turn in reversed(best) for token in self._shown(turns[turn], pages)),
            tuple(_citation(turns[turn], scores[turn] / total) for turn in best),
        )

    # -- scores --------------------------------------------------------------------------------

    @property
    def _page_tokens(self) -> int:
        return self.talk.engine.model.geometry.page_tokens

    @property
    def _first_page(self) -> int:
        return self.talk.document_tokens // self._page_tokens

    def _probe(self, asked: QueryRecorder) -> tuple[NDArray[np.float32], float]:
        """Score the pages of the chat, and say how much of one head's attention the best draws."""
        talk, first = self.talk, self._first_page * self._page_tokens
        if not self._neutral:
            questions = map(talk.builder.first_question, NEUTRAL_QUESTIONS)
            self._neutral = [talk.queries_of(ids, talk.document_tokens) for ids in questions]
        end = talk.history[-1].end_token
        mass, *neutral = (
            talk.engine.probe(talk.sequence, end, queries, ProbeWay.SCAN, first)
            for queries in (asked, *self._neutral)
        )
        usual = torch.stack(neutral).amax(dim=0)
        return probe_scores(mass, usual).numpy(), max(0.0, float((mass - usual).max()))

    def _of_turns(self, pages: NDArray[np.float32]) -> NDArray[np.float32]:
        scores = (pages[slice(*self._pages(turn))].max() for turn in self.talk.history)
        return np.fromiter(scores, np.float32)

    def _pages(self, turn: TokenSpan) -> tuple[int, int]:
        """The pages `[first, end)` of a turn, counted from the first page of the chat."""
        size, before = self._page_tokens, self._first_page
        return turn.first_token // size - before, -(-turn.end_token // size) - before

    # -- text ----------------------------------------------------------------------------------

    def _said(self, turn: TokenSpan) -> tuple[str, str]:
        """What a turn adds to the chat: a remark, whatever the model made of it, or an answer.

        Returns:
            What the user and what the model said; one of them is empty.
        """
        ids = self.talk.sequence.token_ids[turn.first_token : turn.end_token]
        text, answer = self.talk.builder.turn_parts(ids)
        return ("", answer) if text.endswith("?") else (text, "")

    def _shown(self, turn: TokenSpan, pages: NDArray[np.float32]) -> list[int]:
        """A turn in front of a question; of a long one the part around its best page."""
        ids = self.talk.sequence.token_ids[turn.first_token : turn.end_token]
        text, answer = self.talk.builder.turn_parts(ids)
        shown = self.talk.builder.said_before(text, answer if text.endswith("?") else "")
        if len(shown) <= MOST_TOKENS:
            return shown
        size, (first, end) = self._page_tokens, self._pages(turn)
        best = (self._first_page + first + int(pages[first:end].argmax())) * size
        begin = max(0, best + size // 2 - turn.first_token - MOST_TOKENS // 2)
        begin = min(begin, len(shown) - MOST_TOKENS)
        return shown[begin : begin + MOST_TOKENS]


def _citation(turn: TokenSpan, weight: float) -> Citation:
    return Citation(turn.path, name=turn.name, weight=round(weight, 4), text=turn.cite())
