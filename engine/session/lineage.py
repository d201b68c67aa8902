"""Forks of sessions: a file whose first segments lie in another one, its base.

Owns how a fork names its base, how that is found again, and the way from a segment to the file that
has it. A fork refers to one commit of its base by the checksum of its record, so that whatever is
added to the base later changes nothing; sealed segments never change. The base is opened without a
lock: it may be written to meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import BaseMissing, NotASession
from engine.session.block_file import BlockFile
from engine.session.format import RecordRef

if TYPE_CHECKING:
    from engine.session.state import SessionState


@dataclass(frozen=True, slots=True)
class BaseRef:
    """How a fork names its base: the entry `base` of its first record."""

    uuid: bytes
    generation: int
    record: RecordRef
    """Of that generation."""
    num_segments: int
    """Leading segments that the fork has from its base."""
    path: str
    """Where the base was, from the root."""
    beside: str
    """The same from the fork's folder: both may move together."""

    def to_json(self) -> dict[str, Any]:
        """The entry, JSON."""
        return {
            "uuid": self.uuid.hex(),
            "generation": self.generation,
            "record": [self.record.offset, self.record.length, self.record.checksum.hex()],
            "segments": self.num_segments,
            "path": self.path,
            "beside": self.beside,
        }

    @classmethod
    def from_json(cls, entry: Any) -> BaseRef:
        """The inverse of `to_json`.

        Raises:
            NotASession: A field is missing or of the wrong kind.
        """
        try:
            offset, length, checksum = entry["record"]
            ref = cls(
                bytes.fromhex(entry["uuid"]),
                entry["generation"],
                RecordRef(offset, length, bytes.fromhex(checksum)),
                entry["segments"],
                entry["path"],
                entry["beside"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise NotASession("the header record names no usable base") from error
        numbers = (ref.generation, ref.record.offset, ref.record.length)
        sound = (
            all(type(number) is int and number > 0 for number in numbers)
            and type(ref.num_segments) is int
            and ref.num_segments >= 0
            and isinstance(ref.path, str)
            and isinstance(ref.beside, str)
            and len(ref.uuid) == 16
        )
        if not sound:
            raise NotASession("the header record names no usable base")
        return ref


@dataclass(frozen=True, slots=True)
class Base:
    """An open base."""

    ref: BaseRef
    file: BlockFile
    state: SessionState
    """As it was at the commit that the fork refers to."""

    def close(self) -> None:
        """Close the file, and that of the base's own base."""
        self.file.close()
        if self.state.base is not None:
            self.state.base.close()


def home_of(file: BlockFile, state: SessionState, segment: int) -> tuple[BlockFile, SessionState]:
    """The file that has a segment, and the session whose checksums and places count for it."""
    while state.base is not None and segment < state.base.ref.num_segments:
        file, state = state.base.file, state.base.state
    return file, state


def places(folder: Path, entry: Mapping[str, Any]) -> tuple[Path, Path]:
    """Where a file may be that was noted by `place_of`."""
    return folder / str(entry.get("beside", "")), Path(str(entry.get("path", "")))


def place_of(path: Path, folder: Path) -> dict[str, str]:
    """Note where a file is, as seen from a folder and from the root."""
    whole = path.resolve()
    return {"path": str(whole), "beside": os.path.relpath(whole, folder.resolve())}


def find_base(fork: Path, ref: BaseRef, open_at: Callable[[Path], Base]) -> Base:
    """Open the base where it was, or where it is if both have moved.

    Args:
        fork: The fork's path.
        ref: How it names its base.
        open_at: Opens a file as that base.

    Raises:
        BaseMissing: It is nowhere, or what is there is another file or damaged.
        StorageError: The device failed.
    """
    reasons = []
    where = {"path": ref.path, "beside": ref.beside}
    for path in dict.fromkeys(places(fork.resolve().parent, where)):
        try:
            return open_at(path)
        except NotASession as error:
            reasons.append(error.message)
    raise BaseMissing(
        f"{fork}: most of it lies in {ref.path}, which cannot be used: {reasons[0]}",
        "Put that session back where it was, or beside this one as it used to be.",
    )
