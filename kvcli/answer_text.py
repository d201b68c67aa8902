"""The text of one answer as it grows, token by token.

Owns when tokens have become whole characters, and that an answer ends where it closes the document
that it was read from or opens another, which small models do for want of a better end. Knows
tokenizers; knows neither turns nor streams.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

TAGS = ("</document", "<document")
"""What stands around every document of a prompt begins so."""

_TAG = re.compile("|".join(TAGS))
_BEGINNINGS = "|".join(tag[:length] for tag in TAGS for length in range(len(tag) - 1, 0, -1))
_MAYBE_TAG = re.compile(rf"\s*(?:{_BEGINNINGS})?\Z")


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
        """What may yet become a tag."""
        self.is_over = False
        """Whether the answer has come to a tag: nothing more comes of it."""

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
        """Hand on all but what may be the beginning of a tag, with the space before."""
        if self.is_over:
            return
        text = self._held + piece
        tag, tail = _TAG.search(text), _MAYBE_TAG.search(text)
        assert tail is not None
        self.is_over = tag is not None
        sure = tail.start() if tag is None else len(text[: tag.start()].rstrip())
        self._held = text[sure:] if tag is None else ""
        self._give(text[:sure])

    def _give(self, piece: str) -> None:
        if piece:
            self.text += piece
            self._on_text(piece)
