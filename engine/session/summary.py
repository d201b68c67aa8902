"""What a session file holds.

Owns `describe`. Changes nothing and takes no lock, so that it also works while an ingest is
writing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.session.block_file import Access
from engine.session.format import Identity
from engine.session.layout import pages_bytes
from engine.session.recovery import recovered
from engine.types import CodedSizes, KVGeometry


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session at its newest commit, without its pages."""

    path: Path
    uuid: str
    identity: Identity
    geometry: KVGeometry
    generation: int
    tokens: int
    """Stored token ids."""
    kv_tokens: int
    """Leading tokens with committed KV."""
    segments: int
    spans: int
    file_bytes: int
    """End of the file; parts of the last segment may be holes."""
    allocated_bytes: int
    """Bytes on the device."""
    kv_bytes: int
    """Bytes of KV in committed pages, the tail page counted whole."""
    notes: dict[str, Any]
    recovered: str
    """What was damaged and what is lost, in one line; empty for a sound file."""
    base: Path | None = None
    """The session that a fork has its first segments from."""
    coded: CodedSizes | None = None
    """Bytes of a page slice in the identity's codec; None if that is raw."""
    base_tokens: int = 0
    """Leading tokens whose KV lies there."""


def describe(path: Path) -> SessionSummary:
    """Read a session's metadata; reads no page and takes no lock.

    Raises:
        NotASession: Missing, foreign, or without a commit that can be opened.
        UnsupportedVersion: Written by a newer kvcli.
        StorageError: Not permitted, or the device failed.
    """
    with recovered(path, Access.PEEK) as (file, found):
        state, base = found.state, found.state.base
        base_segments = 0 if base is None else base.ref.num_segments
        return SessionSummary(
            path=path,
            uuid=state.uuid.hex(),
            identity=state.identity,
            geometry=state.geometry,
            coded=state.coded,
            generation=state.generation,
            tokens=len(state.token_ids),
            kv_tokens=state.kv_tokens,
            segments=len(state.segments) + base_segments,
            spans=len(state.spans),
            file_bytes=file.size(),
            allocated_bytes=file.allocated(),
            kv_bytes=pages_bytes(state.geometry, state.coded, state.kv_tokens),
            notes=state.notes,
            recovered=found.summary,
            base=None if base is None else base.file.path,
            base_tokens=base_segments * state.geometry.segment_tokens,
        )
