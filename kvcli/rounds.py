"""Rounds: many notes become few, group by group, until all can be read at once.

Owns how notes are grouped and when to stop. Knows neither what is asked about a group nor a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

LEAST_GROUP = 2
"""Notes of a group at least, whatever their length, so that rounds come to an end."""


def in_rounds(
    notes: Sequence[T],
    most: int,
    sizes: Callable[[Sequence[T]], list[int]],
    merge: Callable[[list[T]], T | None],
    on_status: Callable[[str], None],
) -> list[T]:
    """Merge groups of neighbours, round by round, until one group is left.

    Args:
        notes: In order.
        most: Tokens of a group.
        sizes: Tokens of each note.
        merge: Makes one of a group; None: there is nothing in it.
        on_status: Told about each round.
    """
    current, number = list(notes), 1
    while len(groups := group(current, sizes(current), most)) > 1:
        on_status(f"round {number}: {len(current):,} notes to {len(groups):,}")
        merged = [one[0] if len(one) == 1 else merge(one) for one in groups]
        current = [note for note in merged if note is not None]
        number += 1
    return current


def group(notes: Sequence[T], sizes: Sequence[int], most: int) -> list[list[T]]:
    """Put neighbours together while they hold at most `most` tokens, and two at least."""
    groups: list[list[T]] = []
    held = 0
    for note, size in zip(notes, sizes, strict=True):
        is_full = held + size > most and len(groups[-1]) >= LEAST_GROUP if groups else True
        if is_full:
            groups.append([])
            held = 0
        groups[-1].append(note)
        held += size
    return groups
