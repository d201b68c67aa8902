"""Going through sections one by one: how far it is and how long the rest will take.

Owns the order of visits and what is told about them. Knows neither what is asked nor what is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from engine.telemetry import Telemetry
from kvcli.sections import Section
from kvcli.sizes import format_about

WRITE_WEIGHT = 30
"""Tokens read in the time in which one is written, for the progress within a section."""

MEASURED = 2
"""Sections after which the time for the others is told."""


@dataclass(slots=True)
class Visit:
    """One section at its turn."""

    section: Section
    on_step: Callable[[int, int], None]
    """To be told the tokens read and written so far."""


def visits(
    sections: Sequence[Section],
    most_written: int,
    task: str,
    telemetry: Telemetry,
    on_status: Callable[[str], None],
) -> Iterator[Visit]:
    """Visit sections in order, publish progress in tokens of the documents and tell the time left.

    Args:
        sections: What is still to be visited.
        most_written: Most tokens written about each.
        task: What the dashboard calls it.
        telemetry: Where progress goes.
        on_status: Told the number of sections, and the time once it is known.
    """
    started, done = time.monotonic(), 0
    total = sum(section.num_tokens for section in sections)
    if sections:
        on_status(f"{task}: {_count(len(sections))} to read, {total:,} tokens")
    for index, section in enumerate(sections):
        if index == MEASURED < len(sections) - 1:
            left = (time.monotonic() - started) / done * (total - done)
            on_status(f"{task}: {_count(len(sections) - index)} more, {format_about(left)}")
        yield Visit(section, _stepper(section, done, total, most_written, task, telemetry))
        done += section.num_tokens
        telemetry.publish_task(task, done, total)


def _stepper(
    section: Section, done: int, total: int, most_written: int, task: str, telemetry: Telemetry
) -> Callable[[int, int], None]:
    whole = section.num_tokens + WRITE_WEIGHT * most_written

    def on_step(read: int, written: int) -> None:
        share = min(1.0, (read + (WRITE_WEIGHT - 1) * written) / whole)
        telemetry.publish_task(task, done + int(share * section.num_tokens), total)

    on_step(0, 0)
    return on_step


def _count(number: int) -> str:
    return "1 section" if number == 1 else f"{number:,} sections"
