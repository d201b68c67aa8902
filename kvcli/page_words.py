"""The words of every page of a sequence's documents: what a question shares with them.

Owns when the index of words is made and on which thread. Scoring is `lexical`'s; knows neither the
probe nor what is cited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tokenizers import Tokenizer

from kvcli.lexical import LexicalIndex, LexicalMatch, share_of_words


class PageWords:
    """Pages as words, indexed once, when first needed.

    Args:
        backend: Turns token ids into text.
        token_ids: The sequence's; they may grow behind the documents.
        document_tokens: Leading tokens that are documents.
        page_tokens: Tokens per page.
    """

    def __init__(
        self, backend: Tokenizer, token_ids: Sequence[int], document_tokens: int, page_tokens: int
    ) -> None:
        self._backend, self._ids = backend, token_ids
        self._end, self._size = document_tokens, page_tokens
        self._index: Future[LexicalIndex] | None = None

    def begin(self) -> None:
        """Have the words indexed on a thread, beside the probe: over a million tokens both take
        seconds."""
        self._begun()

    def index(self) -> LexicalIndex:
        """The index; waits for it."""
        return self._begun().result()

    def look_up(self, question: str) -> LexicalMatch:
        """Score every page by the words it shares with a question."""
        return self.index().look_up(question)

    def evidence(self, question: str) -> Callable[[int, int], float]:
        """Give what tells how many of a question's words tokens `[first, end)` have, 0 to 1."""

        def share(first: int, end: int) -> float:
            return share_of_words(question, str(self._backend.decode(list(self._ids[first:end]))))

        return share

    def _begun(self) -> Future[LexicalIndex]:
        if self._index is None:
            size, end = self._size, self._end
            pages = [
                list(self._ids[first : min(first + size, end)]) for first in range(0, end, size)
            ]
            worker = ThreadPoolExecutor(1, thread_name_prefix="word-index")
            self._index = worker.submit(lambda: LexicalIndex(self._backend.decode_batch(pages)))
            worker.shutdown(wait=False)
        return self._index
