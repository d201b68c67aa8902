"""A session that can be read: what `open` and the tiers see.

Owns the read half of the public interface. Knows no commits and changes nothing. Page reads are
safe from several threads; `close` is not, so stop the readers first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import StorageError
from engine.session import page_io
from engine.session.attachments import Attachment, read_attachment
from engine.session.block_file import BlockFile
from engine.session.format import Identity
from engine.session.lineage import BaseRef, home_of, place_of
from engine.session.page_map import PageMap
from engine.session.state import SessionState
from engine.types import CodedSizes, KVGeometry, Part, SegmentId


class SessionReader:
    """The committed sequence of a file, and its pages."""

    def __init__(self, file: BlockFile, state: SessionState, recovered: str = "") -> None:
        self._file = file
        self._state = state
        self._recovered = recovered

    @property
    def path(self) -> Path:
        """Where the file is, or will be after its first commit."""
        return self._file.path

    @property
    def identity(self) -> Identity:
        """What the KV was computed with."""
        return self._state.identity

    @property
    def geometry(self) -> KVGeometry:
        """The shape of the KV, its pages and segments."""
        return self._state.geometry

    @property
    def coded(self) -> CodedSizes | None:
        """Bytes of a page slice in the identity's codec; None if that is raw."""
        return self._state.coded

    def page_bytes(self, segment: SegmentId, part: Part) -> int:
        """Bytes of a page slice of a segment in the file: those of the first are raw."""
        return self._state.segments.layout(segment).page_bytes(part)

    @property
    def uuid(self) -> str:
        """The session's own id, 32 hex digits; a copy of the file keeps it."""
        return self._state.uuid.hex()

    @property
    def generation(self) -> int:
        """Number of the newest commit; 0 before the first."""
        return self._state.generation

    @property
    def recovered(self) -> str:
        """What was damaged and what is lost, in one line; empty for a sound file."""
        return self._recovered

    @property
    def token_ids(self) -> NDArray[np.uint32]:
        """All stored token ids, `[num_tokens]`, read-only."""
        return self._state.token_ids

    @property
    def kv_tokens(self) -> int:
        """How many leading tokens have committed KV; the rest can be computed from their ids."""
        return self._state.kv_tokens

    @property
    def tail_tokens(self) -> int:
        """Tokens in the stored tail page; 0 if the KV ends on a page border."""
        return 0 if self._state.tail is None else self._state.tail.tokens

    @property
    def spans(self) -> list[dict[str, Any]]:
        """All stored spans, in the order they were added. Not to be changed."""
        return self._state.spans

    @property
    def notes(self) -> dict[str, Any]:
        """The newest notes. Not to be changed."""
        return self._state.notes

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Bytes beside the KV that were committed, in the order in which they were written."""
        return tuple(self._state.all_attachments())

    @property
    def base(self) -> BaseRef | None:
        """The session that this one has its first segments from, if it is a fork."""
        return None if self._state.base is None else self._state.base.ref

    def as_base(self, fork: Path, num_segments: int) -> BaseRef:
        """What a fork at that path has to know of this session, for so many segments from here."""
        state = self._state
        assert state.head is not None, "only what is committed can be shared"
        assert 0 <= num_segments <= state.kv_tokens // state.geometry.segment_tokens
        where = place_of(self.path, fork.parent)
        return BaseRef(state.uuid, state.generation, state.head, num_segments, **where)

    @property
    def forks(self) -> list[dict[str, Any]]:
        """Where files were made that have pages from this one. Not to be changed."""
        return self._state.forks

    @property
    def direct(self) -> bool:
        """Whether aligned reads and writes go around the page cache (O_DIRECT)."""
        return self._file.direct

    @property
    def bytes_read(self) -> int:
        """Bytes read from the file so far."""
        return sum(file.bytes_read for file in self._files())

    @property
    def bytes_written(self) -> int:
        """Bytes written to the file so far, metadata included."""
        return self._file.bytes_written

    @property
    def file_bytes(self) -> int:
        """Bytes that the file takes on the device."""
        return self._file.allocated()

    def has_page(self, page_index: int) -> bool:
        """Whether a full page, counted from the start, is in the file, committed or not."""
        segment = page_index // self.geometry.pages_per_segment
        _, state = home_of(self._file, self._state, segment)
        return state.segments.is_complete(page_index)

    def _files(self) -> Iterator[BlockFile]:
        """The file, its base, that one's base, and so on."""
        yield self._file
        state = self._state
        while state.base is not None:
            yield state.base.file
            state = state.base.state

    def read_pages(
        self,
        segment: SegmentId,
        part: Part,
        layer: int,
        first_page: int,
        num_pages: int,
        into: memoryview,
    ) -> None:
        """Read page slices that lie next to each other, and check each of them.

        Args:
            segment: Index of the segment in the sequence.
            part: Keys or values.
            layer: Layer index.
            first_page: Counted from the start of the segment.
            num_pages: How many; all must be in the file (`has_page`).
            into: Writable, contiguous, `num_pages * page_bytes` bytes. Starts on a 4,096-byte
                border for direct I/O (`aligned_buffer`). Undefined after an error.

        Raises:
            PageCorrupt: A slice fails its checksum; names file, page, layer and part.
            StorageError: The device failed.
        """
        page_io.read_pages(
            self._file, self._state, segment, part, layer, first_page, num_pages, into.cast("B")
        )

    def read_pages_within(
        self,
        segment: SegmentId,
        part: Part,
        layer: int,
        first_page: int,
        num_pages: int,
        room: memoryview,
    ) -> memoryview:
        """As `read_pages`, by whole blocks: for coded slices, which begin anywhere.

        Args:
            segment: As for `read_pages`, like those that follow.
            part: Keys or values.
            layer: Layer index.
            first_page: Counted from the start of the segment.
            num_pages: How many.
            room: Starts on a 4,096-byte border; `room_bytes` of what is read, or more.

        Returns:
            The slices, somewhere in `room`.

        Raises:
            PageCorrupt: A slice fails its checksum; names file, page, layer and part.
            StorageError: The device failed.
        """
        return page_io.read_pages_within(
            self._file, self._state, segment, part, layer, first_page, num_pages, room
        )

    def page_map(self) -> PageMap:
        """Give the pages as memory, to be read without copying; only while the file is open.

        Raises:
            ConfigError: The system cannot do that.
        """
        return PageMap(self._file, self._state)

    def read_tail(self, into: memoryview) -> None:
        """Read the stored tail page; only when `tail_tokens` is not 0.

        Args:
            into: Writable, `page_bytes` bytes; receives `[num_layers, 2, page slice]`, the tokens
                behind `tail_tokens` as they were given to `commit`. Undefined after an error.

        Raises:
            PageCorrupt: A slice fails its checksum; names file, layer and part.
            StorageError: The device failed.
        """
        page_io.read_tail(self._file, self._state, into.cast("B"))

    def read_attachment(self, attachment: Attachment) -> memoryview:
        """Read one of `attachments`, and check it.

        Raises:
            AttachmentCorrupt: It fails its checksum; to be done without.
            StorageError: The device failed.
        """
        file, state, base = self._file, self._state, self._state.base
        while base is not None:
            if any(attachment is there for there in base.state.attachments):
                file, state = base.file, base.state
            base = base.state.base
        return read_attachment(file, state.uuid, attachment)

    def free_space_check(self, bytes_needed: int) -> None:
        """Refuse work that cannot fit.

        Raises:
            StorageError: The file system has less than `bytes_needed` left; names both.
        """
        free = self._file.free_space()
        if free < bytes_needed:
            raise StorageError(
                f"{self.path}: {bytes_needed:,} bytes needed, {free:,} free",
                "Free some space or choose another folder.",
            )

    def close(self) -> None:
        """Release the file. May be called again; no other method may."""
        for file in self._files():
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
