"""Blocks of readable text to spans: what readers of HTML, e-books and office documents share.

Owns how blocks are put together: the trail of headings as a name, a blank line between paragraphs,
the header row that goes with the rest of a long table. Knows no format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .spans import Span
from .text import PROSE, Trail

_NUMBER = re.compile(r"^\d[\d.]*\s+")


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, a heading, a list item, a row of a table or a listing, without its last line
    end."""

    text: str
    lines: tuple[int, int] | None = None
    """Where it stands in the file, where that is known."""
    level: int = 0
    """Of a heading: 1 is the outermost; 0: not a heading."""
    is_tight: bool = False
    """Follows the block before it without a blank line, as a row follows a row."""
    note: str | None = None
    """The header row of the table that the block is a row of."""


def spans_of(blocks: Iterable[Block], *above: str) -> list[Span]:
    """Spans cut at headings and between blocks, named by their headings below `above`."""
    spans: list[Span] = []
    trail = Trail(*above)
    held: list[Block] = []
    num_lines = num_chars = 0
    for block in blocks:
        name = trail.name
        is_full = (
            num_lines >= (PROSE.max_lines if block.is_tight else PROSE.soft_lines)
            or num_chars + len(block.text) > PROSE.max_chars
        )
        if held and (block.level or is_full):
            spans.append(_span(held, name))
            held, num_lines, num_chars = [], 0, 0
        if block.level:
            title = " ".join(block.text.lstrip("# ").split())[:120]
            # A chapter begins with its own title, often numbered where the contents are not.
            if not above or _NUMBER.sub("", title) != _NUMBER.sub("", above[-1]):
                trail.enter(block.level, title)
        held.append(block)
        num_lines += block.text.count("\n") + (1 if block.is_tight else 2)
        num_chars += len(block.text)
    return [*spans, _span(held, trail.name)] if held else spans


def _span(blocks: list[Block], name: str | None) -> Span:
    parts = [blocks[0].text]
    for block in blocks[1:]:
        parts.append("\n" if block.is_tight else "\n\n")
        parts.append(block.text)
    known = [block.lines for block in blocks if block.lines is not None]
    lines = (min(first for first, _ in known), max(last for _, last in known)) if known else None
    return Span("".join([*parts, "\n"]), lines=lines, name=name, note=blocks[0].note)
