"""Full disks, failing flushes, short reads and writes: the last commit stays whole."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import session_kit as kit
from session_faults import Device

from engine.errors import StorageError
from engine.session import SessionFile


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("failing", range(12))
def test_a_failed_write_leaves_the_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, code: int
) -> None:
    """Pages, tail, record, superblock: eleven writes; each fails once, the twelfth does not.

    A full disk may be tried again on the spot unless the superblock was being written.
    """
    path = kit.make(tmp_path / "s.kv", 6)
    device = Device(fail_write=(failing, code), counts_own=True)
    with SessionFile.open(path, writable=True) as file:
        with monkeypatch.context() as patch:
            device.install(patch)
            if failing == 11:
                kit.advance(file, 7)
            else:
                with pytest.raises(StorageError) as caught:
                    kit.advance(file, 7)
        if failing < 11:
            if code == errno.ENOSPC:
                assert "bytes needed" in caught.value.message
            assert file.generation == 1
            check_copy(path)
            if failing == 10:
                with pytest.raises(StorageError, match="half-way"):
                    kit.advance(file, 7)
            else:
                kit.advance(file, 7)
    with SessionFile.open(path, writable=False) as file:
        assert file.generation == (1 if failing == 10 else 2)
        assert file.recovered == ""
        kit.check(file)


def check_copy(path: Path) -> None:
    """Check a session through a copy, because the original is locked by its writer."""
    copy = path.with_name("copy.kv")
    shutil.copyfile(path, copy)
    with SessionFile.open(copy, writable=False) as file:
        assert file.generation == 1
        kit.check(file)


@pytest.mark.parametrize("failing", range(3))
def test_after_a_failed_flush_nothing_more_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The kernel may have dropped what it could not write, so a second flush proves nothing."""
    path = kit.make(tmp_path / "s.kv", 6)
    with SessionFile.open(path, writable=True) as file:
        with monkeypatch.context() as patch:
            Device(fail_sync=failing).install(patch)
            with pytest.raises(StorageError):
                kit.advance(file, 3)
        with pytest.raises(StorageError, match="half-way"):
            kit.advance(file, 3)
        kit.check(file)
    with SessionFile.open(path, writable=True) as file:
        kit.check(file)
        kit.advance(file, 3)
        kit.check(file)


def test_a_failed_first_commit_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Device(fail_write=(1, errno.ENOSPC)).install(monkeypatch)
    with (
        pytest.raises(StorageError, match="full"),
        SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file,
    ):
        kit.advance(file, 3)
    assert [entry for entry in tmp_path.iterdir() if entry.is_file()] == []


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        Device(short=True).install(patch)
        path = kit.make(tmp_path / "s.kv", 70, geometry=kit.ALIGNED)
    with SessionFile.open(path, writable=False) as file:
        kit.check(file)


def test_short_reads_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = kit.make(tmp_path / "s.kv", 70, geometry=kit.ALIGNED), os.preadv

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        return real(fd, [buffers[0][: max(1, len(buffers[0]) // 2)]], offset)

    monkeypatch.setattr(os, "preadv", preadv)
    with SessionFile.open(path, writable=False) as file:
        kit.check(file)


def test_a_file_system_that_refuses_direct_calls_is_read_and_written_buffered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some accept O_DIRECT at open and answer EINVAL to every call."""

    def refusing(real: Callable[..., int]) -> Callable[..., int]:
        def call(fd: int, buffers: list[memoryview], offset: int) -> int:
            if os.get_blocking(fd) and fd_is_direct(fd):
                raise OSError(errno.EINVAL, "refused")
            return real(fd, buffers, offset)

        return call

    monkeypatch.setattr(os, "preadv", refusing(os.preadv))
    monkeypatch.setattr(os, "pwritev", refusing(os.pwritev))
    path = kit.make(tmp_path / "s.kv", 70, geometry=kit.ALIGNED)
    with SessionFile.open(path, writable=False) as file:
        kit.check(file)


def fd_is_direct(fd: int) -> bool:
    """Whether a descriptor was opened with O_DIRECT."""
    flags = next(
        line for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines() if "flags" in line
    )
    return bool(int(flags.split()[1], 8) & os.O_DIRECT)


def test_a_disk_that_really_fills_up_keeps_the_last_commit(tmp_path: Path) -> None:
    """On a file system of half a megabyte: tokens are added until it is full, then it is opened."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        with SessionFile.create(disk / "s.kv", kit.IDENTITY, kit.ALIGNED) as file:
            with pytest.raises(StorageError, match=r"full.*bytes needed, [\d,]+ free"):
                for _ in range(100):
                    kit.advance(file, 20)
            last = file.generation
        assert last > 2
        with SessionFile.open(disk / "s.kv", writable=True) as file:
            assert file.generation == last
            kit.check(file)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
