"""Words that a question shares with the pages: BM25, the partner of the probe.

Owns the index of one sequence's pages and the cutting of text into words. Knows text only: no
tokens, no engine. What it finds by shared words the probe may miss, and the other way round.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

_NAME = re.compile(r"(?<=[\w,;:] )[\"'(]*([A-Z]\w*[a-z]\w*)|\b(\w*\d\w*|\w+_\w+)\b")
"""Words with a capital inside a sentence, and words with digits or underscores."""

_FIRST, _LAST = re.compile(r"\w+"), re.compile(r"\w+\Z")

_JOINTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")
"""Where identifiers are made of words."""


@dataclass(frozen=True, slots=True)
class LexicalMatch:
    """What the words of one question found."""

    scores: NDArray[np.float32]
    """One per page, 0 where no word is shared."""
    coverage: float
    """Share of the question's words, weighted by how rare they are, that one page has at best."""
    unknown_names: tuple[str, ...]
    """Names in the question that no page has."""


def _with_whole_words(texts: Sequence[str]) -> list[str]:
    """Give pages that were cut inside a word the rest of it, on both sides of the cut."""
    whole = []
    for page, text in enumerate(texts):
        before = _LAST.search(texts[page - 1]) if page and _FIRST.match(text) else None
        after = _FIRST.match(texts[page + 1]) if page + 1 < len(texts) else None
        tail = after[0] if after and _LAST.search(text) else ""
        whole.append((before[0] if before else "") + text + tail)
    return whole


def _names(question: str) -> list[str]:
    return [capital or code for capital, code in _NAME.findall(question)]


def _words(texts: Sequence[str]) -> list[list[str]]:
    """Cut texts into the stems of the words that name something; *and*, *who* and *it* do not."""
    words: list[list[str]] = bm25s.tokenize(
        [_JOINTS.sub(" ", text) for text in texts], stopwords="en_plus",
        stemmer=Stemmer.Stemmer("english"),  # one a call: it is not for several threads
        show_progress=False, return_ids=False,
    )  # fmt: skip
    return words


def num_words(question: str) -> int:
    """How many words of a question name something."""
    (words,) = _words([question])
    return len(set(words))


def share_of_words(question: str, text: str) -> float:
    """Share of a question's words that a text has, 0 to 1."""
    asked, there = map(set, _words([question, text]))
    return len(asked & there) / len(asked) if asked else 0.0


class LexicalIndex:
    """BM25 (Robertson and Zaragoza 2009) over pages, each with its neighbours.

    A page is too short to hold a question's words together; with the pages before and after it,
    the right one came first 14 times of 16 instead of 10 over two repositories.

    Args:
        texts: One per page.
        are_pages: Whether they follow on from each other; if not, each stands for itself.
    """

    def __init__(self, texts: Sequence[str], *, are_pages: bool = True) -> None:
        words = _words(_with_whole_words(texts) if are_pages else texts)
        reach = 1 if are_pages else 0
        wide = [
            [word for near in words[max(0, page - reach) : page + reach + 1] for word in near]
            for page in range(len(words))
        ]
        self._num_pages = len(wide)
        self._index = bm25s.BM25() if any(wide) else None
        if self._index is not None:
            self._index.index(wide, show_progress=False)

    def look_up(self, question: str) -> LexicalMatch:
        """Score every page by the words it shares with a question."""
        total = np.zeros(self._num_pages, np.float32)
        covered = np.zeros(self._num_pages, np.float32)
        (words,) = _words([question])
        weights = []
        for word in sorted(set(words)):
            scores = self._scores(word)
            pages = int(np.count_nonzero(scores))
            weights.append(math.log(1 + (self._num_pages - pages + 0.5) / (pages + 0.5)))
            total += scores
            covered += weights[-1] * (scores > 0)
        coverage = float(covered.max(initial=0.0)) / sum(weights) if weights else 0.0
        unknown = [name for name in _names(question) if not self._knows(name)]
        return LexicalMatch(total, coverage, tuple(dict.fromkeys(unknown)))

    def _knows(self, name: str) -> bool:
        (words,) = _words([name])
        return not words or any(self._scores(word).any() for word in words)

    def _scores(self, word: str) -> NDArray[np.float32]:
        if self._index is None or word not in self._index.vocab_dict:
            return np.zeros(self._num_pages, np.float32)
        scores: NDArray[np.float32] = self._index.get_scores([word])
        return scores
