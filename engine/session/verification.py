"""Whether everything that a session refers to can still be read.

Owns the reading of a whole file, several extents at a time, and the list of what is damaged.
Changes nothing and serves nothing: it looks at bytes and forgets them.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from engine.errors import AttachmentCorrupt, PageCorrupt, StorageError
from engine.session.attachments import Attachment, read_attachment
from engine.session.block_file import Access, BlockFile
from engine.session.format import BLOCK, align_up, aligned_buffer
from engine.session.layout import SegmentLayout, pages_bytes, room_bytes
from engine.session.lineage import home_of
from engine.session.page_io import corrupt, corrupt_pages, read_pages, read_tail
from engine.session.recovery import recovered
from engine.session.state import SessionState
from engine.types import Part, SegmentId

READERS = 4
"""Extents that are read at a time; while one is checked the disk goes on with the others."""

READ_BYTES = 4 << 20
"""Longest single read, of whole slices; a longer slice is read in one go all the same."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One damaged place."""

    message: str
    page: int | None = None
    """Page in the sequence, or None for what is no page."""
    part: Part | None = None
    layer: int | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at, and what is wrong with it."""

    pages: int
    """Pages with KV, the last, partial one included."""
    num_bytes: int
    """Bytes read: pages and attachments."""
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class _Extent:
    """Neighbouring slices of one segment, each K or V of one layer."""

    segment: SegmentId
    first: int
    """Slices before it in the segment: keys of all layers, then values."""
    count: int


def verify(path: Path, on_progress: Callable[[int, int], None]) -> Verified:
    """Read everything a session refers to once and name each damaged place.

    Args:
        path: The session.
        on_progress: Called with KV bytes done and KV bytes in all, at least once; may raise to
            stop.

    Raises:
        NotASession: No commit can be opened.
        UnsupportedVersion: Written by a newer kvcli.
        SessionLocked: Another process is writing it.
        StorageError: Not permitted, or the device failed where no page lies.
    """
    with recovered(path, Access.READ, thorough=True) as (file, found):
        faults = [Fault(f"{path}: {line}") for line in found.damage]
        if found.lost:
            faults.append(Fault(f"{path}: {found.lost}"))
        state, geometry = found.state, found.state.geometry
        pages = geometry.num_pages(state.kv_tokens)
        total = pages_bytes(geometry, state.coded, state.kv_tokens)
        done = 0
        on_progress(done, total)
        for num_bytes, found_faults in _check_all(file, state):
            done += num_bytes
            faults += found_faults
            on_progress(done, total)
        if state.tail is not None:
            faults += _check_tail(file, state)
            on_progress(total, total)
        attached = sum(attachment.num_bytes for attachment in state.all_attachments())
        return Verified(pages, total + attached, (*faults, *_check_attachments(file, state)))


def _check_all(file: BlockFile, state: SessionState) -> Iterator[tuple[int, list[Fault]]]:
    """Bytes and faults of each extent, in order; reads run ahead of whoever takes them."""
    stride = SegmentLayout(state.geometry).slice_stride(Part.KEYS)  # none is longer
    longest = max(1, READ_BYTES // stride)
    buffers: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
    slices = min(longest, len(Part) * state.geometry.num_layers)
    for _ in range(READERS):
        buffers.put(aligned_buffer(room_bytes(slices * stride)))

    def check(extent: _Extent) -> tuple[int, list[Fault]]:
        buffer = buffers.get()
        try:
            return _check(file, state, extent, buffer)
        finally:
            buffers.put(buffer)

    extents = _extents(state, longest)
    flying: deque[Future[tuple[int, list[Fault]]]] = deque()
    with ThreadPoolExecutor(READERS, thread_name_prefix="kv-verify") as pool:
        try:
            for extent in extents:
                flying.append(pool.submit(check, extent))
                if len(flying) > READERS:
                    yield flying.popleft().result()
            while flying:
                yield flying.popleft().result()
        finally:
            for check_ahead in flying:
                check_ahead.cancel()


def _extents(state: SessionState, longest: int) -> Iterator[_Extent]:
    """Everything with committed pages, in the order of the file's segments."""
    geometry = state.geometry
    slices = len(Part) * geometry.num_layers
    for segment in range(geometry.num_segments(state.committed_pages * geometry.page_tokens)):
        for first in range(0, slices, longest):
            yield _Extent(SegmentId(segment), first, min(longest, slices - first))


def _check(
    file: BlockFile, state: SessionState, extent: _Extent, buffer: memoryview
) -> tuple[int, list[Fault]]:
    geometry, layout = state.geometry, state.segments.layout(extent.segment)
    first_page = extent.segment * geometry.pages_per_segment
    num_pages = min(geometry.pages_per_segment, state.committed_pages - first_page)
    home, there = home_of(file, state, extent.segment)
    offset = there.segments.extent(extent.segment)
    assert offset is not None
    places = [
        (
            Part((extent.first + at) // geometry.num_layers),
            (extent.first + at) % geometry.num_layers,
        )
        for at in range(extent.count)
    ]
    begins = [layout.page_offset(part, layer, 0) for part, layer in places]
    num_bytes = sum(num_pages * layout.page_bytes(part) for part, _ in places)
    lead, end = begins[0] % BLOCK, begins[-1] + layout.slice_stride(places[-1][0])
    first = begins[0] - lead
    into = buffer[: align_up(end - first)]
    faults: list[Fault] = []
    try:
        got = home.read(into, offset + first)
    except StorageError:
        for part, layer in places:
            faults += _check_one_by_one(file, state, extent.segment, part, layer, num_pages, buffer)
        return num_bytes, faults
    for (part, layer), at in zip(places, begins, strict=True):
        data = into[at - first : at - first + num_pages * layout.page_bytes(part)]
        for page, is_cut in corrupt_pages(
            there, extent.segment, part, layer, 0, data, got - (at - first)
        ):
            error = corrupt(home.path, f"page {page}", part, layer, cut=is_cut)
            faults.append(Fault(error.message, page, part, layer))
    return num_bytes, faults


def _check_one_by_one(
    file: BlockFile,
    state: SessionState,
    segment: SegmentId,
    part: Part,
    layer: int,
    num_pages: int,
    buffer: memoryview,
) -> Iterator[Fault]:
    """The device failed somewhere in an extent: every page slice is read by itself."""
    size = state.segments.layout(segment).page_bytes(part)
    first = segment * state.geometry.pages_per_segment
    for page in range(num_pages):
        try:
            read_pages(file, state, segment, part, layer, page, 1, buffer[:size])
        except (PageCorrupt, StorageError) as error:
            yield Fault(error.message, first + page, part, layer)


def _check_tail(file: BlockFile, state: SessionState) -> list[Fault]:
    try:
        read_tail(file, state, aligned_buffer(state.geometry.page_bytes))
    except (PageCorrupt, StorageError) as fault:
        return [Fault(fault.message, state.committed_pages)]
    return []


def _check_attachments(file: BlockFile, state: SessionState) -> list[Fault]:
    base = state.base
    faults = [] if base is None else _check_attachments(base.file, base.state)

    def check(attachment: Attachment) -> Fault | None:
        try:
            read_attachment(file, state.uuid, attachment)
        except (AttachmentCorrupt, StorageError) as fault:
            return Fault(fault.message)
        return None

    with ThreadPoolExecutor(READERS, thread_name_prefix="kv-verify") as pool:
        return faults + [fault for fault in pool.map(check, state.attachments) if fault]
