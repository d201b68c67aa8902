"""A session that grows: pages are written behind the committed data, then a commit names them.

Owns placement, the commit order and the birth of the file under its final name. Knows nothing of
what the pages mean. Bytes that a commit refers to are never written over, so a crash at any moment
leaves the last commit whole. `write_pages` is safe from several threads, also while a commit runs.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from engine.errors import IdentityMismatch, UnsupportedVersion
from engine.session import publish
from engine.session.attachments import Attachment, attachment_checksum
from engine.session.block_file import Access, BlockFile, storage_error
from engine.session.format import (
    DATA_START,
    FORMAT_VERSION,
    RAW,
    Identity,
    align_up,
    aligned_buffer,
    page_checksum,
)
from engine.session.journal import Journal
from engine.session.lineage import BaseRef, home_of
from engine.session.page_io import restore_page, tail_checksums
from engine.session.reader import SessionReader
from engine.session.record import Record, Rewind, Tail, no_u64
from engine.session.record_json import record_json
from engine.session.recovery import Recovery, open_base, recover
from engine.session.removal import require_replaceable
from engine.session.state import SessionState
from engine.types import CodedSizes, KVGeometry, Part, SegmentId


class SessionFile(SessionReader):
    """One saved sequence: create, open or spill it; write pages; commit; close."""

    def __init__(
        self,
        file: BlockFile,
        state: SessionState,
        *,
        data_end: int,
        recovered: str = "",
        birth: publish.Birth | None = None,
    ) -> None:
        """Use `create`, `open` or `spill` instead."""
        super().__init__(file, state, recovered)
        self._birth = birth
        self._journal = Journal(file, data_end)
        self._placing = threading.Lock()
        self._committing = threading.Lock()
        self._attached: list[Attachment] = []

    @classmethod
    def create(
        cls,
        path: Path,
        identity: Identity,
        geometry: KVGeometry,
        *,
        coded: CodedSizes | None = None,
        overwrite: bool = False,
        is_held: bool = False,
        base: BaseRef | None = None,
    ) -> Self:
        """Start a new session; nothing appears under `path` before the first commit.

        Args:
            path: The final name.
            identity: What the KV is computed with.
            geometry: The shape of the KV.
            coded: Bytes of a page slice in the identity's codec; None if that is raw.
            overwrite: Whether the first commit may replace a session file at `path`.
            is_held: Whether the caller holds that file open, alone, and knows of its forks.
            base: The session that this one has its first segments from; it begins with all that
                is said there.

        Raises:
            ConfigError: `path` exists and may not be replaced.
            IdentityMismatch: The base's pages are coded in another way.
            SessionLocked: The file to be replaced is in use.
            BaseNeeded: Forks have pages from the file to be replaced.
            BaseMissing: The base is not there.
            StorageError: The folder is missing, read-only or full.
        """
        assert (coded is None) == (identity.codec == RAW)
        if overwrite and not is_held:
            require_replaceable(path)
        birth = publish.begin(path, overwrite=overwrite, is_held=is_held)
        try:
            file = BlockFile(path, birth.fd, Access.WRITE)
        except BaseException:
            birth.abandon()
            raise
        try:
            there = None if base is None else open_base(path, base)
            if there is not None:
                _require_same_codec(there.state, identity, coded)
        except BaseException:
            file.close()
            birth.abandon()
            raise
        state = SessionState(uuid4().bytes, identity, geometry, coded, base=there)
        return cls(file, state, data_end=DATA_START, birth=birth)

    @classmethod
    def open(cls, path: Path, *, writable: bool) -> Self:
        """Open a session at its newest whole commit; `recovered` says whether one was lost.

        Args:
            path: The file.
            writable: Take the file for appending, alone. Otherwise readers share it.

        Raises:
            NotASession: Missing, foreign, or without a commit that can be opened.
            BaseMissing: It is a fork, and its base is not there.
            UnsupportedVersion: Written by a newer kvcli.
            SessionLocked: Another process is writing it, or `writable` and somebody reads it.
            StorageError: Not permitted, or the device failed.
        """
        file = BlockFile.open(path, Access.WRITE if writable else Access.READ)
        found: Recovery | None = None
        try:
            found = recover(file)
            if writable and found.root.write_version > FORMAT_VERSION:
                raise UnsupportedVersion(
                    f"{path}: written in session format {found.root.write_version}; "
                    f"this kvcli writes format {FORMAT_VERSION} and can only read it",
                    "Upgrade kvcli.",
                )
            if writable and file.size() > found.append_at:
                file.truncate(found.append_at)
        except BaseException:
            file.close()
            if found is not None and found.state.base is not None:
                found.state.base.close()
            raise
        return cls(file, found.state, data_end=found.append_at, recovered=found.summary)

    @classmethod
    def spill(
        cls, folder: Path, geometry: KVGeometry, coded: CodedSizes | None = None, codec: str = RAW
    ) -> Self:
        """A file without a name that holds pages until it is closed; it cannot be committed.

        Args:
            folder: Where it lies.
            geometry: The shape of the KV.
            coded: Bytes of a page slice in the codec; None if that is raw.
            codec: Of its pages.

        Raises:
            StorageError: The folder is missing, read-only or full.
        """
        try:
            fd, name = tempfile.mkstemp(prefix=".kvcli-spill.", dir=folder)
            os.unlink(name)
        except OSError as error:
            raise storage_error(folder, error) from error
        file = BlockFile(folder, fd, Access.WRITE)
        identity = Identity("", "", "", "", "", "", codec)
        state = SessionState(uuid4().bytes, identity, geometry, coded)
        return cls(file, state, data_end=DATA_START)

    def write_pages(
        self, segment: SegmentId, part: Part, layer: int, first_page: int, data: memoryview
    ) -> None:
        """Write page slices that lie next to each other; they can be read at once.

        The segment gets its place in the file with its first page. Pages that are not committed
        may be written again, committed ones never.

        Args:
            segment: Index of the segment in the sequence.
            part: Keys or values.
            layer: Layer index.
            first_page: Counted from the start of the segment.
            data: Contiguous whole page slices, in the file's codec where the segment is coded.
                Starts on a 4,096-byte border for direct I/O.

        Raises:
            StorageError: The disk is full or failed. These slices must be written again; nothing
                else is affected.
        """
        geometry, data = self.geometry, data.cast("B")
        segments = self._state.segments
        layout = segments.layout(segment)
        size = layout.page_bytes(part)
        count, rest = divmod(len(data), size)
        page_index = segment * geometry.pages_per_segment + first_page
        assert rest == 0 and 0 < count <= geometry.pages_per_segment - first_page
        assert page_index >= self._state.committed_pages, "committed pages never change"
        pages = slice(first_page, first_page + count)
        offset = self._extent(segment) + layout.page_offset(part, layer, first_page)
        segments.forget(segment, part, layer, pages)
        checksums = [
            page_checksum(
                data[i * size : (i + 1) * size], self._state.uuid, page_index + i, part, layer
            )
            for i in range(count)
        ]
        self._file.write(data, offset)
        segments.remember(segment, part, layer, pages, checksums)

    def restore_page(self, page_index: int, data: memoryview) -> bool:
        """Give a damaged page its committed bytes back; see `page_io.restore_page`.

        Args:
            page_index: Counted from the start of the sequence; not one of the base's.
            data: The page as it lies in the file's codec, `[num_layers, 2, page slice]`.

        Returns:
            Whether it is as it was; if not, nothing was written.

        Raises:
            StorageError: The device failed.
        """
        home, state = home_of(
            self._file, self._state, page_index // self.geometry.pages_per_segment
        )
        assert home is self._file, "the base's pages are the base's"
        return restore_page(home, state, page_index, data.cast("B"))

    def attach(self, name: str, data: memoryview, meta: Mapping[str, Any]) -> None:
        """Write bytes beside the KV that can be computed again; the next commit names them.

        Args:
            name: What they are; may be given again, for more of them.
            data: At least one byte.
            meta: JSON object, read back with them.

        Raises:
            StorageError: The disk is full or failed; may be repeated after a full disk.
        """
        data = data.cast("B")
        padded = aligned_buffer(align_up(len(data)))
        padded[: len(data)] = data
        with self._committing:
            self._journal.require_sound()
            offset = self._journal.append(padded)
            checksum = attachment_checksum(data, self._state.uuid, offset)
            self._attached.append(Attachment(name, offset, len(data), checksum, dict(meta)))

    def commit(
        self,
        *,
        kv_tokens: int,
        token_ids: Sequence[int] | NDArray[np.integer[Any]] = (),
        spans: Sequence[Mapping[str, Any]] = (),
        notes: Mapping[str, Any] | None = None,
        tail: memoryview | None = None,
        forks: Sequence[Mapping[str, str]] = (),
        rewind: Rewind | None = None,
    ) -> None:
        """Make everything up to here durable; returns when it would survive a power loss.

        Args:
            kv_tokens: Leading tokens whose KV is in the file after this commit. Shrinks only by
                `rewind`. Its full pages must have been written; the rest is `tail`.
            token_ids: Appended to the stored ones. May run ahead of the KV.
            spans: JSON objects, appended to the stored ones.
            notes: JSON object, replaces the stored one; None keeps it.
            tail: The last, partial page as it lies at rest, `page_bytes` bytes, zero padded.
                Needed whenever `kv_tokens` changes and does not end on a page border.
            forks: Where files are made that refer to pages of this one, see `lineage.place_of`.
            rewind: What of earlier commits is kept; None: everything. No tail goes with it.

        Raises:
            StorageError: The disk is full or failed. The last commit is still whole. After a full
                disk the call may be repeated; after a failed flush the file must be opened again.
        """
        with self._committing:
            state, size = self._state, self.geometry.page_tokens
            assert self._birth is not None or state.generation > 0, "a spill file is not committed"
            self._journal.require_sound()
            ids = np.asarray(token_ids, dtype=np.uint32)
            if rewind is None:
                assert state.kv_tokens <= kv_tokens <= len(state.token_ids) + len(ids)
                stored_tail = self._write_tail(kv_tokens, tail)
                runs, checksums = state.segments.runs(state.committed_pages, kv_tokens // size)
            else:
                assert kv_tokens == rewind.kv_tokens <= min(state.kv_tokens, rewind.token_ids)
                stored_tail, runs, checksums = None, (), no_u64()
            record = Record(
                uuid=state.uuid,
                generation=state.generation + 1,
                previous=state.head,
                kv_tokens=kv_tokens,
                tail_slots=state.tail_slots,
                tail=stored_tail,
                token_ids=ids,
                runs=runs,
                checksums=checksums,
                extra=record_json(state, spans, notes, forks, rewind, self._attached),
            )
            self._journal.commit(record, state, self._birth)
            self._birth = None
            self._attached = []

    def close(self) -> None:
        """Release the file; a session that was never committed leaves nothing behind."""
        super().close()
        if self._birth is not None:
            self._birth.abandon()
            self._birth = None

    def _write_tail(self, kv_tokens: int, data: memoryview | None) -> Tail | None:
        """Put the tail page into the slot that the last commit does not use."""
        state, geometry = self._state, self.geometry
        tokens = kv_tokens % geometry.page_tokens
        if tokens == 0:
            return None
        if data is None:
            assert kv_tokens == state.kv_tokens, "the tail page changed and was not given"
            return state.tail
        data = data.cast("B")
        assert len(data) == geometry.page_bytes
        slot = 0 if state.tail is None else 1 - state.tail.slot
        if state.tail_slots[slot] == 0:
            slots = list(state.tail_slots)
            slots[slot] = self._journal.allocate(geometry.page_bytes)
            state.tail_slots = (slots[0], slots[1])
        self._file.write(data, state.tail_slots[slot])
        generation, page_index = state.generation + 1, kv_tokens // geometry.page_tokens
        checksums = tail_checksums(geometry, state.uuid, page_index, data, generation)
        return Tail(slot, tokens, generation, np.array(checksums, np.uint64))

    def _extent(self, segment: SegmentId) -> int:
        segments = self._state.segments
        with self._placing:
            offset = segments.extent(segment)
            if offset is None:
                offset = self._journal.allocate(segments.layout(segment).segment_stride)
                segments.place(segment, offset)
            return offset


def _require_same_codec(base: SessionState, identity: Identity, coded: CodedSizes | None) -> None:
    if (base.identity.codec, base.coded) != (identity.codec, coded):
        raise IdentityMismatch(
            f"the pages of a base are coded as {base.identity.codec!r}, those of a fork of it "
            f"cannot be coded as {identity.codec!r}",
            "Give the fork the codec of its base.",
        )
