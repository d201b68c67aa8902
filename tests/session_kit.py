"""Small sessions for tests: two geometries, contents that depend on their place, comparisons."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.session import Identity, SessionFile, aligned_buffer, room_bytes
from engine.types import CodedSizes, KVGeometry, Part, SegmentId

IDENTITY = Identity("tiny", "w1", "t1", "c1", "r1", "float16")
SMALL = KVGeometry(2, 1, 8, "float16", page_tokens=4, segment_tokens=16)
"""Page slices of 64 bytes: too small for direct I/O."""
ALIGNED = KVGeometry(2, 1, 128, "float16", page_tokens=16, segment_tokens=64)
"""Page slices of one block: direct I/O where the file system takes it."""
CODED_IDENTITY = replace(IDENTITY, codec="int8")
CODED = CodedSizes(keys=37, values=23)
"""Of page slices of `SMALL` in some codec: they begin anywhere."""


def page(geometry: KVGeometry, index: int, salt: int = 0) -> NDArray[np.uint8]:
    """A page as it lies at rest: `[num_layers, 2, page_slice_bytes]`."""
    shape = (geometry.num_layers, 2, geometry.page_slice_bytes)
    data = hashlib.shake_128(f"page {index}, salt {salt}".encode()).digest(geometry.page_bytes)
    return np.frombuffer(data, np.uint8).reshape(shape)


def write_page(file: SessionFile, index: int, salt: int = 0) -> None:
    """Write all slices of a full page."""
    segment, position = divmod(index, file.geometry.pages_per_segment)
    content = page(file.geometry, index, salt)
    for part in Part:
        size = file.page_bytes(SegmentId(segment), part)
        buffer = aligned_buffer(size)
        for layer in range(file.geometry.num_layers):
            buffer[:] = content[layer, part, :size].data
            file.write_pages(SegmentId(segment), part, layer, position, buffer)


def stored(file: SessionFile, index: int, salt: int = 0) -> NDArray[np.uint8]:
    """What `write_page` keeps of a page: of each slice as many bytes as the file's codec has."""
    content = page(file.geometry, index, salt).copy()
    for part in Part:
        segment = SegmentId(index // file.geometry.pages_per_segment)
        content[:, part, file.page_bytes(segment, part) :] = 0
    return content


def read_page(file: SessionFile, index: int) -> NDArray[np.uint8]:
    """Read all slices of a full page back."""
    geometry = file.geometry
    segment, position = divmod(index, geometry.pages_per_segment)
    content = np.zeros((geometry.num_layers, 2, geometry.page_slice_bytes), np.uint8)
    for part in Part:
        size = file.page_bytes(SegmentId(segment), part)
        buffer, room = aligned_buffer(size), aligned_buffer(room_bytes(size))
        for layer in range(geometry.num_layers):
            where = SegmentId(segment), part, layer, position, 1
            file.read_pages(*where, buffer)
            assert file.read_pages_within(*where, room) == buffer
            content[layer, part, :size] = np.frombuffer(buffer, np.uint8)
    return content


def read_tail(file: SessionFile) -> NDArray[np.uint8]:
    """Read the tail page back, in the shape of `page`."""
    geometry = file.geometry
    content = np.empty((geometry.num_layers, 2, geometry.page_slice_bytes), np.uint8)
    file.read_tail(content.data)
    return content


def advance(file: SessionFile, tokens: int) -> None:
    """Commit `tokens` more tokens with their KV; contents depend on the place alone."""
    geometry, start = file.geometry, file.kv_tokens
    end = start + tokens
    for index in range(start // geometry.page_tokens, end // geometry.page_tokens):
        write_page(file, index)
    index, rest = divmod(end, geometry.page_tokens)
    file.commit(
        token_ids=np.arange(start, end),
        kv_tokens=end,
        spans=[{"start": start, "end": end}],
        notes={"end": end},
        tail=page(geometry, index, salt=rest).data if rest else None,
    )


def check(file: SessionFile) -> None:
    """Assert that a session made by `advance` alone holds exactly what it should."""
    assert file.kv_tokens == len(file.token_ids)
    check_served(file)


def check_served(file: SessionFile) -> None:
    """The same of a session that may have lost the KV of its last page, and says so."""
    geometry, end, tokens = file.geometry, file.kv_tokens, len(file.token_ids)
    assert end == tokens or file.recovered
    assert file.identity in (IDENTITY, CODED_IDENTITY)
    assert file.token_ids.tolist() == list(range(tokens))
    assert file.notes == {"end": tokens}
    assert [span["end"] for span in file.spans][-1:] == [tokens]
    for index in range(end // geometry.page_tokens):
        assert np.array_equal(read_page(file, index), stored(file, index))
    index, rest = divmod(end, geometry.page_tokens)
    assert file.tail_tokens == rest
    if rest:
        assert np.array_equal(read_tail(file), page(geometry, index, salt=rest))


def new(path: Path, geometry: KVGeometry = SMALL, coded: CodedSizes | None = None) -> SessionFile:
    """A session without a commit, raw or coded."""
    identity = IDENTITY if coded is None else CODED_IDENTITY
    return SessionFile.create(path, identity, geometry, coded=coded)


def make(
    path: Path, *commits: int, geometry: KVGeometry = SMALL, coded: CodedSizes | None = None
) -> Path:
    """A closed session with one commit per number of tokens."""
    with new(path, geometry, coded) as file:
        for tokens in commits:
            advance(file, tokens)
    return path
