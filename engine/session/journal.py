"""The commit order: pages, then the record that names them, then the superblock that names it.

Owns the end of the file and the barriers between the steps. Knows nothing of how a record came
about. After a step whose outcome is unknown no other commit is tried on the same open file.
"""

from __future__ import annotations

import threading

from engine.errors import StorageError
from engine.session.block_file import BlockFile
from engine.session.format import (
    BLOCK,
    LINKED_VERSION,
    SUPERBLOCK_COPIES,
    RecordRef,
    Superblock,
    align_up,
)
from engine.session.publish import Birth
from engine.session.record import Record, encode
from engine.session.state import SessionState


class Journal:
    """The growing end of one session file. `allocate` is safe from several threads."""

    def __init__(self, file: BlockFile, data_end: int) -> None:
        self._file = file
        self._data_end = data_end
        self._lock = threading.Lock()
        self._broken = False

    def allocate(self, num_bytes: int) -> int:
        """Reserve whole blocks at the end of the file; returns their offset."""
        with self._lock:
            offset = self._data_end
            self._data_end += align_up(num_bytes)
            return offset

    def append(self, data: memoryview) -> int:
        """Write whole blocks at the end of the file, durable with the next commit.

        Returns:
            Their offset.

        Raises:
            StorageError: The disk is full or failed; the place is given back if it can be.
        """
        offset = self.allocate(len(data))
        try:
            self._file.write(data, offset)
        except StorageError:
            with self._lock:
                if self._data_end == offset + align_up(len(data)):
                    self._data_end = offset
            raise
        return offset

    def require_sound(self) -> None:
        """Refuse to commit after a commit that failed half-way.

        Raises:
            StorageError: There was one.
        """
        if self._broken:
            raise StorageError(
                f"{self._file.path}: an earlier commit failed half-way, so no other can follow",
                "Open the session again; it holds its last whole commit.",
            )

    def commit(self, record: Record, state: SessionState, birth: Birth | None) -> None:
        """Make `record` durable and add it to `state`.

        Args:
            record: Follows on `state`; all it names has been written.
            state: Changed once nothing can fail any more.
            birth: Given with the first commit, which gives the file its name.

        Raises:
            StorageError: The disk is full or failed; `state` is unchanged.
        """
        self._barrier()
        ref = self._write_record(record)
        self._barrier()
        # Until the state has followed, file and memory may disagree: an error leaves it at that.
        self._broken = True
        version = max(state.format_version, LINKED_VERSION if "rewind" in record.extra else 0)
        self._write_root(
            Superblock(record.uuid, record.generation, ref, ref.end, version, version), birth
        )
        self._file.sync()
        if birth is not None:
            birth.publish()
        state.apply([(record, ref)])
        self._broken = False

    def _write_record(self, record: Record) -> RecordRef:
        data = encode(record)
        padded = data.ljust(align_up(len(data)), b"\0") * 2
        return RecordRef(self.append(memoryview(padded)), len(data), data[-16:])

    def _write_root(self, root: Superblock, birth: Birth | None) -> None:
        """Fill the older superblock; the first commit fills both."""
        block = root.pack().ljust(BLOCK // 2, b"\0") * 2
        for slot in (root.generation % 2,) if birth is None else (0, 1):
            self._file.write(memoryview(block), SUPERBLOCK_COPIES[slot][0])

    def _barrier(self) -> None:
        """After a failed flush the kernel may forget what it could not write, so stop for good."""
        try:
            self._file.sync()
        except StorageError:
            self._broken = True
            raise
