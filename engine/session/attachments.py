"""Attachments: bytes beside the KV that could be computed again, by name.

Owns how a record names them and the check on load. Knows neither commits nor what the bytes mean.
Their loss costs time, never KV: whoever finds one damaged goes on without it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import xxhash

from engine.errors import AttachmentCorrupt, NotASession
from engine.session.block_file import BlockFile
from engine.session.format import BLOCK, DATA_START, align_up, aligned_buffer

_SEED: Final = struct.Struct("<16sQ")


@dataclass(frozen=True, slots=True)
class Attachment:
    """One extent of bytes, as a record names it."""

    name: str
    """What they are; several may have one name, in the order in which they were written."""
    offset: int
    num_bytes: int
    """Without padding."""
    checksum: str
    """32 hex digits, see `attachment_checksum`."""
    meta: Mapping[str, Any]
    """JSON: whatever the writer needs to read them."""

    def to_json(self) -> dict[str, Any]:
        """The entry in a record's `attachments`."""
        return asdict(self)


def attachment_checksum(data: memoryview, uuid: bytes, offset: int) -> str:
    """xxh3-128 of an attachment, seeded with its place, as 32 hex digits."""
    seed = xxhash.xxh3_64_intdigest(_SEED.pack(uuid, offset))
    return xxhash.xxh3_128_hexdigest(data, seed)


def attachments_of(extra: Mapping[str, Any], file_end: int) -> list[Attachment]:
    """The attachments that a record's JSON names.

    Args:
        extra: The JSON object of the record.
        file_end: Offset that no extent may reach beyond.

    Raises:
        NotASession: They are no list, an entry lacks a field, or an extent cannot be where it is.
    """
    entries = extra.get("attachments", [])
    if not isinstance(entries, list):
        raise NotASession("a record's attachments are no list")
    return [_attachment(entry, file_end) for entry in entries]


def _attachment(entry: Any, file_end: int) -> Attachment:
    try:
        name, offset, num_bytes = entry["name"], entry["offset"], entry["num_bytes"]
        checksum, meta = entry["checksum"], entry["meta"]
    except (KeyError, TypeError) as error:
        raise NotASession("a record names an attachment without its place") from error
    sound = (
        isinstance(name, str)
        and isinstance(checksum, str)
        and isinstance(meta, dict)
        and type(offset) is type(num_bytes) is int
        and offset % BLOCK == 0
        and offset >= DATA_START
        and 0 < num_bytes <= file_end - offset
    )
    if not sound:
        raise NotASession("a record places an attachment where it cannot be")
    return Attachment(name, offset, num_bytes, checksum, meta)


def read_attachment(file: BlockFile, uuid: bytes, attachment: Attachment) -> memoryview:
    """Read an attachment and check it.

    Raises:
        AttachmentCorrupt: It fails its checksum or lies behind the end of the file.
        StorageError: The device failed.
    """
    data = aligned_buffer(align_up(attachment.num_bytes))
    got = file.read(data, attachment.offset)
    data = data[: attachment.num_bytes]
    is_cut = got < attachment.num_bytes
    if is_cut or attachment_checksum(data, uuid, attachment.offset) != attachment.checksum:
        reason = "lies behind the end of the file" if is_cut else "fails its checksum"
        raise AttachmentCorrupt(
            f"{file.path}: attachment {attachment.name!r}: {reason}",
            "It is not used; ingest the documents again to have it back.",
        )
    return data
