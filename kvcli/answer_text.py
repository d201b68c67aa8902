"""The text of one answer as it grows, token by token.

Owns when tokens have become whole characters. Knows tokenizers; knows neither turns nor streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


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
        if whole.startswith(self.text):
            self._hand_on(whole.removeprefix(self.text))

    def _hand_on(self, piece: str) -> None:
        if piece:
            self.text += piece
            self._on_text(piece)
