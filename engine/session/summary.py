"""What a session file holds, and whether all of it can still be read.

Owns `describe` and `verify`. Changes nothing; `describe` does not even lock, so it also works while
an ingest is writing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import AttachmentCorrupt, PageCorrupt
from engine.session.attachments import read_attachment
from engine.session.block_file import Access, BlockFile
from engine.session.format import Identity, aligned_buffer
from engine.session.page_io import read_pages, read_tail
from engine.session.recovery import recover
from engine.session.state import SessionState
from engine.types import KVGeometry, Part, SegmentId


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


def describe(path: Path) -> SessionSummary:
    """Read a session's metadata; reads no page and takes no lock.

    Raises:
        NotASession: Missing, foreign, or without a commit that can be opened.
        UnsupportedVersion: Written by a newer kvcli.
        StorageError: Not permitted, or the device failed.
    """
    file = BlockFile.open(path, Access.PEEK)
    try:
        found = recover(file)
        state = found.state
        return SessionSummary(
            path=path,
            uuid=state.uuid.hex(),
            identity=state.identity,
            geometry=state.geometry,
            generation=state.generation,
            tokens=len(state.token_ids),
            kv_tokens=state.kv_tokens,
            segments=len(state.segments),
            spans=len(state.spans),
            file_bytes=file.size(),
            allocated_bytes=file.allocated(),
            kv_bytes=state.geometry.num_pages(state.kv_tokens) * state.geometry.page_bytes,
            notes=state.notes,
            recovered=found.summary,
        )
    finally:
        file.close()


@dataclass(frozen=True, slots=True)
class Fault:
    """One damaged place."""

    message: str
    page: int | None = None
    """Page in the sequence, or None for metadata."""
    part: Part | None = None
    layer: int | None = None


def verify(path: Path, on_progress: Callable[[int, int], None]) -> list[Fault]:
    """Read everything a session refers to once and name each damaged place.

    Args:
        path: The session.
        on_progress: Called with KV bytes done and KV bytes in all, at least once.

    Raises:
        NotASession: No commit can be opened.
        UnsupportedVersion: Written by a newer kvcli.
        SessionLocked: Another process is writing it.
        StorageError: Not permitted, or the device failed.
    """
    file = BlockFile.open(path, Access.READ)
    try:
        found = recover(file, thorough=True)
        faults = [Fault(f"{path}: {line}") for line in found.damage]
        if found.lost:
            faults.append(Fault(f"{path}: {found.lost}"))
        state, geometry = found.state, found.state.geometry
        total = geometry.num_pages(state.kv_tokens) * geometry.page_bytes
        done = 0
        on_progress(done, total)
        buffer = aligned_buffer(max(geometry.slice_bytes, geometry.page_bytes))
        for segment in range(geometry.num_segments(state.committed_pages * geometry.page_tokens)):
            for part in Part:
                for layer in range(geometry.num_layers):
                    num_bytes = _verify_slice(file, state, segment, part, layer, buffer, faults)
                    done += num_bytes
                    on_progress(done, total)
        if state.tail is not None:
            faults += _verify_tail(file, state, buffer)
            on_progress(total, total)
        return faults + _verify_attachments(file, state)
    finally:
        file.close()


def _verify_slice(
    file: BlockFile,
    state: SessionState,
    segment: int,
    part: Part,
    layer: int,
    buffer: memoryview,
    faults: list[Fault],
) -> int:
    """Check a slice in one read and, only if that fails, page by page; returns its bytes."""
    geometry = state.geometry
    first = segment * geometry.pages_per_segment
    count = min(geometry.pages_per_segment, state.committed_pages - first)
    size = geometry.page_slice_bytes
    where = SegmentId(segment), part, layer
    try:
        read_pages(file, state, *where, 0, count, buffer[: count * size])
    except PageCorrupt:
        for page in range(count):
            try:
                read_pages(file, state, *where, page, 1, buffer[:size])
            except PageCorrupt as fault:
                faults.append(Fault(fault.message, first + page, part, layer))
    return count * size


def _verify_tail(file: BlockFile, state: SessionState, buffer: memoryview) -> list[Fault]:
    try:
        read_tail(file, state, buffer[: state.geometry.page_bytes])
    except PageCorrupt as fault:
        return [Fault(fault.message, state.committed_pages)]
    return []


def _verify_attachments(file: BlockFile, state: SessionState) -> list[Fault]:
    faults = []
    for attachment in state.attachments:
        try:
            read_attachment(file, state.uuid, attachment)
        except AttachmentCorrupt as fault:
            faults.append(Fault(fault.message))
    return faults
