"""What a reader of a format that may be hostile returns, or why it does not.

Owns the form in which both go through a pipe. Knows no format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .spans import SkipReason, Span


@dataclass(frozen=True, slots=True)
class Reading:
    """The spans of a file, and what to tell about it."""

    spans: Sequence[Span]
    warnings: Sequence[str] = ()


class NotRead(Exception):
    """The file gave no text; the message says why in a few words."""

    def __init__(self, reason: SkipReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class NotThisFormat(Exception):
    """The file is named as what it is not, and may be plain text."""


def to_message(reading: Reading) -> dict[str, Any]:
    """A reading for a pipe."""
    spans = [
        (_encodable(span.text), span.lines, _encodable(span.name), _encodable(span.note))
        for span in reading.spans
    ]
    return {"spans": spans, "warnings": list(reading.warnings)}


def _encodable(text: str | None) -> str | None:
    """Lone surrogates, which some encodings can write, are no text."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def from_message(message: dict[str, Any]) -> Reading:
    """The inverse of `to_message`."""
    spans = [
        Span(text, tuple(lines) if lines else None, name=name, note=note)
        for text, lines, name, note in message["spans"]
    ]
    return Reading(spans, message["warnings"])
