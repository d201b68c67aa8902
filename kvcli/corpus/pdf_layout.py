"""Words with boxes to text in reading order: columns one after the other, rows of tables aligned.

Owns what counts as a column of prose and what as a table. Knows neither PDF nor library: lines of
words come in as they were drawn, and whatever is neither goes out as it came. Imports nothing
heavy, for the PDF worker uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import median

BROKEN = "\x02"
"""PDFium's mark for a hyphen at a line's end."""

WIDE_GAP = 0.9
"""Of a line's height: more space than between two words of justified prose."""

_LEAST_COLUMN_LINES = 5
_LEAST_COLUMN_WORDS = 4.0
_LEAST_FILL = 0.75
"""Median of line width by the widest; table cells fill less."""
_LEAST_RUNNING_ON = 0.35
"""Share of lines that begin in the middle of a sentence, which cells of tables hardly do."""
_LEAST_ROWS = 3
_WIDEST_CELL = 60
_MOST_COLUMNS = 12
_MOST_PROSE_COLUMNS = 6
_MOST_LINES = 250
"""Lines of one page that are looked at; each may be compared with all others."""


@dataclass(frozen=True, slots=True)
class Word:
    """Letters without space between them."""

    text: str
    left: float
    right: float


@dataclass(slots=True)
class Line:
    """Words drawn on one baseline, left to right."""

    words: tuple[Word, ...]
    height: float
    text: str
    """As the library gave it."""
    left: float = field(init=False)
    right: float = field(init=False)
    gaps: tuple[tuple[float, float], ...] = field(init=False)
    """Wide spaces between words."""
    free: tuple[tuple[float, float], ...] = field(init=False)
    """The same, and what is left and right of the line."""

    def __post_init__(self) -> None:
        self.left = end = self.words[0].left
        gaps = []
        for word in self.words:
            if word.left - end >= WIDE_GAP * self.height:
                gaps.append((end, word.left))
            end = max(end, word.right)
        self.right, self.gaps = end, tuple(gaps)
        self.free = ((-inf, self.left), *gaps, (end, inf))

    def part(self, left: float, right: float) -> Line | None:
        """The words between two places that lie in its free space."""
        if left <= self.left and self.right <= right:
            return self
        inside = tuple(word for word in self.words if left <= word.left < right)
        text = " ".join(word.text for word in inside)
        return Line(inside, self.height, text) if inside else None


def lay_out(lines: Sequence[Line]) -> str | None:
    """Put lines in reading order and align tables; None: nothing to be done.

    Args:
        lines: In the order in which they were drawn, from the top down.
    """
    if len(lines) > _MOST_LINES:
        return None
    ordered: list[Line] = []
    at = 0
    for first, last in [*_grids(lines), (len(lines), len(lines))]:
        ordered += [*_ordered(lines[at:first]), *lines[first:last]]
        at = last
    changed = any(line is not before for line, before in zip(ordered, lines, strict=False))
    texts, at = [], 0
    for first, rows in _tables(ordered):
        texts += [*(line.text for line in ordered[at:first]), *rows]
        changed, at = True, first + len(rows)
    texts += [line.text for line in ordered[at:]]
    return _join(texts) if changed else None


def _join(texts: list[str]) -> str:
    """Line feeds between lines, none after a broken word, whose mark says where it was broken."""
    return "".join(text if text.endswith(BROKEN) else text + "\n" for text in texts)


# -- columns ---------------------------------------------------------------------------------------


def _column_regions(lines: Sequence[Line]) -> list[tuple[int, int, float]]:
    """Runs of lines that are columns side by side: first, after the last, middle of the gutter."""
    regions: list[tuple[int, int, float]] = []
    at = 0
    while at < len(lines):
        region = _region_from(lines, at)
        if region is None:
            at += 1
        else:
            regions.append((at, *region))
            at = region[0]
    return regions


def _region_from(lines: Sequence[Line], first: int) -> tuple[int, float] | None:
    """The columns that begin with a line, if any do: where they end, and their gutter."""
    best: tuple[int, float] | None = None
    for begin, end in _gaps_at(lines, first):
        last, left, right = first, begin, end
        while last < len(lines) and (free := _free(lines[last], left, right)):
            left, right = free
            last += 1
        gutter = (left + right) / 2
        region = lines[first:last]
        if (best is None or last > best[0]) and _is_prose_in_columns(region, gutter):
            best = last, gutter
            if last == len(lines):
                break
    return best


def _gaps_at(lines: Sequence[Line], at: int) -> Iterator[tuple[float, float]]:
    """Wide spaces in a line, or between it and the next where that stands beside it."""
    line = lines[at]
    if len(line.gaps) < _MOST_COLUMNS:
        yield from line.gaps
    if at + 1 < len(lines) and lines[at + 1].left - line.right >= WIDE_GAP * line.height:
        yield line.right, lines[at + 1].left


def _free(line: Line, left: float, right: float) -> tuple[float, float] | None:
    """What a line leaves free of a gutter, if that is still wide enough for one."""
    for begin, end in line.free:
        begin, end = max(begin, left), min(end, right)
        if end - begin >= WIDE_GAP * line.height:
            return begin, end
    return None


def _is_prose_in_columns(lines: Sequence[Line], gutter: float) -> bool:
    if len(lines) < _LEAST_COLUMN_LINES or not _is_interleaved(lines, gutter):
        return False
    # one after the other: the terms of a list, on the left, are seldom prose
    for borders in ((-inf, gutter), (gutter, inf)):
        column = _part(lines, *borders)
        if len(column) < _LEAST_COLUMN_LINES or not _is_prose(column):
            return False
    return True


def _part(lines: Sequence[Line], left: float, right: float) -> list[Line]:
    return [part for line in lines if (part := line.part(left, right))]


def _is_prose(column: Sequence[Line]) -> bool:
    if not column:
        return False
    widths = [line.right - line.left for line in column]
    fill = median(widths) / max(max(widths), 1e-6)
    words = sum(len(line.words) for line in column) / len(column)
    running_on = sum(line.words[0].text[0].islower() for line in column) / len(column)
    return fill >= _LEAST_FILL and words >= _LEAST_COLUMN_WORDS and running_on >= _LEAST_RUNNING_ON


def _is_interleaved(lines: Sequence[Line], gutter: float) -> bool:
    """Whether the drawing jumps from column to column all the time, not once."""
    both = sum(line.left < gutter < line.right for line in lines)
    sides = [line.left > gutter for line in lines if not line.left < gutter < line.right]
    jumps = sum(a != b for a, b in pairwise(sides))
    return both + jumps // 2 >= _LEAST_COLUMN_LINES


def _ordered(lines: Sequence[Line], depth: int = 0) -> list[Line]:
    """Lines with each region's left column first, then what is right of it, columns again."""
    ordered: list[Line] = []
    at = 0
    for first, last, gutter in _column_regions(lines) if depth < _MOST_PROSE_COLUMNS else ():
        ordered += lines[at:first]
        for column in _part(lines[first:last], -inf, gutter), _part(lines[first:last], gutter, inf):
            ordered += _ordered(_mended(column), depth + 1)
        at = last
    return [*ordered, *lines[at:]]


def _mended(column: Sequence[Line]) -> list[Line]:
    """Hyphens at the ends of lines marked, as the library marks those it sees itself."""
    return [
        Line(line.words, line.height, line.text[:-1] + BROKEN)
        if line.text[-1:] == "-" and line.text[-2:-1].isalpha() and at + 1 < len(column)
        else line
        for at, line in enumerate(column)
    ]


# -- tables ----------------------------------------------------------------------------------------


def _grids(lines: Sequence[Line]) -> Iterator[tuple[int, int]]:
    """Tables of three columns or more with no prose in them, which no column may cut: from, to."""
    at = 0
    while at < len(lines):
        found = _grid_from(lines, at) if len(lines[at].gaps) > 1 else None
        if found and len(found.middles) > 1 and not any(map(_is_prose, found.columns(lines))):
            yield at, found.last
            at = found.last
        else:
            at += 1


def _tables(lines: Sequence[Line]) -> Iterator[tuple[int, list[str]]]:
    """Runs of rows with cells below each other: the first line, and the rows as text."""
    at = 0
    while at < len(lines):
        found = _grid_from(lines, at)
        if found is None:
            at += 1
        else:
            yield at, list(_aligned(found.cells))
            at = found.last


@dataclass(frozen=True, slots=True)
class _Grid:
    first: int
    last: int
    """After its last line."""
    middles: list[float]
    """Of its gutters."""
    cells: list[list[str]]

    def columns(self, lines: Sequence[Line]) -> list[list[Line]]:
        rows = lines[self.first : self.last]
        return [_part(rows, *borders) for borders in pairwise([-inf, *self.middles, inf])]


def _grid_from(lines: Sequence[Line], first: int) -> _Grid | None:
    """The table that begins with a line, if one does."""
    gutters = list(lines[first].gaps)
    if not gutters or len(gutters) >= _MOST_COLUMNS:
        return None
    last = first
    while last < len(lines):
        left = [free for gutter in gutters if (free := _free(lines[last], *gutter))]
        # a row may do without some of the gutters while the table begins, but not without cells
        if not left or (len(left) < len(gutters) and not _may_narrow(lines[last], last - first)):
            break
        gutters = left
        last += 1
    middles = [(left + right) / 2 for left, right in gutters]
    cells = [_cells(line, middles) for line in lines[first:last]]
    while cells and not any(cells[-1][1:]):
        cells.pop()
    full = sum(len(list(filter(None, row))) > 1 for row in cells)
    if full < _LEAST_ROWS or 2 * full < len(cells) or not any(cells[1][1:]):
        return None
    return _Grid(first, first + len(cells), middles, cells)


def _may_narrow(line: Line, num_rows: int) -> bool:
    return bool(line.gaps) and num_rows < _LEAST_ROWS


def _cells(line: Line, middles: list[float]) -> list[str]:
    parts = [line.part(left, right) for left, right in pairwise([-inf, *middles, inf])]
    return [" ".join(word.text for word in part.words) if part else "" for part in parts]


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    widths = [min(max(map(len, column)), _WIDEST_CELL) for column in zip(*rows, strict=True)]
    is_rest = False
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        text = "  ".join(padded).rstrip(" ")
        text = text.lstrip(" ") if is_rest else text
        is_rest = text.endswith(BROKEN)
        if is_rest and after is not None and after[0]:  # the next row begins there, not the rest
            text, is_rest = text[:-1] + "-", False
        yield text
