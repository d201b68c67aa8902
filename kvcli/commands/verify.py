"""`kvcli verify S.kv`: read everything a session holds, name what is damaged, and repair it.

Owns the report. What is read, and how it is checked, is `engine.session.verification`'s; repairs
are `kvcli.repairing`'s.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from engine.errors import PageCorrupt, SessionError
from engine.session import SessionFile, SessionSummary, Verified, describe, verify
from engine.types import Part
from kvcli.byte_progress import ByteProgress
from kvcli.corpus.source_map import SourceMap
from kvcli.options import RunOptions
from kvcli.output import Output, clean
from kvcli.sizes import format_size

if TYPE_CHECKING:
    from kvcli.repairing import Repaired

MOST_LINES = 20
"""Damaged places that are listed unless --verbose asks for all of them."""


@dataclass(frozen=True, slots=True)
class DamagedPage:
    """A page of which a slice or more cannot be used."""

    page: int
    first_token: int
    end_token: int
    source: str
    """Where its first token is from; empty if that is no document."""
    slices: int
    """Damaged slices; of K or V of one layer each."""


def run(options: RunOptions, session: Path, *, repairs: bool) -> None:
    """Check a session file and print what was found, and what became of it.

    Args:
        options: How to speak; for repairs also the model and its budgets.
        session: The file.
        repairs: Compute damaged pages again.

    Raises:
        PageCorrupt: Pages are damaged and were not repaired.
        SessionError: Something else is; or the file cannot be opened as a session at all.
        KVError: A repair could not be made.
        SystemExit: Under --json, in place of the first two: the object says everything.
    """
    output = Output(options)
    summary = describe(session)
    started = time.monotonic()
    with ByteProgress("checking", options, output) as progress:
        found = verify(session, progress.update)
    seconds = time.monotonic() - started
    pages = damaged_pages(found, summary, _sources(session))
    others = [fault.message for fault in found.faults if fault.page is None]
    repaired = _repair(options, session, pages, output) if repairs and pages else None
    if options.json:
        output.json(_json(summary, found, seconds, pages, others, repaired))
        if others or (pages and repaired is None):
            raise SystemExit(SessionError.exit_code)
        return
    output.show(_facts(summary, found, seconds))
    lines = [*others, *(_line(page, summary) for page in pages)]
    shown = lines if options.verbose else lines[:MOST_LINES]
    for line in shown:
        output.show(Text(clean(line), "yellow"))
    if len(shown) < len(lines):
        output.show(f"... and {len(lines) - len(shown):,} more (--verbose)")
    if repaired is not None:
        _tell(session, repaired, output)
    _refuse(session, found, [] if repaired is not None else pages, others)


def _repair(
    options: RunOptions, session: Path, pages: list[DamagedPage], output: Output
) -> Repaired:
    from kvcli.repairing import repair_session  # brings torch and the model

    return repair_session(options, session, [page.page for page in pages], output)


def _tell(session: Path, repaired: Repaired, output: Output) -> None:
    if repaired.pages:
        count = len(repaired.pages)
        output.show(f"repaired {count:,} {'page' if count == 1 else 'pages'}, to the bit")
    if repaired.given_up_tokens:
        output.show(
            f"the KV of the last {repaired.given_up_tokens:,} tokens could not be had to the bit "
            "and is given up; no text is lost"
        )
        output.status(f"kvcli resume {session} computes it again")


def _refuse(session: Path, found: Verified, pages: list[DamagedPage], others: list[str]) -> None:
    if pages:
        raise PageCorrupt(
            f"{session}: {len(pages):,} of {found.pages:,} pages "
            f"{'is' if len(pages) == 1 else 'are'} damaged",
            f"They are never used. Compute them again: kvcli verify --repair {session}",
        )
    if others:
        raise SessionError(
            f"{session}: no page is damaged, but something else is: {others[0]}",
            "The session can be used. Copy it to another disk if this one cannot be trusted.",
        )


def damaged_pages(
    found: Verified, summary: SessionSummary, sources: SourceMap
) -> list[DamagedPage]:
    """What is damaged, page by page, in order."""
    size = summary.geometry.page_tokens
    pages = []
    for page, slices in sorted(Counter(f.page for f in found.faults if f.page is not None).items()):
        first = page * size
        span = sources.locate(first)
        pages.append(
            DamagedPage(
                page,
                first,
                min(first + size, summary.kv_tokens),
                span.cite() if span is not None else "",
                slices,
            )
        )
    return pages


def _sources(session: Path) -> SourceMap:
    with SessionFile.open(session, writable=False) as file:
        return SourceMap.from_json(file.spans)


def _line(page: DamagedPage, summary: SessionSummary) -> str:
    where = f"tokens {page.first_token:,} to {page.end_token - 1:,}"
    if page.source:
        where += f", {page.source}"
    of = len(Part) * summary.geometry.num_layers
    verb = "is" if page.slices == 1 else "are"
    return f"page {page.page:,} ({where}): {page.slices} of {of} slices {verb} damaged"


def _facts(summary: SessionSummary, found: Verified, seconds: float) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    rate = f"{format_size(found.num_bytes / seconds)}/s" if seconds > 0 else "at once"
    grid.add_row("session", Text(clean(str(summary.path))))
    grid.add_row(
        "checked",
        f"{found.pages:,} pages, {format_size(found.num_bytes)} in {seconds:.1f} s ({rate})",
    )
    if found.faults:
        grid.add_row("result", Text("damaged", "bold red"))
    else:
        grid.add_row("result", Text("sound: every byte is what was committed", "green"))
    return grid


def _json(
    summary: SessionSummary,
    found: Verified,
    seconds: float,
    pages: list[DamagedPage],
    others: list[str],
    repaired: Repaired | None,
) -> dict[str, Any]:
    return {
        "session": str(summary.path),
        "sound": not found.faults,
        "pages": found.pages,
        "checked_bytes": found.num_bytes,
        "seconds": round(seconds, 3),
        "generation": summary.generation,
        "damaged_pages": [asdict(page) for page in pages],
        "other_damage": others,
        "repaired": None if repaired is None else asdict(repaired),
    }
