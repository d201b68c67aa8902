"""Reading pages: every slice is checked against its checksum before anybody sees it.

Owns the check on load. Knows neither locks nor commits: file and state come as arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.errors import PageCorrupt
from engine.session.block_file import BlockFile
from engine.session.format import BLOCK, align_up, page_checksum
from engine.session.lineage import home_of
from engine.session.state import SessionState
from engine.types import KVGeometry, Part, SegmentId


def read_pages(
    file: BlockFile,
    state: SessionState,
    segment: SegmentId,
    part: Part,
    layer: int,
    first_page: int,
    num_pages: int,
    into: memoryview,
) -> None:
    """Read consecutive page slices of one part and layer of a segment, and check them.

    A segment that a fork has from its base is read there.

    Raises:
        PageCorrupt: A slice fails its checksum or lies behind the end of the file.
        StorageError: The device failed.
    """
    file, state = home_of(file, state, segment)
    layout = state.segments.layout(segment)
    assert len(into) == num_pages * layout.page_bytes(part)
    offset = _extent(state, segment) + layout.page_offset(part, layer, first_page)
    got = file.read(into, offset)
    check_pages(file.path, state, segment, part, layer, first_page, into, got)


def read_pages_within(
    file: BlockFile,
    state: SessionState,
    segment: SegmentId,
    part: Part,
    layer: int,
    first_page: int,
    num_pages: int,
    room: memoryview,
) -> memoryview:
    """As `read_pages`, by whole blocks, so that slices which begin anywhere are read directly too.

    Args:
        file: As for `read_pages`, like all that follow.
        state: The session.
        segment: Index of the segment.
        part: Keys or values.
        layer: Layer index.
        first_page: Counted from the start of the segment.
        num_pages: How many.
        room: Starts on a block; `layout.room_bytes` of what is read, or more.

    Returns:
        The slices, somewhere in `room`.
    """
    file, state = home_of(file, state, segment)
    layout = state.segments.layout(segment)
    begin = layout.page_offset(part, layer, first_page)
    num_bytes, lead = num_pages * layout.page_bytes(part), begin % BLOCK
    blocks = room[: align_up(lead + num_bytes)]
    got = file.read(blocks, _extent(state, segment) + begin - lead)
    data = blocks[lead : lead + num_bytes]
    check_pages(file.path, state, segment, part, layer, first_page, data, max(0, got - lead))
    return data


def _extent(state: SessionState, segment: SegmentId) -> int:
    extent = state.segments.extent(segment)
    assert extent is not None
    return extent


def check_pages(
    path: Path,
    state: SessionState,
    segment: SegmentId,
    part: Part,
    layer: int,
    first_page: int,
    data: memoryview,
    got: int,
) -> None:
    """Check consecutive page slices of one part and layer of a segment.

    Args:
        path: The file, for the message.
        state: Has their checksums; of the file that has the segment.
        segment: Index of the segment.
        part: Keys or values.
        layer: Layer index.
        first_page: Counted from the start of the segment.
        data: Whole page slices.
        got: Leading bytes of `data` that the file really had.

    Raises:
        PageCorrupt: A slice fails its checksum or lies behind the end of the file.
    """
    for page, is_cut in corrupt_pages(state, segment, part, layer, first_page, data, got):
        raise corrupt(path, f"page {page}", part, layer, cut=is_cut)


def corrupt_pages(
    state: SessionState,
    segment: SegmentId,
    part: Part,
    layer: int,
    first_page: int,
    data: memoryview,
    got: int,
) -> Iterator[tuple[int, bool]]:
    """As `check_pages`, but gives every page that fails, and whether the file ends before it."""
    size = state.segments.layout(segment).page_bytes(part)
    pages = slice(first_page, first_page + len(data) // size)
    expected = state.segments.expected(segment, part, layer, pages)
    page_index = segment * state.geometry.pages_per_segment + first_page
    end = 0
    for checksum in expected:
        begin, end = end, end + size
        found = page_checksum(data[begin:end], state.uuid, page_index, part, layer)
        if end > got or found != checksum:
            yield page_index, end > got
        page_index += 1


def restore_page(file: BlockFile, state: SessionState, page_index: int, data: memoryview) -> bool:
    """Write the slices of a full page that are not as they were committed.

    The only bytes of a commit that are ever written over: with those that it has checksums of.

    Args:
        file: Has the page itself, rather than its base.
        state: Has its checksums.
        page_index: Counted from the start of the sequence.
        data: The page as it lies in the file's codec, `[num_layers, 2, page slice]`.

    Returns:
        Whether it is as it was; if not, nothing was written.

    Raises:
        StorageError: The device failed.
    """
    segment, position = divmod(page_index, state.geometry.pages_per_segment)
    extent, layout = _extent(state, SegmentId(segment)), state.segments.layout(segment)
    slices, end = [], 0
    for layer in range(state.geometry.num_layers):
        for part in Part:
            begin, end = end, end + layout.page_bytes(part)
            here = slice(position, position + 1)
            (expected,) = state.segments.expected(segment, part, layer, here)
            wanted = data[begin:end]
            if page_checksum(wanted, state.uuid, page_index, part, layer) != expected:
                return False
            slices.append((extent + layout.page_offset(part, layer, position), wanted))
    assert end == len(data)
    for offset, wanted in slices:
        found = memoryview(bytearray(len(wanted)))
        if file.read(found, offset) < len(wanted) or found != wanted:
            file.write(wanted, offset)
    file.sync()
    return True


def read_tail(file: BlockFile, state: SessionState, into: memoryview) -> None:
    """Read the stored tail page, as a page lies at rest, and check it.

    Raises:
        PageCorrupt: A slice fails its checksum or lies behind the end of the file.
        StorageError: The device failed.
    """
    tail = state.tail
    assert tail is not None and len(into) == state.geometry.page_bytes
    got = file.read(into, state.tail_slots[tail.slot])
    page_index = state.kv_tokens // state.geometry.page_tokens
    computed = tail_checksums(state.geometry, state.uuid, page_index, into, tail.generation)
    places = tail_places(state.geometry)
    for (end, part, layer), expected, checksum in zip(
        places, tail.checksums.tolist(), computed, strict=True
    ):
        if end > got or checksum != expected:
            raise corrupt(file.path, "tail page", part, layer, cut=end > got)


def tail_checksums(
    geometry: KVGeometry, uuid: bytes, page_index: int, data: memoryview, generation: int
) -> list[int]:
    """Checksums of the slices of a tail page written by commit `generation`."""
    size = geometry.page_slice_bytes
    return [
        page_checksum(data[end - size : end], uuid, page_index, part, layer, generation)
        for end, part, layer in tail_places(geometry)
    ]


def tail_places(geometry: KVGeometry) -> Iterator[tuple[int, Part, int]]:
    """End offset, part and layer of each slice of a page at rest: `[num_layers, 2]`."""
    end = 0
    for layer in range(geometry.num_layers):
        for part in Part:
            end += geometry.page_slice_bytes
            yield end, part, layer


def corrupt(path: Path, page: str, part: Part, layer: int, *, cut: bool) -> PageCorrupt:
    """What is said of a page slice that must not be served."""
    reason = "lies behind the end of the file" if cut else "fails its checksum"
    return PageCorrupt(
        f"{path}: {page}, layer {layer}, {part.name.lower()}: {reason}",
        "The page is not used; ingest the documents again, or restore a copy of the file.",
    )
