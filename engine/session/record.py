"""Commit records: what one commit added to the session.

Owns the encoding of a record. Knows neither where a record lies nor how records add up (state.py).
A record is read back only after its checksum has been checked; the length checks here guard
against a crafted file, not against damage.
"""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from engine.errors import NotASession
from engine.session.format import RecordRef

_MAGIC: Final = b"kvrecord"
_HEAD: Final = struct.Struct("<8sQ16sQQ16sQQQQIIQQQQQ")
_RUN: Final = struct.Struct("<IIIIQ8x")
_CHECKSUM_BYTES: Final = 16


class _Head(NamedTuple):
    """The fixed part of a record, in file order."""

    magic: bytes
    generation: int
    uuid: bytes
    previous_offset: int
    previous_length: int
    previous_checksum: bytes
    kv_tokens: int
    tail_slot_0: int
    tail_slot_1: int
    tail_generation: int
    tail_slot: int
    tail_tokens: int
    num_token_ids: int
    num_runs: int
    num_checksums: int
    num_tail_checksums: int
    extra_bytes: int


def no_u64() -> NDArray[np.uint64]:
    """An empty array of checksums."""
    return np.empty(0, np.uint64)


def no_u32() -> NDArray[np.uint32]:
    """An empty array of token ids."""
    return np.empty(0, np.uint32)


@dataclass(frozen=True, slots=True)
class PageRun:
    """Consecutive pages of one segment that a commit made part of the session."""

    segment: int
    extent_offset: int
    first_page: int
    """Counted from the start of the segment."""
    num_pages: int


@dataclass(frozen=True, slots=True)
class Rewind:
    """What a commit keeps of those before it: the entry `rewind` of its record."""

    token_ids: int
    """Leading token ids."""
    spans: int
    """Leading spans."""
    kv_tokens: int
    """Leading tokens whose KV stays; whole segments."""

    @classmethod
    def from_json(cls, entry: Any) -> Rewind:
        """Read the entry.

        Raises:
            NotASession: A field is missing or no number.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(entry, dict) or sorted(entry) != sorted(names):
            raise NotASession("a record goes back to nowhere")
        if not all(type(number) is int and number >= 0 for number in entry.values()):
            raise NotASession("a record goes back to nowhere")
        return cls(**entry)


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """The last, partially filled page of a commit, in one of two slots."""

    slot: int
    tokens: int
    generation: int
    """The commit that wrote the slot; later commits may name the same bytes again."""
    checksums: NDArray[np.uint64]
    """`[num_layers * 2]`, in the order of a page at rest."""


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One commit, as the difference to the commit before it."""

    uuid: bytes
    generation: int
    previous: RecordRef | None
    kv_tokens: int
    """Leading tokens whose KV is committed."""
    tail_slots: tuple[int, int] = (0, 0)
    """File offsets of the two tail slots, 0 while not allocated."""
    tail: Tail | None = None
    token_ids: NDArray[np.uint32] = field(default_factory=no_u32)
    runs: tuple[PageRun, ...] = ()
    checksums: NDArray[np.uint64] = field(default_factory=no_u64)
    """Of all pages of `runs`, `[page, part, layer]` flattened."""
    extra: dict[str, Any] = field(default_factory=dict)
    """JSON: "spans" added, "notes" as they are now, "rewind" if earlier commits are not kept whole,
    and the header fields in the first record."""


def encode(record: Record) -> bytes:
    """The bytes of one copy of `record`, its checksum last."""
    tail = record.tail
    previous = record.previous or RecordRef(0, 0, bytes(_CHECKSUM_BYTES))
    extra = json.dumps(record.extra, allow_nan=False, separators=(",", ":")).encode("ascii")
    tail_checksums = no_u64() if tail is None else tail.checksums
    head = _Head(
        magic=_MAGIC,
        generation=record.generation,
        uuid=record.uuid,
        previous_offset=previous.offset,
        previous_length=previous.length,
        previous_checksum=previous.checksum,
        kv_tokens=record.kv_tokens,
        tail_slot_0=record.tail_slots[0],
        tail_slot_1=record.tail_slots[1],
        tail_generation=0 if tail is None else tail.generation,
        tail_slot=0 if tail is None else tail.slot,
        tail_tokens=0 if tail is None else tail.tokens,
        num_token_ids=len(record.token_ids),
        num_runs=len(record.runs),
        num_checksums=len(record.checksums),
        num_tail_checksums=len(tail_checksums),
        extra_bytes=len(extra),
    )
    runs = b"".join(
        _RUN.pack(run.segment, run.first_page, run.num_pages, 0, run.extent_offset)
        for run in record.runs
    )
    body = b"".join(
        (
            _HEAD.pack(*head),
            record.token_ids.astype("<u4").tobytes(),
            runs,
            record.checksums.astype("<u8").tobytes(),
            tail_checksums.astype("<u8").tobytes(),
            extra,
        )
    )
    return body + xxhash.xxh3_128_digest(body)


def decode(data: bytes, expected_checksum: bytes) -> Record:
    """The record in `data`, which must be exactly its bytes.

    Raises:
        NotASession: The checksum does not match, or the counts do not fit the length.
    """
    body = data[:-_CHECKSUM_BYTES]
    checksum = xxhash.xxh3_128_digest(body)
    if checksum != expected_checksum or checksum != data[-_CHECKSUM_BYTES:]:
        raise NotASession("a record fails its checksum")
    if len(body) < _HEAD.size or not body.startswith(_MAGIC):
        raise NotASession("a record does not start like one")
    head = _Head._make(_HEAD.unpack_from(body))
    sizes = (
        4 * head.num_token_ids,
        _RUN.size * head.num_runs,
        8 * head.num_checksums,
        8 * head.num_tail_checksums,
        head.extra_bytes,
    )
    ends = list(itertools.accumulate(sizes, initial=_HEAD.size))
    if ends[-1] != len(body) or head.tail_slot > 1:
        raise NotASession("the counts of a record do not fit its length")
    ids, runs, checksums, tail_checksums, extra = (
        body[start:end] for start, end in itertools.pairwise(ends)
    )
    tail = Tail(head.tail_slot, head.tail_tokens, head.tail_generation, _u64(tail_checksums))
    previous = RecordRef(head.previous_offset, head.previous_length, head.previous_checksum)
    return Record(
        uuid=head.uuid,
        generation=head.generation,
        previous=previous if previous.offset else None,
        kv_tokens=head.kv_tokens,
        tail_slots=(head.tail_slot_0, head.tail_slot_1),
        tail=tail if tail.tokens else None,
        token_ids=np.frombuffer(ids, "<u4").astype(np.uint32),
        runs=_decode_runs(runs),
        checksums=_u64(checksums),
        extra=_decode_extra(extra),
    )


def _u64(data: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(data, "<u8").astype(np.uint64)


def _decode_runs(data: bytes) -> tuple[PageRun, ...]:
    runs = []
    for segment, first_page, num_pages, source, extent_offset in _RUN.iter_unpack(data):
        if source != 0:
            raise NotASession("a record refers to pages of another file")
        runs.append(PageRun(segment, extent_offset, first_page, num_pages))
    return tuple(runs)


def _decode_extra(data: bytes) -> dict[str, Any]:
    try:
        extra = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotASession("a record's JSON cannot be read") from error
    sound = (
        isinstance(extra, dict)
        and isinstance(extra.get("spans", []), list)
        and isinstance(extra.get("notes", {}), dict)
        and isinstance(forks := extra.get("forks", []), list)
        and all(isinstance(fork, dict) for fork in forks)
    )
    if not sound:
        raise NotASession("a record's JSON has the wrong shape")
    return dict(extra)
