"""One answer in focus: the pages it is read from, and other ones when it comes to need them.

Owns the working set while an answer is written. Every so often the answer's own queries are put to
all pages; once most of what they draw lies outside the working set, the pages are chosen anew, by
question and answer together, and the answer goes on from those. Knows the engine; prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from engine.config import SamplingConfig
from engine.sampler import Sampler
from engine.sequence import Sequence
from kvcli.citations import best_pages
from kvcli.conversation import Conversation
from kvcli.focus_pages import FocusPages, choose_pages
from kvcli.lookup import scaled
from kvcli.working_set import Reading, lay_out

MOST_ANCHORS = 5
LEAST_SHARE = 0.7
"""Which of the best pages are read: at most so many, with this share of the best one's score. More
of them mislead a small model: of ten hidden facts it told 8 right from up to 5 and 5 from 8."""

STRETCH = 96
"""Tokens of an answer between two looks at all pages."""

LOOK_TOKENS = 16
"""Of those, the last ones whose queries are put to the pages."""

LEAST_DRAWN = 0.5
"""Share of the best pages' score that must lie in the working set; with less, the answer has moved
on to other pages."""


@dataclass(slots=True)
class FocusAnswer:
    """Writes one answer.

    Args:
        talk: Whose documents.
        reading: How pages are read.
        scores: One per page of the documents, as the question looks for them.
        asked: Ids of the question, to stand behind the pages.
        sampling: How to answer.
        most_pages: Pages that may be read.
    """

    talk: Conversation
    reading: Reading
    scores: list[float]
    asked: list[int]
    sampling: SamplingConfig
    most_pages: int
    pages: FocusPages = field(init=False)
    sequence: Sequence | None = field(default=None, init=False)
    """The working set; None before it is read, and after `close`."""
    readings: int = field(default=0, init=False)
    """How often pages were read."""
    prompt_tokens: int = field(default=0, init=False)
    """Tokens in front of what is written now."""
    _answer: list[int] = field(default_factory=list, init=False)
    """Ids of the answer before the pages were read last."""

    @property
    def ids(self) -> list[int]:
        """The answer so far; an end-of-turn token is part of it."""
        assert self.sequence is not None
        return self._answer + self.sequence.token_ids[self.prompt_tokens :]

    @property
    def last_id(self) -> int:
        """The last id of pages, question and answer."""
        assert self.sequence is not None
        return self.sequence.token_ids[-1]

    def read(self) -> Tensor:
        """Read the pages, the question and what has been answered.

        Returns:
            Logits after it, `[vocab_size]`.

        Raises:
            OverBudget: The host tier has no room for the pages.
            StopRequested: The user stopped.
        """
        if self.sequence is not None:
            self._answer = self.ids
        self.close()
        self.pages = self._choose()
        self.sequence = lay_out(self.talk, self.pages, self.reading)
        self.sequence.token_ids += self.asked + self._answer
        self.prompt_tokens = len(self.sequence.token_ids)
        self.readings += 1
        return self.talk.engine.compute(self.sequence, on_step=self.talk.check_stop)

    def tokens(self, logits: Tensor) -> Iterator[int]:
        """Write the answer, token by token.

        Args:
            logits: From `read`.
        """
        engine, sampler = self.talk.engine, Sampler(self.sampling)
        is_over = False
        while not is_over:
            assert self.sequence is not None
            recorder, is_over = self.talk.recorder(), True
            writing = engine.generate(
                self.sequence, logits, self.sampling, recorder=recorder, sampler=sampler
            )
            for token in writing:
                yield token
                written = sampler.num_tokens % STRETCH
                if written == STRETCH - LOOK_TOKENS:
                    recorder.clear()
                if (
                    written == 0
                    and recorder.queries
                    and self._has_moved_on(self.talk.draws(recorder))
                ):
                    logits, is_over = self.read(), False
                    break

    def _has_moved_on(self, drawn: list[float]) -> bool:
        """Whether the answer draws on other pages; then pages are scored by both."""
        best = best_pages(drawn)
        inside = sum(best[page] for page in self.pages.pages)
        if inside >= LEAST_DRAWN * sum(best):
            return False
        before, chosen = self.scores, set(self.pages.pages)
        asked, said = (scaled(np.array(part, np.float32)) for part in (before, drawn))
        self.scores = [float(score) for score in asked + said]
        if set(self._choose().pages) == chosen:
            self.scores = before
            return False
        return True

    def _choose(self) -> FocusPages:
        return choose_pages(
            self.scores, self.most_pages, most_anchors=MOST_ANCHORS, share=LEAST_SHARE
        )

    def close(self) -> None:
        """Release the working set."""
        if self.sequence is not None:
            self.talk.engine.drop(self.sequence)
            self.sequence = None
