"""Between page slices as the engine has them and the coded bytes of a session file.

Owns the buffers of coded bytes and the moment of coding: on the threads that read and write, so
that it goes on beside compute. How slices are coded is the codec's, where they lie the session's.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.codecs import CODECS, Codec
from engine.errors import IdentityMismatch, NonFiniteKV, UnsupportedVersion
from engine.session import Recoding, SessionFile, aligned_buffer, room_bytes
from engine.session.layout import RAW_SEGMENTS
from engine.types import KVGeometry, Part, SegmentId
from kernels.quantize import PIECE

if TYPE_CHECKING:
    from engine.tiers.disk import PageRun

OTHER_THREADS = 2
"""Beside those that read: the writer, and the one that loads pages ahead."""


@dataclass(frozen=True, slots=True)
class _Room:
    """Memory of one thread that reads."""

    blocks: memoryview
    """Of a run, as it comes from the file."""
    rows: dict[Part, Tensor]
    """Coded slices of a part, one behind another, `[part_pages, coded bytes]` uint8."""


class SliceCoder:
    """Moves coded slices of one file.

    Args:
        file: Whose pages are coded.
        codec: How.
        readers: Threads that may read at once.
        part_pages: Pages of an attention part.
    """

    def __init__(self, file: SessionFile, codec: Codec, readers: int, part_pages: int) -> None:
        assert file.coded is not None
        self._file, self._codec = file, codec
        self._rooms: queue.SimpleQueue[_Room] = queue.SimpleQueue()
        for _ in range(readers + 1):
            rows = {
                part: torch.empty((part_pages, file.coded.of(part)), dtype=torch.uint8)
                for part in Part
            }
            blocks = aligned_buffer(room_bytes(file.geometry.slice_bytes))
            self._rooms.put(_Room(blocks, rows))

    @contextmanager
    def reading(self) -> Iterator[CodedReads]:
        """Give room for the reads of one part; what was read is decoded at the end."""
        room = self._rooms.get()
        try:
            yield CodedReads(self._file, self._codec, room)
        finally:
            self._rooms.put(room)

    def write(self, run: PageRun, half: Part, layer: int, pages: Tensor, where: str) -> int:
        """Code and write a run of pages of one layer.

        Args:
            run: The pages.
            half: Keys or values.
            layer: Layer index.
            pages: As `out` of `read`; numbers.
            where: Which they are, for the message.

        Returns:
            Bytes written.

        Raises:
            NonFiniteKV: They are beyond what the codec can give back.
            StorageError: The device failed or is full.
        """
        data = coded_bytes(self._codec, half, pages, where).numpy().data.cast("B")
        self._file.write_pages(run.segment, half, layer, run.first, data)
        return len(data)


def is_coded(segment: SegmentId) -> bool:
    """Whether pages of a segment are coded, in a file that has a codec."""
    return segment >= RAW_SEGMENTS


class CodedReads:
    """Runs of one part that are read one by one and decoded together.

    A run is some 100 kB, and to start an operation on it takes as long as the operation.
    """

    def __init__(self, file: SessionFile, codec: Codec, room: _Room) -> None:
        self._file, self._codec, self._room = file, codec, room
        self._num_rows = dict.fromkeys(Part, 0)
        self._spans: list[tuple[Part, int, Tensor]] = []
        """Half, first row, and where it goes."""

    def read(self, run: PageRun, half: Part, layer: int, out: Tensor) -> int:
        """Read and check a run of pages of one layer; `decode` gives them.

        Args:
            run: The pages.
            half: Keys or values.
            layer: Layer index.
            out: Will take them, `[num_pages, num_kv_heads, page_tokens, head_dim]`, contiguous.

        Returns:
            Bytes read.

        Raises:
            PageCorrupt: The bytes fail their checksum.
            StorageError: The device failed.
        """
        data = self._file.read_pages_within(
            run.segment, half, layer, run.first, run.num_pages, self._room.blocks
        )
        begin, rows = self._num_rows[half], self._room.rows[half]
        coded = torch.frombuffer(data, dtype=torch.uint8).view(run.num_pages, -1)
        rows[begin : begin + run.num_pages].copy_(coded)
        self._num_rows[half] += run.num_pages
        self._spans.append((half, begin, out))
        return len(data)

    def decode(self) -> None:
        """Give everything that was read; neighbours that go to neighbouring places at once."""
        for half in Part:
            spans = [(begin, out) for part, begin, out in self._spans if part is half]
            for begin, out in _joined(spans):
                rows = self._room.rows[half][begin : begin + len(out)]
                self._codec.decode(half, rows, out)


def _joined(spans: Sequence[tuple[int, Tensor]]) -> Iterator[tuple[int, Tensor]]:
    """Join spans whose rows follow on one another and whose places do, too."""
    first, found = 0, None
    for begin, out in spans:
        if found is not None and _follows(out, found):
            found = found.as_strided((len(found) + len(out), *found.shape[1:]), found.stride())
            continue
        if found is not None:
            yield first, found
        first, found = begin, out
    if found is not None:
        yield first, found


def _follows(out: Tensor, before: Tensor) -> bool:
    """Whether a contiguous tensor lies behind another one in the same memory."""
    is_same = out.untyped_storage().data_ptr() == before.untyped_storage().data_ptr()
    return is_same and out.data_ptr() == before.data_ptr() + before.nbytes


def coded_bytes(codec: Codec, half: Part, pages: Tensor, where: str) -> Tensor:
    """Code page slices, `[N, coded bytes]` uint8.

    Raises:
        NonFiniteKV: They are no numbers, or beyond what the codec can give back.
    """
    try:
        return codec.encode(half, pages)
    except ValueError as error:
        raise NonFiniteKV(
            f"the model computed {where} that cannot be kept as {codec.name}: {error}",
            "Try --kv-dtype raw; what was committed before is kept.",
        ) from error


def page_in_codec(file: SessionFile, page_index: int, page: memoryview) -> memoryview:
    """Give a page at rest as it lies in a file, for `SessionFile.restore_page`.

    Args:
        file: The session.
        page_index: Counted from the start of the sequence.
        page: `[num_layers, 2, page slice]`, raw.
    """
    geometry = file.geometry
    if file.coded is None or page_index // geometry.pages_per_segment < RAW_SEGMENTS:
        return page
    codec, where = CODECS[file.identity.codec], f"keys or values of page {page_index:,}"
    shape = (geometry.num_layers, 2, 1, *_slice_shape(geometry))
    halves = torch.frombuffer(bytearray(page), dtype=getattr(torch, geometry.dtype)).view(shape)
    slices = [
        coded_bytes(codec, half, layer[half], where).flatten() for layer in halves for half in Part
    ]
    return torch.cat(slices).numpy().data


def recoding_to(name: str, geometry: KVGeometry) -> Recoding:
    """How a raw session becomes a coded one.

    Args:
        name: A codec other than raw.
        geometry: Of the session.

    Raises:
        ConfigError: Its pages cannot be coded so.
    """
    codec = CODECS[name]
    coded = codec.sizes(geometry)
    assert coded is not None

    def encode(half: Part, slices: memoryview) -> memoryview:
        flat = torch.frombuffer(slices, dtype=getattr(torch, geometry.dtype))
        pages = flat.view(-1, *_slice_shape(geometry))
        return coded_bytes(codec, half, pages, "keys or values").numpy().data.cast("B")

    return Recoding(name, coded, encode)


def require_codec(file: SessionFile, codec: str) -> None:
    """Refuse a file whose pages are not coded as this run wants them, or not as it knows.

    Raises:
        IdentityMismatch: Another codec was asked for, or its bytes have changed since.
        UnsupportedVersion: The codec is not known here.
    """
    stored = file.identity.codec
    if stored not in CODECS:
        raise UnsupportedVersion(
            f"{file.path}: its pages are coded as {stored!r}, which this kvcli does not know",
            "Upgrade kvcli.",
        )
    if stored != codec:
        raise IdentityMismatch(
            f"the session's pages are coded as {stored!r}, this run's as {codec!r}",
            "Leave --kv-dtype out. A raw session is coded by kvcli compact --kv-dtype; to code "
            "anew, compute it again: kvcli resume --rebuild --kv-dtype",
        )
    if CODECS[stored].sizes(file.geometry) != file.coded:
        raise IdentityMismatch(
            f"{file.path}: its pages take {file.coded}, {stored} takes "
            f"{CODECS[stored].sizes(file.geometry)} here",
            "Compute it again from its token ids: kvcli resume --rebuild",
        )


def buffer_bytes(geometry: KVGeometry, readers: int, part_tokens: int) -> int:
    """Bytes that coding takes in RAM while pages of a file move; codecs take half of raw or less.

    Args:
        geometry: Shape of the KV.
        readers: Threads that read.
        part_tokens: Tokens of an attention part.
    """
    rows = geometry.num_pages(part_tokens) * geometry.page_slice_bytes
    elements = geometry.slice_bytes // geometry.itemsize
    piece = min(max(PIECE, elements // geometry.pages_per_segment), elements)
    scratch = piece * (torch.float32.itemsize + torch.int16.itemsize)
    return (readers + OTHER_THREADS) * (room_bytes(geometry.slice_bytes) + rows + scratch)


def compute_alone() -> None:
    """Have this thread compute without helpers: each reader would bring as many as there are cores,
    and compute has them already."""
    torch.set_num_threads(1)


def _slice_shape(geometry: KVGeometry) -> tuple[int, int, int]:
    return geometry.num_kv_heads, geometry.page_tokens, geometry.head_dim
