"""Boxes of words from a page that PDFium has read, and a cheap look at whether they are needed.

Owns the calls for boxes. Knows nothing of columns and tables but that both leave wide gaps; runs in
the PDF worker.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

from .pdf_layout import BROKEN, WIDE_GAP, Line, Word, lay_out

_LEAST_LINES = 4
_SAMPLE = 3
"""Full lines whose gaps are looked at; more than half must have a wide one."""
_STRETCHED = 1.35
"""Width for each character, by the page's median: words are far apart."""
_RISE = 0.25
"""Of a line's height: more than a footnote's mark is raised."""
_LONG = 150
"""Characters that a line of a page seldom has."""
_MOST_CHARS = 50_000
_LINE = re.compile(rf"[^\r\n{BROKEN}]+{BROKEN}?")
_WORD = re.compile(r"\S+")

_Box = tuple[float, float, float, float]
"""Left, right, bottom, top."""
_Boxes = Callable[[int], _Box | None]


def in_reading_order(text_page: Any, text: str) -> str:
    """The page's text, put in order where its columns were drawn side by side, tables aligned.

    Args:
        text_page: Of PDFium.
        text: What it gave for the whole page.
    """
    if len(text) > _MOST_CHARS or text_page.count_chars() != len(text):
        return text  # boxes are asked for by place in the text
    boxes = _boxes_of(text_page)
    found = [(match.start(), match[0]) for match in _LINE.finditer(text) if match[0].strip()]
    if not found or not _looks_spread(found, boxes):
        return text
    lines: list[Line] = []
    for at, line in found:
        parts = _lines(at, line, boxes)
        if not parts:
            return text
        lines += parts
    laid_out = lay_out(lines)
    return laid_out if laid_out is not None else text


def _boxes_of(text_page: Any) -> _Boxes:
    from pypdfium2 import raw

    rect = raw.FS_RECTF()
    where = ctypes.byref(rect)

    def box(index: int) -> _Box | None:
        if not raw.FPDFText_GetLooseCharBox(text_page.raw, index, where):
            return None
        return rect.left, rect.right, rect.bottom, rect.top

    return box


def _looks_spread(lines: list[tuple[int, str]], boxes: _Boxes) -> bool:
    """Whether lines are wide for their letters, jump from side to side, or have wide gaps."""
    extents: list[tuple[float, float, float]] = []
    for at, line in lines:
        begin = boxes(at + len(line) - len(line.lstrip()))
        end = boxes(at + len(line.rstrip(f" {BROKEN}")) - 1)
        if begin is None or end is None:
            return False
        height = begin[3] - begin[2]
        if abs(begin[2] - end[2]) > height and len(line) > _LONG:
            return True  # lines run together, as columns on different baselines do
        extents.append((begin[0], end[1], height))
    widths = [
        (right - left) / len(line)
        for (left, right, _), (_, line) in zip(extents, lines, strict=True)
    ]
    usual = median(widths)
    stretched = sum(
        width > _STRETCHED * usual and " " in line.strip()
        for width, (_, line) in zip(widths, lines, strict=True)
    )
    jumps = sum(after[0] > before[1] for before, after in pairwise(extents))
    if max(stretched, jumps) >= _LEAST_LINES:
        return True
    widest = max(right - left for left, right, _ in extents)
    full = [at for at, (left, right, _) in enumerate(extents) if right - left > 0.7 * widest]
    return len(full) >= _SAMPLE and _have_gaps([(*lines[at], extents[at][2]) for at in full], boxes)


def _have_gaps(lines: list[tuple[int, str, float]], boxes: _Boxes) -> bool:
    """Whether most lines of a small sample have a wide gap: place, text and height of each."""
    step = len(lines) // _SAMPLE
    without = 0
    for at, line, height in lines[step // 2 :: step][:_SAMPLE]:
        without += not _has_gap(at, line, height, boxes)
        if 2 * without > _SAMPLE:
            return False
    return True


def _has_gap(at: int, line: str, height: float, boxes: _Boxes) -> bool:
    for before, after in pairwise(_WORD.finditer(line)):
        end, begin = boxes(at + before.end() - 1), boxes(at + after.start())
        if end and begin and begin[0] - end[1] >= WIDE_GAP * height:
            return True
    return False


def _lines(at: int, text: str, boxes: _Boxes) -> list[Line]:
    """A line, or several that were run together; none if a box is missing."""
    lines: list[Line] = []
    words: list[Word] = []
    height = bottom = 0.0
    for found in _WORD.finditer(text):
        last = found.end() - 1 - (found[0][-1] == BROKEN and len(found[0]) > 1)
        begin, end = boxes(at + found.start()), boxes(at + last)
        if begin is None or end is None or begin[3] <= begin[2]:
            return []
        word = Word(found[0], min(begin[0], end[0]), max(begin[1], end[1]))
        if words and _is_elsewhere(words[-1], word, begin[2] - bottom, height):
            lines.append(_joined(words, height))
            words = []
        height = begin[3] - begin[2] if not words else max(height, begin[3] - begin[2])
        words.append(word)
        bottom = begin[2]
    return [*lines, _joined(words, height)]


def _is_elsewhere(before: Word, word: Word, rise: float, height: float) -> bool:
    """Whether a word begins another line: it goes back, or stands apart on another baseline."""
    if abs(rise) < _RISE * height:
        return False
    return word.left < before.left or word.left - before.right >= WIDE_GAP * height


def _joined(words: list[Word], height: float) -> Line:
    return Line(tuple(words), height, " ".join(word.text for word in words))
