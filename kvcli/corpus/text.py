"""Plain text and Markdown to spans of whole lines.

Owns what a line is and where prose may be cut: at blank lines, and in Markdown at headings.
Knows no encodings and no code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from .spans import Span


@dataclass(frozen=True, slots=True)
class CutSize:
    """How large a span may grow, in lines and characters."""

    soft_lines: int
    """From here on, the next blank line ends the span."""
    max_lines: int
    max_chars: int
    """A single longer line still stays one span."""


PROSE = CutSize(soft_lines=40, max_lines=60, max_chars=4_000)


def split_lines(text: str) -> list[str]:
    r"""Cut after every "\n" (or after "\r" where a file knows no "\n"); joined, it is the text.

    `str.splitlines` would also cut at form feeds and U+2028, and line numbers would be wrong.
    """
    ending = "\n" if "\n" in text or "\r" not in text else "\r"
    lines = text.split(ending)
    last = lines.pop()
    return [line + ending for line in lines] + ([last] if last else [])


def whole_characters(text: str) -> str:
    """Join surrogates to characters and replace those left over, which no file could hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut_lines(
    lines: Sequence[str], first: int, end: int, size: CutSize = PROSE, name: str | None = None
) -> list[Span]:
    """Cut `lines[first:end]` (0-based) into spans, at blank lines where one is near."""
    offsets = [0, *accumulate(map(len, lines[first:end]))]
    spans = []
    start = first
    while start < end:
        stop = _next_cut(lines, start, end, offsets, first, size)
        spans.append(Span("".join(lines[start:stop]), lines=(start + 1, stop), name=name))
        start = stop
    return spans


def _next_cut(
    lines: Sequence[str], start: int, end: int, offsets: list[int], first: int, size: CutSize
) -> int:
    paragraph = start
    for at in range(start + 1, end):
        after_blank = not lines[at - 1].strip() and lines[at].strip()
        if after_blank and at - start >= size.soft_lines:
            return at
        if after_blank:
            paragraph = at
        too_long = offsets[at + 1 - first] - offsets[start - first] > size.max_chars
        if too_long or at - start >= size.max_lines:
            return paragraph if paragraph - start > (at - start) // 2 else at
    return end


def cut_text(text: str) -> list[Span]:
    """Spans of a plain text file, cut between paragraphs."""
    lines = split_lines(text)
    return cut_lines(lines, 0, len(lines))


def cut_markdown(text: str) -> list[Span]:
    """Spans of a Markdown file: one or more to a section, named by its headings ("Use > Linux")."""
    lines = split_lines(text)
    return cut_sections(lines, _headings(lines))


def cut_sections(lines: Sequence[str], headings: Sequence[tuple[int, int, str]]) -> list[Span]:
    """Spans named by their trail of headings.

    Args:
        lines: The whole file.
        headings: Line (0-based), level and title of each, first to last.
    """
    starts = [*(at for at, _, _ in headings), len(lines)]
    spans = cut_lines(lines, 0, starts[0])
    trail = Trail()
    for (start, level, title), end in zip(headings, starts[1:], strict=True):
        spans += cut_lines(lines, start, end, name=trail.enter(level, title))
    return spans


class Trail:
    """The headings above a place, as its name: "Use > Linux"."""

    def __init__(self, *above: str) -> None:
        self._entries = [(0, title) for title in above]

    def enter(self, level: int, title: str) -> str | None:
        """The name below a further heading; level 1 is the outermost."""
        self._entries = [entry for entry in self._entries if entry[0] < level]
        self._entries.append((level, title))
        return self.name

    @property
    def name(self) -> str | None:
        """The name below the last heading; None before the first."""
        return " > ".join(title for _, title in self._entries if title) or None


_MAX_TITLE_CHARS = 80
"""A heading's name goes with every span below it; a longer one is cut."""
_BLANKS = " \t\r\n"
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t\r\n]|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*\r?\n?$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_NOT_A_PARAGRAPH = re.compile(r"\s*$| {4}|\t| {0,3}(?:[#>|]|[-*+] |\d+[.)] )")


def _headings(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """Line (0-based), level and title of every heading outside fenced code."""
    found = []
    fence = ""
    for at, line in enumerate(lines):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
        elif mark:
            fence = mark[1]
        elif atx := _ATX.match(line):
            found.append((at, len(atx[1]), _title(_without_closing_hashes(line[atx.end() :]))))
        elif at and (under := _UNDERLINE.match(line)) and _is_title(lines, at - 1):
            found.append((at - 1, 1 if under[1][0] == "=" else 2, _title(lines[at - 1])))
    return found


def _without_closing_hashes(text: str) -> str:
    """What stands behind a heading's hashes: `Use ##` is called `Use`, `C#` is `C#`."""
    text = text.strip(_BLANKS)
    shorter = text.rstrip("#")
    return shorter if not shorter or shorter[-1] in _BLANKS else text


def _title(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _MAX_TITLE_CHARS else f"{text[: _MAX_TITLE_CHARS - 1]}…"


def _is_title(lines: Sequence[str], at: int) -> bool:
    """Whether the line over an underline is a one-line paragraph, and so a heading."""
    alone = at == 0 or not lines[at - 1].strip()
    return alone and not _NOT_A_PARAGRAPH.match(lines[at])
