"""Opening a session file: find the newest commit that is whole, and say what was lost.

Owns the start-up states of FORMAT.md. Superblocks and records exist twice, so one damaged place in
them costs nothing; where a commit is beyond use, the one before it is opened. Changes nothing in
the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.errors import NotASession, PageCorrupt, UnsupportedVersion
from engine.session.block_file import Access, BlockFile
from engine.session.format import (
    DATA_START,
    FORMAT_VERSION,
    SUPERBLOCK_BYTES,
    SUPERBLOCK_COPIES,
    RecordRef,
    Superblock,
    align_up,
    aligned_buffer,
)
from engine.session.lineage import Base, BaseRef, find_base
from engine.session.page_io import read_tail
from engine.session.record import Record, decode
from engine.session.state import SessionState

_RESTORE: Final = "Restore a copy of the file, or ingest the documents again."


@dataclass(frozen=True, slots=True, eq=False)
class Recovery:
    """The commit a file opens to."""

    state: SessionState
    root: Superblock
    damage: tuple[str, ...]
    """Damaged metadata for which a second copy stood in."""
    lost: str
    """What is gone, or may be; empty if nothing is."""
    append_at: int
    """Where a writer appends. Behind everything if something was lost, so that evidence stays."""

    @property
    def summary(self) -> str:
        """One line for the user; empty for a file without damage."""
        if self.lost:
            return self.lost
        return "; ".join((*self.damage, "nothing is lost")) if self.damage else ""


@contextmanager
def recovered(
    path: Path, access: Access, *, thorough: bool = False
) -> Iterator[tuple[BlockFile, Recovery]]:
    """Open a file at its newest whole commit for a while; see `recover`.

    Raises:
        SessionLocked: Another process holds it in a way that excludes `access`.
        BaseMissing: It is a fork, and its base is not there.
    """
    file = BlockFile.open(path, access)
    try:
        found = recover(file, thorough=thorough)
        try:
            yield file, found
        finally:
            if found.state.base is not None:
                found.state.base.close()
    finally:
        file.close()


def recover(file: BlockFile, *, thorough: bool = False) -> Recovery:
    """Open the newest whole commit.

    Args:
        file: An open file.
        thorough: Also read the second copies, so that `damage` is complete.

    Raises:
        NotASession: No commit can be opened; the message says why.
        BaseMissing: It is a fork, and its base is not there.
        UnsupportedVersion: The newest commit was written by a newer kvcli.
        StorageError: The device failed.
    """
    roots = _read_superblocks(file)
    reasons: list[str] = []
    for root in roots.newest_first:
        if root.read_version > FORMAT_VERSION:
            raise UnsupportedVersion(
                f"{file.path}: written in session format {root.read_version}; "
                f"this kvcli reads format {FORMAT_VERSION}",
                "Upgrade kvcli.",
            )
        try:
            records, record_damage = _read_chain(file, root, thorough=thorough)
            state = _fold(file, records)
        except NotASession as fault:
            reasons.append(f"generation {root.generation} is damaged: {fault.message}")
            continue
        if roots.dead and file.size() > root.data_end:
            # Every commit grows the file: without more bytes there was no later one.
            reasons.append(f"{roots.dead}, a later commit may be lost")
        return _opened(file, state, root, (*roots.damage, *record_damage), reasons)
    raise NotASession(f"{file.path}: no commit can be opened: {'; '.join(reasons)}", _RESTORE)


def _fold(file: BlockFile, records: list[tuple[Record, RecordRef]]) -> SessionState:
    """Add the records up; a fork's base is opened for it."""
    entry = records[0][0].extra.get("base")
    if entry is None:
        return SessionState.from_records(records)
    base = open_base(file.path, BaseRef.from_json(entry))
    try:
        return SessionState.from_records(records, base)
    except BaseException:
        base.close()
        raise


def open_base(fork: Path, ref: BaseRef) -> Base:
    """Open the base of a fork, wherever it is.

    Raises:
        BaseMissing: It is not there, or damaged.
        StorageError: The device failed.
    """
    return find_base(fork, ref, lambda path: _open_base(path, ref))


def _open_base(path: Path, ref: BaseRef) -> Base:
    file = BlockFile.open(path, Access.PEEK)
    try:
        root = Superblock(ref.uuid, ref.generation, ref.record, ref.record.end)
        records, _ = _read_chain(file, root, thorough=False)
        return Base(ref, file, _fold(file, records))
    except BaseException:
        file.close()
        raise


def _opened(
    file: BlockFile,
    state: SessionState,
    root: Superblock,
    damage: tuple[str, ...],
    lost: list[str],
) -> Recovery:
    if not lost:
        return Recovery(state, root, damage, "", root.data_end)
    if state.tail is not None:
        # The only bytes of an older commit that the commit after the next one writes over.
        try:
            read_tail(file, state, aligned_buffer(state.geometry.page_bytes))
        except PageCorrupt:
            lost.append(f"the KV of the last {state.drop_tail()} tokens is lost")
    line = "; ".join((*lost, f"opened at generation {root.generation}"))
    return Recovery(state, root, damage, line, align_up(max(file.size(), root.data_end)))


@dataclass(frozen=True, slots=True)
class _Roots:
    newest_first: list[Superblock]
    damage: tuple[str, ...]
    dead: str
    """Names the superblock of which no copy can be read, if there is one."""


def _read_superblocks(file: BlockFile) -> _Roots:
    """All different superblocks, and what is damaged in them."""
    area = bytearray(DATA_START)
    if file.read(memoryview(area), 0) == 0:
        raise NotASession(f"{file.path}: the file is empty", "Name a session file (NAME.kv).")
    found: dict[int, Superblock] = {}
    damage: list[str] = []
    dead = reason = ""
    for slot, copies in enumerate(SUPERBLOCK_COPIES):
        bad = 0
        for number, offset in enumerate(copies):
            try:
                root = Superblock.unpack(bytes(area[offset : offset + SUPERBLOCK_BYTES]))
                found.setdefault(root.generation, root)
            except NotASession as fault:
                bad += 1
                reason = reason or fault.message
                damage.append(f"superblock {slot} is damaged in copy {number}")
        if bad == len(copies):
            dead = f"superblock {slot} is damaged"
    if not found:
        raise NotASession(f"{file.path}: not a session file: {reason}", _RESTORE)
    return _Roots([found[key] for key in sorted(found, reverse=True)], tuple(damage), dead)


def _read_chain(
    file: BlockFile, root: Superblock, *, thorough: bool
) -> tuple[list[tuple[Record, RecordRef]], list[str]]:
    """All records of a commit, oldest first, and which copies of them are damaged."""
    records: list[tuple[Record, RecordRef]] = []
    damage: list[str] = []
    ref: RecordRef | None = root.record
    generation = root.generation
    limit = root.data_end
    while ref is not None:
        if ref.offset < DATA_START or ref.end > limit or ref.length < 1:
            raise NotASession(f"the record of generation {generation} lies outside the file")
        record = _read_record(file, ref, generation, damage, thorough=thorough)
        if record.uuid != root.uuid or record.generation != generation:
            raise NotASession(f"the record of generation {generation} belongs elsewhere")
        records.append((record, ref))
        limit = ref.offset
        ref = record.previous
        generation -= 1
    if generation != 0:
        raise NotASession("the chain of records has no start")
    records.reverse()
    return records, damage


def _read_record(
    file: BlockFile, ref: RecordRef, generation: int, damage: list[str], *, thorough: bool
) -> Record:
    """The record from its first sound copy; adds a line to `damage` for each bad one."""
    found: Record | None = None
    reason = ""
    for number, offset in enumerate(ref.copy_offsets):
        data = bytearray(min(ref.length, max(0, file.size() - offset)))
        got = file.read(memoryview(data), offset)
        try:
            if got < ref.length:
                raise NotASession("the file is cut short")
            record = decode(bytes(data), ref.checksum)
        except NotASession as fault:
            reason = reason or fault.message
            damage.append(f"the record of generation {generation} is damaged in copy {number}")
            continue
        found = found or record
        if not thorough:
            break
    if found is None:
        raise NotASession(f"the record of generation {generation}: {reason}")
    return found
