"""CSV and TSV as the text they are, in spans of whole records that know their header row.

Owns the guess of the separator and of whether there is a header. The spans are the file's text; the
header row goes with each as its note, so that a row far below it is still understood. What does not
parse is refused, so that the caller can read it as plain text.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from .spans import Span
from .text import PROSE, split_lines

_SEPARATORS = ",;\t|"
_SAMPLE_RECORDS = 50
_MAX_NOTE_CHARS = 600
_FIGURES = frozenset("0123456789.,+-/:%$€£ ")


def cut_table(text: str) -> list[Span] | None:
    """Spans of a table; None when its records do not parse, or have one column only."""
    lines = split_lines(text)
    separator = _separator(lines)
    ends = _record_ends(lines, separator) if separator else None
    if separator is None or ends is None:
        return None
    note = _header(lines[: ends[0]], separator)
    spans, start, size = [], 0, 0
    for begin, end in zip([0, *ends], ends, strict=False):
        added = sum(map(len, lines[begin:end]))
        is_full = size + added > PROSE.max_chars or end - start > PROSE.max_lines
        if begin > start and is_full:
            spans.append(_span(lines, start, begin, note))
            start, size = begin, 0
        size += added
    return [*spans, _span(lines, start, len(lines), note)]


def _span(lines: Sequence[str], start: int, end: int, note: str | None) -> Span:
    return Span("".join(lines[start:end]), lines=(start + 1, end), note=note)


def _separator(lines: Sequence[str]) -> str | None:
    """The separator by which most records have equally many fields, and at least two.

    csv.Sniffer is not asked: its patterns take quadratic time on quotes that never close, and it
    takes letters for separators.
    """
    ranked = []
    for separator in _SEPARATORS:
        try:
            records = csv.reader(lines, delimiter=separator, strict=True)
            widths = [len(record) for record in islice(records, _SAMPLE_RECORDS) if record]
        except csv.Error:
            continue
        if not widths:
            continue
        width, times = Counter(widths).most_common(1)[0]
        if width > 1:
            ranked.append((times / len(widths), width, separator))
    return max(ranked)[2] if ranked else None


def _record_ends(lines: Sequence[str], separator: str) -> list[int] | None:
    """The line after each record; a quoted field may hold line ends."""
    reader = csv.reader(lines, delimiter=separator, strict=True)
    ends = []
    try:
        for _ in reader:
            ends.append(reader.line_num)
    except csv.Error:
        return None
    return ends


def _header(lines: Sequence[str], separator: str) -> str | None:
    """The first record as written, if it names columns: words, all of them, and all different."""
    (record,) = csv.reader(lines, delimiter=separator, strict=True)
    names = [name.strip() for name in record]
    is_header = (
        len(names) > 1
        and len(set(names)) == len(names)
        and all(name and not set(name) <= _FIGURES for name in names)
    )
    if not is_header:
        return None
    written = "".join(lines).strip()
    if len(written) > _MAX_NOTE_CHARS:
        return " ".join(written[:_MAX_NOTE_CHARS].split()) + " …"
    return written
