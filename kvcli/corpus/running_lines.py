"""Running headers and footers: told from the text by their repetition, and kept once.

Owns what counts as one: a line at the edge of a page that its neighbours repeat at the same place,
but for the page's own number. Knows pages as text only, no PDF and no position on paper.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_DEPTH = 3
"""Lines looked at on each edge."""
_REACH = 4
"""Pages on each side that count as neighbours: left and right pages alternate, chapters begin."""
_ENOUGH = 4
"""Pages among a page and its neighbours that have to hold the line; fewer in short documents."""
_LONGEST = 200
_LEAST_LETTERS = 3
"""Below this a repeated line may be a table's cell or the end of a block of code."""
_MOST_NUMBERS = 6

_NUMBER = re.compile(r"(?<![\w.,:])\d{1,5}(?![\w]|[.,:]\d)")
_ROMAN = re.compile(r"(?<!\S)(?=[ivxlc])(c{0,3}(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3}))(?!\S)")
_ROMAN_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_PARTS = re.compile(r"[^\W_]+")
_YEARS = range(1900, 2101)

_Key = tuple[int, str, int | None]
"""Slot, what is repeated, and how far the printed number is from the page's place in the file."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """The pages without repeated running lines."""

    texts: dict[int, str]
    num_lines: int
    """Lines that were taken out."""
    num_pages: int
    """Pages they were taken out of."""
    printed: dict[int, str]
    """Page to the number printed on it, where a running line has one."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """One way to read a line: as repeated whole, or as a title with the page's number."""

    title: str
    offset: int | None = None
    """The number less the page's index; None: the line has no page number."""
    printed: str = ""
    at_end: bool = False
    """The number is the first or the last word, so that the title may change."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A line at an edge."""

    page: int
    slot: int
    """From the top 1, 2, 3; from the foot -1, -2, -3."""
    line: int
    """Index among the page's lines."""
    readings: tuple[_Reading, ...]


def clear_running_lines(texts: Mapping[int, str]) -> Cleared:
    """Take running headers and footers out of all pages but the first of each run.

    A line goes only if its neighbours hold it at the same place: the same words and the number that
    follows from the page's place, or beside such a number a title that was there a few pages ago.
    A page that held nothing else keeps what it has.

    Args:
        texts: Page index in the file to text, lines apart by line feeds.
    """
    edges = {page: list(_candidates(page, text.split("\n"))) for page, text in texts.items()}
    evidence = _Evidence([line for lines in edges.values() for line in lines], len(texts))
    cleared = dict(texts)
    printed: dict[int, str] = {}
    num_lines = num_pages = 0
    for page in sorted(texts):
        repeated, number = evidence.judge(edges[page])
        if number:
            printed[page] = number
        lines = texts[page].split("\n")
        kept = [line for at, line in enumerate(lines) if at not in repeated]
        if repeated and any(line.strip() for line in kept):
            cleared[page] = "\n".join(kept)
            num_lines += len(repeated)
            num_pages += 1
    return Cleared(cleared, num_lines, num_pages, printed)


def _candidates(page: int, lines: list[str]) -> Iterator[_Candidate]:
    filled = [at for at, line in enumerate(lines) if line.strip()]
    for slot, at in enumerate(filled[:_DEPTH], 1):
        yield _Candidate(page, slot, at, tuple(_readings(page, lines[at])))
    for slot, at in enumerate(reversed(filled[-_DEPTH:]), 1):
        yield _Candidate(page, -slot, at, tuple(_readings(page, lines[at])))


def _readings(page: int, line: str) -> Iterator[_Reading]:
    line = " ".join(line.split()).casefold()
    if len(line) > _LONGEST:
        return
    for printed, value, begin, end in _numbers(line):
        offset = value - page
        if value in _YEARS and offset > 1000:
            continue
        before, after = line[:begin].strip(), line[end:].strip()
        at_end = not (_PARTS.search(before) and _PARTS.search(after))
        title = f"{before} {after}".strip() if at_end else f"{before} # {after}"
        yield _Reading(title.strip("-–—|·• "), offset, printed, at_end)
    if sum(map(str.isalpha, line)) >= _LEAST_LETTERS:
        yield _Reading(line)


def _numbers(line: str) -> Iterator[tuple[str, int, int, int]]:
    """Numbers that may be a page's: as printed, value, begin and end."""
    for count, found in enumerate(_NUMBER.finditer(line)):
        if count == _MOST_NUMBERS:
            return
        yield found[0], int(found[0]), *found.span()
    for found in _ROMAN.finditer(line):
        if found[1]:
            yield found[1], _roman_value(found[1]), *found.span(1)


def _roman_value(numeral: str) -> int:
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    following = [*values[1:], 0]
    return sum(-v if v < after else v for v, after in zip(values, following, strict=True))


class _Evidence:
    """On which pages each reading was met, over the whole document."""

    def __init__(self, candidates: list[_Candidate], num_pages: int) -> None:
        self._num_pages = num_pages
        self._pages: dict[_Key, list[int]] = defaultdict(list)
        self._numbered: dict[_Key, list[int]] = defaultdict(list)
        self._all = sorted({line.page for line in candidates})
        for line in sorted(candidates, key=lambda line: line.page):
            for key in {_key(line, reading) for reading in line.readings}:
                self._pages[key].append(line.page)
            offsets = {reading.offset for reading in line.readings if reading.at_end}
            for offset in offsets:
                self._numbered[line.slot, "", offset].append(line.page)

    def judge(self, lines: list[_Candidate]) -> tuple[set[int], str]:
        """The lines of one page that repeat earlier ones, and the number printed on the page."""
        repeated: set[int] = set()
        printed = ""
        for edge in (1, -1):
            for line in (line for line in lines if line.slot * edge > 0):
                found = next((r for r in line.readings if self._is_running(line, r)), None)
                if found is None:
                    break  # what is further in is the page's own text
                printed = printed or found.printed
                if self._was_before(line, found):
                    repeated.add(line.line)
        return repeated, printed

    def _is_running(self, line: _Candidate, reading: _Reading) -> bool:
        need = self._need(line.page)
        if reading.at_end:
            pages = self._numbered[line.slot, "", reading.offset]
            return _near(pages, line.page) >= need
        pages = self._pages[_key(line, reading)]
        is_deep = abs(line.slot) > 1  # where tables repeat their heads
        enough = not is_deep or 3 * len(pages) >= self._num_pages
        return enough and _near(pages, line.page) >= need

    def _was_before(self, line: _Candidate, reading: _Reading) -> bool:
        is_bare = reading.at_end and not reading.title  # repeats any line with the number in it
        seen = self._numbered if is_bare else self._pages
        pages = seen[_key(line, reading)]
        at = bisect_left(pages, line.page)
        return at > 0 and pages[at - 1] >= line.page - _REACH

    def _need(self, page: int) -> int:
        around = _near(self._all, page)
        return _ENOUGH if around > 2 * _ENOUGH - 2 else max(3, (around + 1) // 2)


def _key(line: _Candidate, reading: _Reading) -> _Key:
    return line.slot, reading.title, reading.offset


def _near(pages: list[int], page: int) -> int:
    """How many of the ascending pages are the page itself or its neighbours."""
    return bisect_right(pages, page + _REACH) - bisect_left(pages, page - _REACH)
