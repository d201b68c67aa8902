"""From a token's index back to the file and lines, or the page, that it came from.

Owns the map that a session file stores and how a source is written in a citation. Knows neither
tokenizers nor file formats: whoever encodes the spans makes the token spans.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import SessionError

from .spans import Span

CHAT = "chat"
"""The path of what was said in a chat."""


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """A run of tokens with one source: `num_tokens` tokens from `first_token` on."""

    first_token: int
    num_tokens: int
    path: str
    page: int | None = None
    label: str | None = None
    lines: tuple[int, int] | None = None
    name: str | None = None
    note: str | None = None
    """What stands in front of an excerpt of the span: a table's header row."""
    turn: int | None = None
    """Of which turn of a chat, counted from 1; None: of a document."""

    @property
    def end_token(self) -> int:
        """The index after the last token."""
        return self.first_token + self.num_tokens

    @classmethod
    def of(cls, span: Span, path: str, first_token: int, num_tokens: int) -> TokenSpan:
        """The token span of a text span of the document shown as `path`."""
        return cls(
            first_token,
            num_tokens,
            path,
            span.page,
            span.label,
            span.lines,
            span.name,
            span.note,
        )

    @classmethod
    def of_turn(cls, turn: int, first_token: int, num_tokens: int) -> TokenSpan:
        """The token span of a question with its answer."""
        return cls(first_token, num_tokens, CHAT, name=f"turn {turn}", turn=turn)

    def cite(self) -> str:
        """The source as a reader is shown it: `report.pdf p. 12 (labelled "xii")`, `app.py:4-9`,
        `mail.eml "Bridge 7"`, `turn 3 of this chat`."""
        if self.turn is not None:
            return f"turn {self.turn} of this chat"
        if self.page is not None:
            label = f' (labelled "{self.label}")' if self.label is not None else ""
            return f"{self.path} p. {self.page}{label}"
        # Lines of a notebook count within their cell, so the cell has to be named with them.
        in_cell = self.path.endswith(".ipynb") and self.name is not None
        where = f"{self.path} {self.name}" if in_cell else self.path
        if self.lines is None:
            return f'{self.path} "{self.name}"' if self.name and not in_cell else where
        first, last = self.lines
        return f"{where}:{first}" if first == last else f"{where}:{first}-{last}"

    def to_json(self) -> dict[str, Any]:
        """A compact dict for the session file; fields that are None are left out."""
        optional = {
            "page": self.page,
            "label": self.label,
            "lines": list(self.lines) if self.lines else None,
            "name": self.name,
            "note": self.note,
            "turn": self.turn,
        }
        present = {key: value for key, value in optional.items() if value is not None}
        return {"at": self.first_token, "n": self.num_tokens, "path": self.path, **present}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> TokenSpan:
        """The inverse of `to_json`.

        Raises:
            SessionError: a field is missing or of the wrong type.
        """
        try:
            lines = fields.get("lines")
            return cls(
                int(fields["at"]),
                int(fields["n"]),
                str(fields["path"]),
                page=fields.get("page"),
                label=fields.get("label"),
                lines=(int(lines[0]), int(lines[1])) if lines else None,
                name=fields.get("name"),
                note=fields.get("note"),
                turn=int(fields["turn"]) if "turn" in fields else None,
            )
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise SessionError(f"the source map holds a malformed entry: {error!r}") from error


class SourceMap:
    """Token spans in token order. Tokens between them are prompt scaffolding and have no source."""

    def __init__(self, token_spans: Iterable[TokenSpan] = ()) -> None:
        self._spans = tuple(span for span in token_spans if span.num_tokens > 0)
        self._starts = [span.first_token for span in self._spans]
        ends = [0, *(span.end_token for span in self._spans)]
        assert all(start >= end for start, end in zip(self._starts, ends, strict=False))

    @property
    def spans(self) -> Sequence[TokenSpan]:
        """All token spans, first token first."""
        return self._spans

    def locate(self, token_index: int) -> TokenSpan | None:
        """The span that holds a token, or None for prompt scaffolding."""
        at = bisect_right(self._starts, token_index) - 1
        if at < 0 or token_index >= self._spans[at].end_token:
            return None
        return self._spans[at]

    def overlapping(self, first_token: int, num_tokens: int) -> tuple[TokenSpan, ...]:
        """The spans with a token in `[first_token, first_token + num_tokens)`, in order."""
        at = max(0, bisect_right(self._starts, first_token) - 1)
        end = first_token + num_tokens
        found = []
        for span in self._spans[at:]:
            if span.first_token >= end:
                break
            if span.end_token > first_token:
                found.append(span)
        return tuple(found)

    def without_turns(self) -> tuple[SourceMap, list[TokenSpan]]:
        """The map of the documents alone, and the turns of a chat about them."""
        turns = [span for span in self._spans if span.turn is not None]
        return SourceMap(span for span in self._spans if span.turn is None), turns

    def to_json(self) -> list[dict[str, Any]]:
        """Every token span as a compact dict."""
        return [span.to_json() for span in self._spans]

    @classmethod
    def from_json(cls, entries: Iterable[Mapping[str, Any]]) -> SourceMap:
        """The inverse of `to_json`.

        Raises:
            SessionError: an entry is malformed, or entries overlap.
        """
        spans = [TokenSpan.from_json(fields) for fields in entries]
        end = 0
        for span in spans:
            if span.num_tokens < 0 or span.first_token < end:
                raise SessionError("the source map's entries overlap or are out of order")
            end = span.end_token
        return cls(spans)
