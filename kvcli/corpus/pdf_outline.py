"""A PDF's outline to the trail of sections that each page lies in.

Owns which section names a page. Knows no PDF library; the entries come from the worker, in the
order in which a viewer shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

BETWEEN = " > "
_LONGEST_TITLE = 80
_DEEPEST = 6
"""Levels of a trail; what lies deeper is named by the section around it."""


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """One line of the outline."""

    page: int
    """Where it leads, 0-based."""
    level: int
    """0 for the outermost."""
    title: str


def trails(entries: Iterable[OutlineEntry], num_pages: int) -> dict[int, str]:
    """The trail of each page, as in `3 Methods > 3.2 Data`.

    A page on which sections begin is named by the first of them and what it begins with; any other
    page by the section that was open at the end of the page before.

    Args:
        entries: In the outline's order.
        num_pages: Of the file; entries that lead elsewhere are left out.

    Returns:
        Page (0-based) to trail; pages before the first section are left out.
    """
    begun: dict[int, list[tuple[str, ...]]] = {}
    for page, trail in _with_trails(entries):
        if 0 <= page < num_pages:
            begun.setdefault(page, []).append(trail)
    found: dict[int, str] = {}
    is_open: tuple[str, ...] = ()
    for page in range(num_pages):
        here = begun.get(page)
        if here:
            name, is_open = _first_of(here), here[-1]
        else:
            name = is_open
        if name:
            found[page] = BETWEEN.join(name)
    return found


def _with_trails(entries: Iterable[OutlineEntry]) -> Iterator[tuple[int, tuple[str, ...]]]:
    around: list[str] = []
    for entry in entries:
        if entry.level >= _DEEPEST:
            continue
        title = _plain(entry.title)
        around[entry.level :] = [title]
        if title:
            yield entry.page, tuple(filter(None, around))


def _plain(title: str) -> str:
    """One line of printable characters; a title may hold whatever its author likes."""
    words = "".join(char if char.isprintable() else " " for char in title).split()
    told = " ".join(words).replace(BETWEEN.strip(), "›")
    return told if len(told) <= _LONGEST_TITLE else told[: _LONGEST_TITLE - 1].rstrip() + "…"


def _first_of(begun: list[tuple[str, ...]]) -> tuple[str, ...]:
    name = begun[0]
    for trail in begun[1:]:
        if trail[:-1] != name:
            break
        name = trail
    return name
