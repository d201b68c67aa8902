"""What the device and the file system can refuse, each as one clear line."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import session_kit as kit
import xxhash

from engine.errors import NotASession, StorageError
from engine.session import SessionFile, block_file, verify
from engine.session.record import Record, decode, encode


def fail(code: int) -> object:
    def call(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return call


def files(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.is_file()]


def test_a_session_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kit.make(tmp_path / "s.kv", 4)
    monkeypatch.setattr(os, "open", fail(errno.EACCES))
    with pytest.raises(StorageError, match="Permission denied"):
        SessionFile.open(path, writable=False)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = kit.make(tmp_path / "s.kv", 4)
    monkeypatch.setattr(fcntl, "flock", fail(code))
    with pytest.raises(StorageError, match=re.escape(os.strerror(code))):
        SessionFile.open(path, writable=True)
    with pytest.raises(StorageError, match=re.escape(os.strerror(code))):
        SessionFile.create(tmp_path / "new.kv", kit.IDENTITY, kit.SMALL)
    with pytest.raises(StorageError, match=re.escape(os.strerror(code))):
        SessionFile.spill(tmp_path, kit.SMALL)
    assert files(tmp_path) == ["s.kv"]


def test_a_device_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable device is not damage: nothing older is opened in its place."""
    path = kit.make(tmp_path / "s.kv", 4, 5)
    with SessionFile.open(path, writable=False) as file:
        monkeypatch.setattr(os, "preadv", fail(errno.EIO))
        with pytest.raises(StorageError, match="Input/output error") as caught:
            kit.read_page(file, 0)
        assert "Check the disk" in caught.value.advice
    with pytest.raises(StorageError):
        SessionFile.open(path, writable=True)


def test_leftovers_that_cannot_be_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kit.make(tmp_path / "s.kv", 4)
    with SessionFile.open(path, writable=True) as file:
        kit.write_page(file, 9)
    monkeypatch.setattr(os, "ftruncate", fail(errno.EIO))
    with pytest.raises(StorageError):
        SessionFile.open(path, writable=True)
    with SessionFile.open(path, writable=False) as file:
        kit.check(file)


def test_a_place_taken_while_a_record_fails_is_not_given_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread places a segment while the disk is full for the record before it."""
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file:
        real = os.pwritev

        def pwritev(fd: int, buffers: list[memoryview], offset: int) -> int:
            monkeypatch.setattr(os, "pwritev", real)
            kit.write_page(file, 9)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "pwritev", pwritev)
        with pytest.raises(StorageError):
            file.commit(kv_tokens=0)
        kit.advance(file, 4)
        assert np.array_equal(kit.read_page(file, 9), kit.page(kit.SMALL, 9))
    with SessionFile.open(tmp_path / "s.kv", writable=False) as file:
        kit.check(file)


def test_a_folder_that_refuses_the_final_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file:
        monkeypatch.setattr(os, "rename", fail(errno.EACCES))
        with pytest.raises(StorageError, match="Permission denied"):
            kit.advance(file, 4)
    assert files(tmp_path) == []


def test_a_name_that_cannot_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="no such folder"):
        SessionFile.create(tmp_path / "file" / "s.kv", kit.IDENTITY, kit.SMALL)


def test_a_platform_without_direct_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_file, "_O_DIRECT", 0)
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.ALIGNED) as file:
        assert not file.direct
        kit.advance(file, 70)
        kit.check(file)


def test_the_device_bytes_grow_with_the_pages(tmp_path: Path) -> None:
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.ALIGNED) as file:
        before = file.file_bytes
        kit.advance(file, 64)
        assert file.file_bytes >= before + 4 * kit.ALIGNED.page_bytes


def test_verify_names_a_lost_commit(tmp_path: Path) -> None:
    path = kit.make(tmp_path / "s.kv", 4, 5)
    data = bytearray(path.read_bytes())
    data[0:4096] = bytes(4096)
    path.write_bytes(data)
    messages = [fault.message for fault in verify(path, lambda done, total: None).faults]
    assert any("a later commit may be lost" in message for message in messages)


def signed(body: bytes) -> tuple[bytes, bytes]:
    """A record body with the checksum it needs to be looked at."""
    checksum = xxhash.xxh3_128_digest(body)
    return body + checksum, checksum


BODY = encode(Record(uuid=bytes(16), generation=1, previous=None, kv_tokens=0, extra={}))[:-16]
RUN = struct.pack("<IIIIQ8x", 0, 0, 1, 5, 8192)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"kvRECORD" + BODY[8:], "does not start"),
        (BODY[:40], "does not start"),
        (BODY[:104] + b"\xff" + BODY[105:], "counts"),
        (BODY[:96] + b"\2" + BODY[97:], "counts"),
        (BODY[:112] + b"\1" + BODY[113:144] + RUN + BODY[144:], "another file"),
        (BODY[:-2] + b"{]", "JSON cannot be read"),
        (BODY[:-2] + b"[]", "JSON has the wrong shape"),
    ],
)
def test_a_record_that_only_looks_sound_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(NotASession, match=reason):
        decode(*signed(body))
