"""A session written anew: all of it, checked on the way, and nothing that no commit refers to.

Owns copies and compaction; a fork is copied with all that it has from its base. Notes and
attachments of earlier commits leave nothing behind in the new file, which has an id of its own. The
old file is only read, and a copy that does not come to its end leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import AttachmentCorrupt, ConfigError
from engine.session.format import Identity, aligned_buffer
from engine.session.layout import RAW_SEGMENTS, extents_bytes
from engine.session.reader import SessionReader
from engine.session.removal import require_no_forks
from engine.session.writer import SessionFile
from engine.types import CodedSizes, KVGeometry, Part, SegmentId


@dataclass(frozen=True, slots=True)
class Recoding:
    """A codec for a session that was raw."""

    codec: str
    coded: CodedSizes
    encode: Callable[[Part, memoryview], memoryview]
    """Codes neighbouring raw page slices of one half."""


OnProgress = Callable[[int, int], None]
"""Is given KV bytes done and in all; may raise to stop."""


def copy_session(source: SessionReader, target: Path, on_progress: OnProgress) -> tuple[str, ...]:
    """Write what a session holds into a new file of its own.

    Args:
        source: An open session.
        target: The new file's name.
        on_progress: Called at least once.

    Returns:
        Names of attachments that were damaged and are done without.

    Raises:
        PageCorrupt: A page fails its checksum; a copy is whole or is not made.
        ConfigError: `target` exists.
        StorageError: The disk is full or failed.
    """
    with SessionFile.create(target, source.identity, source.geometry, coded=source.coded) as copy:
        return _fill(source, copy, on_progress)


def compact_session(
    path: Path, on_progress: OnProgress, recoding: Recoding | None = None
) -> tuple[str, ...]:
    """Put a copy of a session, without what no commit refers to, in its place.

    The session is held alone meanwhile, and replaced in one step at the end: whatever happens
    before leaves it as it was.

    Args:
        path: The session.
        on_progress: Called at least once.
        recoding: How the copy is coded; None: as the session.

    Returns:
        As for `copy_session`.

    Raises:
        ConfigError: Its pages are coded already.
        NonFiniteKV: They are beyond what the codec can give back.
        SessionLocked: The session is in use.
        BaseNeeded: Forks have pages from it.
        PageCorrupt: A page fails its checksum.
        StorageError: The disk is full or failed.
    """
    place = path.resolve()  # a link to a session stays one
    with SessionFile.open(path, writable=True) as source:
        require_no_forks(path, bytes.fromhex(source.uuid), source.forks)
        identity, coded = source.identity, source.coded
        if recoding is not None and identity.codec != recoding.codec:
            _require_raw(source, recoding)
            identity, coded = replace(identity, codec=recoding.codec), recoding.coded
        else:
            recoding = None
        with SessionFile.create(
            place,
            identity,
            source.geometry,
            coded=coded,
            overwrite=True,
            is_held=True,
        ) as copy:
            return _fill(source, copy, on_progress, recoding)


def _require_raw(source: SessionReader, recoding: Recoding) -> None:
    if source.coded is not None:
        raise ConfigError(
            f"{source.path}: its pages are coded as {source.identity.codec}; coded once more they "
            "would lose more than either codec does",
            "Compute them again instead: kvcli resume --rebuild --kv-dtype "
            f"{recoding.codec} {source.path}",
        )


def restart_session(
    source: SessionFile,
    identity: Identity,
    geometry: KVGeometry,
    notes: Mapping[str, Any],
    coded: CodedSizes | None = None,
) -> None:
    """Put a session with the same ids and spans and without KV in the place of one that is held.

    Args:
        source: Open for writing; it is of no use afterwards but to be closed.
        identity: What the KV will be computed with.
        geometry: Its shape.
        notes: JSON object.
        coded: Bytes of a page slice in the identity's codec; None if that is raw.

    Raises:
        BaseNeeded: Forks have pages from it.
        StorageError: The disk is full or failed; the session is as it was.
    """
    require_no_forks(source.path, bytes.fromhex(source.uuid), source.forks)
    with SessionFile.create(
        source.path.resolve(), identity, geometry, coded=coded, overwrite=True, is_held=True
    ) as fresh:
        fresh.commit(kv_tokens=0, token_ids=source.token_ids, spans=source.spans, notes=notes)


def _fill(
    source: SessionReader,
    copy: SessionFile,
    on_progress: OnProgress,
    recoding: Recoding | None = None,
) -> tuple[str, ...]:
    geometry = source.geometry
    pages = source.kv_tokens // geometry.page_tokens
    copy.free_space_check(extents_bytes(geometry, copy.coded, pages * geometry.page_tokens))
    _copy_pages(source, copy, pages, on_progress, recoding)
    lost = _copy_attachments(source, copy)
    tail = None
    if source.tail_tokens:
        tail = aligned_buffer(geometry.page_bytes)
        source.read_tail(tail)
    copy.commit(
        kv_tokens=source.kv_tokens,
        token_ids=source.token_ids,
        spans=source.spans,
        notes=source.notes,
        tail=tail,
    )
    return lost


def _copy_pages(
    source: SessionReader,
    copy: SessionFile,
    pages: int,
    on_progress: OnProgress,
    recoding: Recoding | None,
) -> None:
    geometry = source.geometry
    buffer = aligned_buffer(geometry.slice_bytes)
    done, total = 0, pages * geometry.page_bytes
    on_progress(done, total)
    for segment in range(geometry.num_segments(pages * geometry.page_tokens)):
        count = min(geometry.pages_per_segment, pages - segment * geometry.pages_per_segment)
        for part in Part:
            part_of_buffer = buffer[: count * source.page_bytes(SegmentId(segment), part)]
            for layer in range(geometry.num_layers):
                where = SegmentId(segment), part, layer, 0
                source.read_pages(*where, count, part_of_buffer)
                data = part_of_buffer
                if recoding is not None and segment >= RAW_SEGMENTS:
                    data = recoding.encode(part, data)
                copy.write_pages(*where, data)
                done += count * geometry.page_slice_bytes
                on_progress(done, total)


def _copy_attachments(source: SessionReader, copy: SessionFile) -> tuple[str, ...]:
    lost = set()
    for attachment in source.attachments:
        try:
            data = source.read_attachment(attachment)
        except AttachmentCorrupt:
            lost.add(attachment.name)
        else:
            copy.attach(attachment.name, data, attachment.meta)
    return tuple(sorted(lost))
