"""Tables of a page as rows of text, every cell in its column.

Owns the difference between a table of data and one that only arranges a page, and where cells that
reach over several rows or columns leave others empty.
"""

from __future__ import annotations

from collections.abc import Iterator

from justhtml import Node

from .blocks import Block
from .html_dom import Step, flat, last_line, walk

_NOT_IN_DATA = frozenset({"table", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "form", "article"})
_MAX_REACH = 100
"""Rows or columns that one cell may cover."""


def is_data_table(table: Node) -> bool:
    """Whether a table is more than one column of data, and not the layout of a page."""
    widths = [0]
    for step, node in walk(table):
        if step is not Step.ENTER:
            continue
        if node.name in _NOT_IN_DATA:
            return False
        if node.name == "tr":
            widths.append(0)
        elif node.name in ("td", "th"):
            widths[-1] += 1
    return max(widths) > 1


def rows_of(table: Node) -> list[Block]:
    """One block for each row, `| a | b |`; behind a header row one of dashes."""
    out = [Block(flat(node)) for node in _elements(table, "caption")]
    above: dict[int, int] = {}
    note = None
    is_first = True
    for row in _elements(table, "tr"):
        cells = [cell for cell in row.children or () if cell.name in ("td", "th")]
        texts = _in_columns(cells, above)
        if not any(texts):
            continue
        line = row.origin_line
        written = f"| {' | '.join(texts)} |"
        lines = (line, max(line, last_line(row))) if line else None
        out.append(Block(written, lines, is_tight=not is_first, note=note))
        if is_first and all(cell.name == "th" for cell in cells):
            out.append(Block("|" + " --- |" * len(texts), lines, is_tight=True))
            note = written
        is_first = False
    return out


def _elements(root: Node, name: str) -> Iterator[Node]:
    for step, node in walk(root):
        if step is Step.ENTER and node.name == name:
            yield node  # type: ignore[misc]


def _in_columns(cells: list[Node], above: dict[int, int]) -> list[str]:
    """The texts of a row by column; `above` tells how many more rows each column is covered."""
    texts: list[str] = []

    def skip_covered() -> None:
        while above.get(len(texts), 0) > 0:
            above[len(texts)] -= 1
            texts.append("")

    for cell in cells:
        skip_covered()
        width, height = _reach(cell, "colspan"), _reach(cell, "rowspan")
        for offset in range(width):
            if height > 1:
                above[len(texts)] = height - 1
            texts.append("" if offset else flat(cell).replace("|", "\\|"))
    skip_covered()
    return texts


def _reach(cell: Node, attribute: str) -> int:
    told = (cell.attrs or {}).get(attribute) or "1"
    return min(max(int(told), 1), _MAX_REACH) if told.isdecimal() and len(told) < 6 else 1
