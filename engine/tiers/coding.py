"""Between page slices as the engine has them and the coded bytes of a session file.

Owns the buffers of coded bytes and the moment of coding: on the threads that read and write, so
that it goes on beside compute. How slices are coded is the codec's, where they lie the session's.
"""

from __future__ import annotations

import queue
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


class SliceCoder:
    """Moves coded slices of one file.

    Args:
        file: Whose pages are coded.
        codec: How.
        readers: Threads that may read at once.
    """

    def __init__(self, file: SessionFile, codec: Codec, readers: int) -> None:
        self._file, self._codec = file, codec
        self._rooms: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        for _ in range(readers + 1):
            self._rooms.put(aligned_buffer(room_bytes(file.geometry.slice_bytes)))

    def codes(self, segment: SegmentId) -> bool:
        """Whether pages of a segment are coded at all."""
        return segment >= RAW_SEGMENTS

    def read(self, run: PageRun, half: Part, layer: int, out: Tensor) -> int:
        """Read, check and decode a run of pages of one layer.

        Args:
            run: The pages.
            half: Keys or values.
            layer: Layer index.
            out: Takes them, `[num_pages, num_kv_heads, page_tokens, head_dim]`.

        Returns:
            Bytes read.

        Raises:
            PageCorrupt: The bytes fail their checksum.
            StorageError: The device failed.
        """
        room = self._rooms.get()
        try:
            data = self._file.read_pages_within(
                run.segment, half, layer, run.first, run.num_pages, room
            )
            coded = torch.frombuffer(data, dtype=torch.uint8).view(run.num_pages, -1)
            self._codec.decode(half, coded, out)
            return len(data)
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


def buffer_bytes(geometry: KVGeometry, readers: int) -> int:
    """Bytes that coding takes in RAM while pages of a file move."""
    elements = geometry.slice_bytes // geometry.itemsize
    piece = min(max(PIECE, elements // geometry.pages_per_segment), elements)
    scratch = piece * (torch.float32.itemsize + torch.int16.itemsize)
    return (readers + OTHER_THREADS) * (room_bytes(geometry.slice_bytes) + scratch)


def compute_alone() -> None:
    """Have this thread compute without helpers: each reader would bring as many as there are cores,
    and compute has them already."""
    torch.set_num_threads(1)


def _slice_shape(geometry: KVGeometry) -> tuple[int, int, int]:
    return geometry.num_kv_heads, geometry.page_tokens, geometry.head_dim
