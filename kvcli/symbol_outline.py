"""A short outline of what a code file defines, for the header of the file in a prompt.

Owns which names are worth their tokens: an outline is a small share of its file, and what does not
fit is left out from the inside, private names first. Knows spans; knows no grammar and no token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

from kvcli.corpus.spans import Document, Parsed

MAX_ENTRIES = 40
MAX_CHARS = 1_000
"""About 300 tokens."""
MAX_SHARE = 0.025
"""Of the file's characters; names and numbers take more tokens a character than code does."""
MIN_ENTRIES = 3
"""Fewer are seen at a glance."""

_NOT_OUTLINED = frozenset({"css", "html", "json", "toml", "yaml"})
"""Their names are keys and selectors, not what a question asks for."""
_NAME = re.compile(r"[^\W\d][\w$.:#~\\<>, +*=-]{0,59}$")
_BETWEEN = ".:#\\"


@dataclass(slots=True)
class _Entry:
    name: str
    depth: int
    shown: str
    """The name without that of the entry around it."""
    first: int
    last: int

    @property
    def is_private(self) -> bool:
        return self.shown.startswith("_")

    def line(self) -> str:
        return f"{'  ' * self.depth}{self.shown} {self.first}-{self.last}\n"


def outline_of(document: Document) -> str:
    """Names and lines of a file's definitions, members indented; empty where it says little.

    Tests are left out: their names are sentences, and there are more of them than of anything else.
    """
    if document.parsed is not Parsed.DEFINITIONS or document.language in _NOT_OUTLINED:
        return ""
    entries = [entry for entry in _entries(document) if not entry.shown.startswith("test_")]
    room = min(MAX_CHARS, int(MAX_SHARE * sum(len(span.text) for span in document.spans)))
    lines = [entry.line() for entry in _worth(entries, room)]
    return "[defines]\n" + "".join(lines) if len(lines) >= MIN_ENTRIES else ""


def _entries(document: Document) -> list[_Entry]:
    """Every definition once, in order, with the lines of all its parts."""
    found: dict[str, _Entry] = {}
    around: list[_Entry] = []
    for span in document.spans:
        if span.name is None or span.lines is None or not _NAME.match(span.name):
            continue
        while around and not _is_inside(span.name, around[-1].name):
            around.pop()
        entry = found.get(span.name)
        if entry is None:
            outer = around[-1].name if around else ""
            shown = span.name[len(outer) :].lstrip(_BETWEEN)
            entry = _Entry(span.name, len(around), shown, *span.lines)
            found[span.name] = entry
            around.append(entry)
        for one in (entry, *around):
            one.last = max(one.last, span.lines[1])
    return list(found.values())


def _is_inside(name: str, outer: str) -> bool:
    return name == outer or (name.startswith(outer) and name[len(outer)] in _BETWEEN)


def _worth(entries: list[_Entry], room: int) -> list[_Entry]:
    """The entries that fit: public before private ones, outer before inner ones."""

    def rank(entry: _Entry) -> tuple[bool, int]:
        return entry.is_private, entry.depth

    kept: set[str] = set()
    for _, group in groupby(sorted(entries, key=rank), key=rank):
        for entry in group:
            room -= len(entry.line())
            if room < 0 or len(kept) == MAX_ENTRIES:
                return [entry for entry in entries if entry.name in kept]
            kept.add(entry.name)
    return entries
