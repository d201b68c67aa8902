"""reStructuredText to spans of whole lines, cut at its section titles.

Owns what a title is: a line with a line of punctuation below it, or above and below. Which style
is which level shows only by the order in which the styles appear. Reads no directive: included
files are files of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .spans import Span
from .text import cut_sections, split_lines

_RULE = re.compile(r"([!-/:-@\[-`{-~])\1+[ \t]*\r?\n?$")
_SHORTEST_RULE = 4
"""A shorter underline counts only where it is as long as its title."""


def cut_rst(text: str) -> list[Span]:
    """Spans of a reStructuredText file, named by its titles ("Use > Linux")."""
    lines = split_lines(text)
    return cut_sections(lines, _titles(lines))


def _titles(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """Line (0-based), level and text of every section title."""
    styles: dict[tuple[str, bool], int] = {}
    found = []
    at = 0
    while at < len(lines):
        overlined = _is_overlined(lines, at)
        if overlined or _is_underlined(lines, at):
            title = lines[at + overlined].strip()
            style = (lines[at + 1 + overlined][0], overlined)
            found.append((at, styles.setdefault(style, len(styles) + 1), title))
            at += 1 + overlined
        at += 1
    return found


def _is_underlined(lines: Sequence[str], at: int) -> bool:
    """Whether a title without an overline stands on a line; it begins at the margin, alone."""
    alone = at == 0 or not lines[at - 1].strip()
    fits = at + 1 < len(lines) and _is_rule_for(lines[at + 1], lines[at])
    return alone and fits and not lines[at][:1].isspace() and not _RULE.match(lines[at])


def _is_overlined(lines: Sequence[str], at: int) -> bool:
    if at + 2 >= len(lines) or not _RULE.match(lines[at]):
        return False
    same = lines[at].strip() == lines[at + 2].strip()
    return same and _is_rule_for(lines[at], lines[at + 1]) and not _RULE.match(lines[at + 1])


def _is_rule_for(rule: str, title: str) -> bool:
    needed = min(len(title.strip()), _SHORTEST_RULE)
    return bool(title.strip() and _RULE.match(rule)) and len(rule.strip()) >= needed
