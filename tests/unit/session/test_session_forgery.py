"""Newer formats, and files with good checksums that say what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import session_kit as kit
from session_faults import opened, overwrite

from engine.errors import NotASession, UnsupportedVersion
from engine.session import SessionFile
from engine.session.format import SUPERBLOCK_COPIES, RecordRef, Superblock, align_up
from engine.session.record import Record, Tail, decode, encode


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return kit.make(tmp_path / "s.kv", 6, 21, 3, 1)


def rewrite_root(path: Path, root: Superblock) -> None:
    """Replace every superblock by one that a different writer could have made."""
    for offset in (offset for copies in SUPERBLOCK_COPIES for offset in copies):
        overwrite(path, offset, root.pack())


def test_a_newer_format_is_refused_by_name(path: Path) -> None:
    rewrite_root(path, replace(opened(path).root, read_version=4, write_version=4))
    with pytest.raises(UnsupportedVersion, match=r"session format 4; this kvcli reads format 3"):
        SessionFile.open(path, writable=False)


def test_a_format_that_is_newer_for_writers_only_is_read_only(path: Path) -> None:
    rewrite_root(path, replace(opened(path).root, write_version=4))
    with SessionFile.open(path, writable=False) as file:
        kit.check(file)
    with pytest.raises(UnsupportedVersion, match="can only read it"):
        SessionFile.open(path, writable=True)


def rewrite_record(path: Path, change: Callable[[Record], Record]) -> None:
    """Replace the newest record by a changed one with good checksums, as a forger would."""
    found = opened(path)
    ref = found.root.record
    record = decode(path.read_bytes()[ref.offset : ref.offset + ref.length], ref.checksum)
    data = encode(change(record))
    forged = RecordRef(ref.offset, len(data), data[-16:])
    for offset in forged.copy_offsets:
        overwrite(path, offset, data.ljust(align_up(len(data)), b"\0"))
    rewrite_root(path, replace(found.root, record=forged, data_end=forged.end))


def moved(record: Record, **changes: int) -> Record:
    """The record with its first page run changed."""
    return replace(record, runs=(replace(record.runs[0], **changes), *record.runs[1:]))


def attached(record: Record, **changes: object) -> Record:
    """The record with an attachment that would be sound but for the changes."""
    fields = {"name": "a", "offset": 8192, "num_bytes": 1, "checksum": "0" * 32, "meta": {}}
    return replace(record, extra={**record.extra, "attachments": [fields | changes]})


FORGERIES: dict[str, Callable[[Record], Record]] = {
    "more KV than pages": lambda record: replace(record, kv_tokens=record.kv_tokens + 4),
    "more KV than tokens": lambda record: replace(record, token_ids=record.token_ids[:0]),
    "another session": lambda record: replace(record, uuid=bytes(16)),
    "another generation": lambda record: replace(record, generation=7),
    "no predecessor": lambda record: replace(record, previous=None),
    "a loop": lambda record: replace(record, previous=RecordRef(8192, 1 << 40, bytes(16))),
    "pages twice": lambda record: moved(record, first_page=0),
    "too many pages": lambda record: moved(record, num_pages=record.runs[0].num_pages + 1),
    "another extent": lambda record: moved(record, extent_offset=1 << 50),
    "no checksums": lambda record: replace(record, checksums=record.checksums[:0]),
    "no tail": lambda record: replace(record, tail=None),
    "short tail": lambda record: replace(record, tail=Tail(0, 3, 2, record.checksums[:1])),
    "tail nowhere": lambda record: replace(record, tail_slots=(0, 0)),
    "spans no list": lambda record: replace(record, extra={"spans": 3}),
    "notes no object": lambda record: replace(record, extra={"notes": []}),
    "attachments no list": lambda record: replace(record, extra={"attachments": {}}),
    "attachment no object": lambda record: replace(record, extra={"attachments": ["a"]}),
    "attachment of no size": lambda record: attached(record, num_bytes=0),
    "attachment before the data": lambda record: attached(record, offset=4096),
    "attachment between blocks": lambda record: attached(record, offset=8193),
    "attachment behind the record": lambda record: attached(record, offset=1 << 40),
    "attachment without a checksum": lambda record: attached(record, checksum=None),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_record_with_good_checksums_is_refused(tmp_path: Path, name: str) -> None:
    path = kit.make(tmp_path / "s.kv", 6, 21)
    rewrite_record(path, FORGERIES[name])
    with pytest.raises(NotASession):
        SessionFile.open(path, writable=False)


HEADERS: dict[str, dict[str, object]] = {
    "no header": {},
    "identity incomplete": {"identity": {"model": "tiny"}},
    "identity of numbers": {"identity": dict.fromkeys(kit.IDENTITY.__slots__, 1)},
    "no layers": {"geometry": {"num_layers": 0}},
    "unknown dtype": {"geometry": {"dtype": "int3"}},
    "unknown field": {"geometry": {"colour": 3}},
    "uneven segments": {"geometry": {"segment_tokens": 17}},
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_forged_header_is_refused(tmp_path: Path, name: str) -> None:
    def change(record: Record) -> Record:
        extra = dict(record.extra)
        if name == "no header":
            return replace(record, extra={})
        for key, value in HEADERS[name].items():
            assert isinstance(value, dict)
            extra[key] = value if key == "identity" else extra[key] | value
        return replace(record, extra=extra)

    path = kit.make(tmp_path / "s.kv", 6)
    rewrite_record(path, change)
    with pytest.raises(NotASession, match="no usable"):
        SessionFile.open(path, writable=False)


def test_a_record_cannot_be_read_past_its_end(path: Path) -> None:
    ref = opened(path).root.record
    data = path.read_bytes()[ref.offset : ref.offset + ref.length]
    for bad in (data[:-1], data + b"\0", b"", data[:20]):
        with pytest.raises(NotASession):
            decode(bad, ref.checksum)
