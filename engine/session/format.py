"""The frozen parts of the session format: superblocks, checksums, extents, identity.

Owns byte layouts and the numbers in them (FORMAT.md is the prose of this file). Knows neither
files nor commits. Every integer is little-endian and every extent starts on a 4,096-byte block, so
that direct I/O never shares a block with anything else.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import xxhash

from engine.errors import IdentityMismatch, NotASession
from engine.types import CodedSizes, KVGeometry, Part

FORMAT_VERSION: Final = 3
"""The newest version that is read and written: of files with coded pages."""
LINKED_VERSION: Final = 2
"""Of raw files that refer to another one, or have gone back."""
PLAIN_VERSION: Final = 1
"""Of files that need nothing of what later versions added."""
RAW: Final = "raw"
"""The codec of pages that lie as they were computed."""
BLOCK: Final = 4096
SUPERBLOCK_COPIES: Final = ((0, 2048), (4096, 6144))
"""Offsets of the two copies of each of the two superblocks; each copy fits one 512-byte sector."""
DATA_START: Final = 8192

_MAGIC: Final = b"\x89kvcli\r\n"
_SUPERBLOCK: Final = struct.Struct("<8sII16sQQQ16sQ32x")
SUPERBLOCK_BYTES: Final = _SUPERBLOCK.size + 16
_PAGE_SEED: Final = struct.Struct("<16sQIIIQ")
_DTYPES: Final = ("bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True)
class Identity:
    """What the KV was computed with: another value of any field makes it meaningless."""

    model: str
    """Name the user gave, or the path."""
    weights: str
    """Fingerprint of the weights."""
    tokenizer: str
    """Fingerprint of the tokenizer."""
    template: str
    """Fingerprint of the chat template."""
    rope: str
    """Fingerprint of the rotary settings."""
    dtype: str
    """Element type the model computes in."""
    codec: str = RAW
    """Codec of pages at rest on disk."""

    def require_same(self, other: Identity) -> None:
        """Refuse KV that was computed with something else than `other`, this run's identity.

        Raises:
            IdentityMismatch: Names the first field that differs, with both values.
        """
        for field in fields(self):
            stored, wanted = getattr(self, field.name), getattr(other, field.name)
            if stored != wanted:
                raise IdentityMismatch(
                    f"the session's {field.name} is {stored!r}, this run's is {wanted!r}",
                    f"Run with --model {self.model}, or compute it again from its token ids: "
                    "kvcli resume --rebuild",
                )


def identity_from_json(value: Any) -> Identity:
    """The identity in a header record.

    Raises:
        NotASession: A field is missing, unknown or no string.
    """
    names = {field.name for field in fields(Identity)}
    if not isinstance(value, dict) or set(value) != names:
        raise NotASession("the header record has no usable identity")
    if not all(isinstance(text, str) for text in value.values()):
        raise NotASession("the header record has no usable identity")
    return Identity(**value)


def geometry_from_json(value: Any) -> KVGeometry:
    """The geometry in a header record.

    Raises:
        NotASession: A field is missing, unknown or out of range.
    """
    names = {field.name for field in fields(KVGeometry)}
    if not isinstance(value, dict) or set(value) != names:
        raise NotASession("the header record has no usable geometry")
    sizes = [number for name, number in value.items() if name != "dtype"]
    sound = (
        value["dtype"] in _DTYPES
        and all(type(number) is int and 0 < number < 1 << 24 for number in sizes)
        and value["segment_tokens"] % value["page_tokens"] == 0
    )
    if not sound:
        raise NotASession("the header record has no usable geometry")
    return KVGeometry(**value)


def coded_from_json(value: Any, identity: Identity) -> CodedSizes | None:
    """The sizes of coded page slices in a header record; None if they are raw.

    Raises:
        NotASession: They do not go with the codec, or are out of range.
    """
    if value is None and identity.codec == RAW:
        return None
    if identity.codec == RAW or not isinstance(value, dict) or set(value) != {"keys", "values"}:
        raise NotASession("the header record has no usable sizes of coded pages")
    if not all(type(number) is int and 0 < number < 1 << 31 for number in value.values()):
        raise NotASession("the header record has no usable sizes of coded pages")
    return CodedSizes(**value)


def header_json(
    identity: Identity, geometry: KVGeometry, coded: CodedSizes | None
) -> dict[str, Any]:
    """The fields that the first record of a file carries on top of a plain one."""
    header = {"identity": asdict(identity), "geometry": asdict(geometry)}
    return header if coded is None else {**header, "coded": asdict(coded)}


@dataclass(frozen=True, slots=True)
class RecordRef:
    """Where a commit record lies, and the checksum it must have."""

    offset: int
    length: int
    """Bytes of one copy, without padding; a second copy follows on the next block."""
    checksum: bytes

    @property
    def copy_offsets(self) -> tuple[int, int]:
        """File offsets of the two copies."""
        return self.offset, self.offset + align_up(self.length)

    @property
    def end(self) -> int:
        """First file offset behind both copies."""
        return self.offset + 2 * align_up(self.length)


@dataclass(frozen=True, slots=True)
class Superblock:
    """The root of a commit: names its newest record."""

    uuid: bytes
    generation: int
    record: RecordRef
    data_end: int
    """First file offset that this commit does not use."""
    read_version: int = PLAIN_VERSION
    """A reader of a lower version must refuse the file."""
    write_version: int = PLAIN_VERSION
    """A writer of a lower version must refuse the file."""

    def pack(self) -> bytes:
        """One copy: `SUPERBLOCK_BYTES` bytes."""
        body = _SUPERBLOCK.pack(
            _MAGIC,
            self.read_version,
            self.write_version,
            self.uuid,
            self.generation,
            self.record.offset,
            self.record.length,
            self.record.checksum,
            self.data_end,
        )
        return body + xxhash.xxh3_128_digest(body)

    @classmethod
    def unpack(cls, data: bytes) -> Superblock:
        """Read one copy; the version is the caller's to judge.

        Raises:
            NotASession: Foreign bytes, or a checksum that does not match.
        """
        if not is_session_start(data):
            raise NotASession("it does not start like a session file")
        body, checksum = data[: _SUPERBLOCK.size], data[_SUPERBLOCK.size : SUPERBLOCK_BYTES]
        if len(checksum) < 16 or xxhash.xxh3_128_digest(body) != checksum:
            raise NotASession("a superblock fails its checksum")
        _, read, write, uuid, generation, offset, length, record_sum, end = _SUPERBLOCK.unpack(body)
        return cls(uuid, generation, RecordRef(offset, length, record_sum), end, read, write)


def page_checksum(
    data: memoryview, uuid: bytes, page_index: int, part: Part, layer: int, tail_generation: int = 0
) -> int:
    """xxh3-64 of a page slice, seeded with its place so that a swapped slice fails.

    Args:
        data: The bytes of one page slice.
        uuid: The session's.
        page_index: Counted from the start of the sequence.
        part: Keys or values.
        layer: Layer index.
        tail_generation: The commit that wrote the slice into a tail slot; 0 for a full page.
    """
    seed = xxhash.xxh3_64_intdigest(
        _PAGE_SEED.pack(uuid, page_index, part, layer, 0, tail_generation)
    )
    return xxhash.xxh3_64_intdigest(data, seed)


def is_session_start(data: bytes) -> bool:
    """Whether a file that starts with `data` calls itself a session, sound or not."""
    return data.startswith(_MAGIC)


def align_up(num_bytes: int) -> int:
    """`num_bytes` rounded up to whole blocks."""
    return -(-num_bytes // BLOCK) * BLOCK


def aligned_buffer(num_bytes: int) -> memoryview:
    """A zeroed, writable buffer that starts on a 4,096-byte border, as direct I/O needs."""
    assert num_bytes > 0
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return memoryview(mmap.mmap(-1, num_bytes, flags=flags))[:num_bytes]
