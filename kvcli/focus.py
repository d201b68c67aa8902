"""Focus: answers from documents longer than the window, by reading again what a question looks for.

Owns what a question does to such documents: it is probed against every page, the best pages and
their neighbours are read afresh, exactly and in document order, in front of the question. Knows the
engine and prompts; prints nothing. Turns are not remembered: each question is asked by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from engine.config import SamplingConfig
from engine.errors import OverBudget
from kvcli.answer_text import AnswerText
from kvcli.citations import BEST_PAGES, cite
from kvcli.conversation import Answer, Conversation
from kvcli.corpus.source_map import SourceMap, TokenSpan
from kvcli.prompts import PromptBuilder

LOCAL_WINDOW = 1024
"""Tokens before a step that documents are read with, beside the sinks."""

FOCUS_TOKENS = 2048
"""Most tokens read again: a small model answers better from little."""


@dataclass(frozen=True, slots=True)
class FocusPages:
    """What is read again for one question."""

    anchors: tuple[int, ...]
    """The best pages, best first."""
    runs: tuple[tuple[int, int], ...]
    """Runs of pages `[first, end)` in document order, neighbours included."""


def choose_pages(scores: list[float], most_pages: int) -> FocusPages:
    """Choose the best pages and their neighbours, best first, until `most_pages` are taken.

    Args:
        scores: One per page of the documents.
        most_pages: Pages that may be read again.
    """
    chosen: set[int] = set()
    anchors: list[int] = []
    best = sorted(range(len(scores)), key=lambda page: -scores[page])[:BEST_PAGES]
    for page in [page for page in best if scores[page] > 0.0] or best[:1]:
        wanted = {p for p in (page - 1, page, page + 1) if 0 <= p < len(scores)} - chosen
        if len(chosen) + len(wanted) > most_pages:
            break
        anchors.append(page)
        chosen |= wanted
    ordered = sorted(chosen)
    starts = [b for a, b in pairwise([-2, *ordered]) if b != a + 1]
    ends = [a + 1 for a, b in pairwise([*ordered, len(scores) + 1]) if b != a + 1]
    return FocusPages(tuple(anchors), tuple(zip(starts, ends, strict=True)))


def reading_ids(
    builder: PromptBuilder,
    token_ids: list[int],
    source_map: SourceMap,
    pages: FocusPages,
    page_tokens: int,
) -> list[int]:
    """Lay out the chosen pages as documents, each run under the name of its source.

    Args:
        builder: Encodes what stands around the runs.
        token_ids: Of the whole sequence.
        source_map: Where they came from.
        pages: What to lay out.
        page_tokens: Tokens per page.
    """
    ids = list(builder.scaffolding.head)
    for first, end in pages.runs:
        spans = source_map.overlapping(first * page_tokens, (end - first) * page_tokens)
        for path in dict.fromkeys(span.path for span in spans):
            of_path = [span for span in spans if span.path == path]
            ids += builder.excerpt(path, of_path[0].page)
            ids += _tokens(token_ids, of_path, first * page_tokens, end * page_tokens)
            ids += builder.excerpt_end()
    return ids


def _tokens(token_ids: list[int], spans: list[TokenSpan], first: int, end: int) -> list[int]:
    begin = max(first, spans[0].first_token)
    stop = min(end, spans[-1].end_token)
    return token_ids[begin:stop]


@dataclass(slots=True)
class FocusConversation(Conversation):
    """Questions over documents longer than the window. Arguments as for `Conversation`."""

    def ask(
        self,
        question: str,
        sampling: SamplingConfig,
        on_text: Callable[[str], None],
        *,
        is_request: bool = False,
    ) -> Answer:
        """Probe, read the best pages again, answer from them.

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
        geometry, window = self.engine.model.geometry, self.engine.model.window
        ids = self.builder.first_question(question)
        room = window - len(ids) - sampling.max_tokens
        most_pages = min(FOCUS_TOKENS, room // 2) // geometry.page_tokens
        if most_pages < 3:
            raise OverBudget(
                f"{len(ids):,} tokens of the question and {sampling.max_tokens:,} for the answer "
                f"leave {max(0, room):,} of the window of {window:,} to read with",
                "Ask for a shorter answer with --max-tokens, or shorten the question.",
            )
        self._publish("probe")
        scores = self._scores(self._probe(ids))
        pages = choose_pages(scores, most_pages)
        reading = self.engine.side_sequence()
        try:
            known = self.sequence.token_ids
            reading.token_ids += reading_ids(
                self.builder, known, self.source_map, pages, geometry.page_tokens
            )
            reading.token_ids += ids
            logits = self.engine.compute(reading, on_step=self.check_stop)
            prompt_tokens = len(reading.token_ids)
            writing = AnswerText(self.builder.backend, on_text)
            self._publish("answer")
            ending = self._write(self.engine.generate(reading, logits, sampling), writing, reading)
        finally:
            self.engine.drop(reading)
        self.turns += 1
        ended = time.monotonic()
        begun = writing.started_at or ended
        found = [score if page in pages.anchors else 0.0 for page, score in enumerate(scores)]
        return Answer(
            text=writing.text.strip(),
            citations=cite(found, self.source_map, geometry.page_tokens),
            ending=ending,
            prompt_tokens=prompt_tokens,
            new_tokens=writing.num_tokens,
            first_token_s=begun - started,
            decode_s=ended - begun,
        )
