"""The text of one answer as it grows, token by token.

Owns when tokens have become whole characters, and that an answer ends where it closes the document
that it was read from, which small models do for want of a better end. Knows tokenizers; knows
neither turns nor streams.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

CLOSING = "</document"
"""Begins the tag behind every document of a prompt."""

_BEGINNINGS = "|".join(CLOSING[:length] for length in range(len(CLOSING) - 1, 0, -1))
_MAYBE_CLOSING = re.compile(rf"\s*(?:{_BEGINNINGS})?\Z")


class AnswerText:
    """Hands on text as soon as it is whole.

    Args:
        backend: The tokenizer.
        on_text: Given each piece; the pieces joined are the answer.
    """

    def __init__(self, backend: Tokenizer, on_text: Callable[[str], None]) -> None:
        self.text = ""
        self.num_tokens = 0
        self.started_at: float | None = None
        """When the first token came, by the monotonic clock, seconds."""
        self._backend = backend
        self._on_text = on_text
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._held = ""
        """What may yet become a closing tag."""
        self.is_over = False
        """Whether the answer has closed a document: nothing more comes of it."""

    def add(self, token: int) -> None:
        """Take a token, and hand on what it completes."""
        if self.started_at is None:
            self.started_at = time.monotonic()
        self._ids.append(token)
        self.num_tokens += 1
        self._hand_on(self._stream.step(self._backend, token) or "")

    def finish(self) -> None:
        """Hand on what was held back: no later token will complete it."""
        whole = str(self._backend.decode(self._ids, skip_special_tokens=True))
        if not self.is_over and whole.startswith(self.text):
            self._give(whole.removeprefix(self.text))

    def _hand_on(self, piece: str) -> None:
        """Hand on all but what may be the beginning of a closing tag, with the space before."""
        if self.is_over:
            return
        before, tag, _ = (self._held + piece).partition(CLOSING)
        self.is_over = bool(tag)
        tail = _MAYBE_CLOSING.search(before)
        assert tail is not None
        sure = len(before.rstrip()) if tag else tail.start()
        self._held = "" if tag else before[sure:]
        self._give(before[:sure])

    def _give(self, piece: str) -> None:
        if piece:
            self.text += piece
            self._on_text(piece)
