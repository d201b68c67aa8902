"""Damaged pages of a session computed again, from their own tokens and the KV before them.

Owns which steps that takes, and what becomes of pages that cannot be had to the bit. A page of the
documents is computed in the step in which it was read, and must come out with the checksum that it
was committed with: everything behind it stays valid. In a coded session all before it is computed
again as well, as far as that fits in memory. Where a page of a chat was computed in steps
that nobody remembers, or the bits are others (another processor, other libraries), the KV from
there on is given up, and computed again when the session goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.config import STEP_TOKENS, EngineConfig
from engine.engine import Engine
from engine.errors import OverBudget, PageCorrupt
from engine.session import SessionFile, drop_kv
from engine.telemetry import Telemetry
from kvcli.mode import Mode
from kvcli.model_choice import load_chosen, same_model, same_pages
from kvcli.notes import Notes
from kvcli.options import RunOptions
from kvcli.output import Output


@dataclass(frozen=True, slots=True)
class Repaired:
    """What became of damaged pages."""

    pages: tuple[int, ...]
    """As they were, to the bit."""
    given_up_tokens: int
    """Tokens at the end whose KV is to be computed again."""


def repair_session(
    options: RunOptions, session: Path, pages: Sequence[int], output: Output
) -> Repaired:
    """Repair pages of a session.

    Args:
        options: Budgets, device and model.
        session: The file; nobody else may use it.
        pages: Those that are damaged, counted from the start of the sequence; at least one.
        output: Where it is said how far this is.

    Raises:
        PageCorrupt: Pages of a fork's base are damaged, which is to be repaired itself.
        SessionError: The file cannot be used, or belongs to another model.
        KVError: The model or a budget will not do, or the disk failed.
    """
    with SessionFile.open(session, writable=True) as file:
        _require_own(session, file, pages)
        notes = Notes.from_json(file.notes)
        notes.settings.require_same(session)
        size = file.geometry.page_tokens
        whole = min(notes.document_tokens, file.kv_tokens) // size
        in_documents = sorted(page for page in pages if page < whole)
        mended = _mend(options, file, notes, in_documents, output) if in_documents else set()
    left = sorted(set(pages) - mended)
    given_up = 0
    if left:
        with SessionFile.open(session, writable=True) as file:
            given_up = _give_up(file, notes, left[0] * size)
    return Repaired(tuple(sorted(mended)), given_up)


def _require_own(session: Path, file: SessionFile, pages: Sequence[int]) -> None:
    base, per_segment = file.base, file.geometry.pages_per_segment
    if base is not None and any(page // per_segment < base.num_segments for page in pages):
        raise PageCorrupt(
            f"{session}: damaged pages lie in its base {base.path}",
            f"Repair that: kvcli verify --repair {base.path}",
        )


def _mend(
    options: RunOptions, file: SessionFile, notes: Notes, pages: Sequence[int], output: Output
) -> set[int]:
    """Compute the steps of some pages again; gives the pages that came out as they were.

    The file is closed at the end, with the engine.
    """
    options = same_pages(options, file)
    model, _ = load_chosen(options, output, same_model(options, notes))
    mode, size = Mode(notes.mode), file.geometry.page_tokens
    config = EngineConfig(
        ram_bytes=options.ram_bytes,
        device_bytes=mode.device_bytes(model.geometry, options.vram),
        pager=options.pager,
        kv_codecs=options.kv_codecs,
    )
    mended: set[int] = set()
    steps = sorted({page * size // STEP_TOKENS * STEP_TOKENS for page in pages})
    # What a step has seen raw is there coded: then all before it is computed again, in memory.
    held = STEP_TOKENS if file.coded is None else steps[-1] + STEP_TOKENS
    try:
        engine = Engine(
            model, config, Telemetry(), num_tokens=len(file.token_ids), file=file, fork_tokens=held
        )
    except OverBudget as error:
        if file.coded is None:
            raise
        output.status(f"coded pages are not computed again to the bit: {error.message}")
        return mended
    try:
        for number, first in enumerate(steps):
            end = min(first + STEP_TOKENS, notes.document_tokens)
            output.status(f"computing tokens {first:,} to {end - 1:,} again ({number + 1:,} of "
                          f"{len(steps):,})")  # fmt: skip
            try:
                seen = None if end <= notes.exact_tokens else mode.local_window
                computed = engine.recompute(first, end, local_window=seen)
            except PageCorrupt:
                continue  # what it would be computed from is damaged as well
            mended |= {
                page
                for page in pages
                if first <= page * size < end
                and engine.restore_page(page, computed[page - first // size])
            }
    finally:
        engine.close()
    return mended


def _give_up(file: SessionFile, notes: Notes, token: int) -> int:
    """Drop the KV from the step on that a token lies in; gives how many tokens have none now.

    Steps of a chat end with segments, but where they begin nobody remembers: all of it is dropped.
    """
    keep = min(token, notes.document_tokens) // STEP_TOKENS * STEP_TOKENS
    drop_kv(file, keep)
    return len(file.token_ids) - keep
