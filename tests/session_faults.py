"""Harm for sessions: a device that records, fails and loses power, and bytes that change."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import session_kit as kit

from engine.session import SessionFile
from engine.session.block_file import Access, BlockFile
from engine.session.recovery import Recovery, recover
from engine.types import Part

SECTOR = 512


@dataclass
class Device:
    """Records what reaches the file, and can fail the n-th call."""

    log: list[tuple[int, bytes] | str | int] = field(default_factory=list)
    """Writes as (offset, bytes), barriers as "barrier", finished commits as their generation."""
    fail_write: tuple[int, int] | None = None
    """Index of the write that fails, and its errno."""
    fail_sync: int | None = None
    short: bool = False
    """Every write moves only half of what was asked, at least a byte."""
    counts_own: bool = False
    """Only writes of the thread that installs it: one that an earlier test left behind may still
    write to a file of its own."""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real_write, real_sync = os.pwritev, os.fdatasync
        writes = syncs = 0
        installer = threading.current_thread()

        def pwritev(fd: int, buffers: list[memoryview], offset: int) -> int:
            nonlocal writes
            if self.counts_own and threading.current_thread() is not installer:
                return real_write(fd, buffers, offset)
            writes += 1
            if self.fail_write is not None and writes - 1 == self.fail_write[0]:
                raise OSError(self.fail_write[1], os.strerror(self.fail_write[1]))
            data = bytes(buffers[0])
            if self.short:
                data = data[: max(1, len(data) // 2)]
            self.log.append((offset, data))
            return real_write(fd, [data], offset)

        def fdatasync(fd: int) -> None:
            nonlocal syncs
            syncs += 1
            if self.fail_sync is not None and syncs - 1 == self.fail_sync:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.log.append("barrier")
            real_sync(fd)

        monkeypatch.setattr(os, "pwritev", pwritev)
        monkeypatch.setattr(os, "fdatasync", fdatasync)


def losing_power(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rng: random.Random,
    commits: Sequence[Callable[[SessionFile], None]],
    *,
    garbage: bool,
) -> Iterator[SessionFile]:
    """Make commits, then lose power at every write and barrier, and open what is there each time.

    Args:
        path: A session with one commit.
        monkeypatch: Undone when the commits are made.
        rng: Decides what of the unflushed writes arrives.
        commits: Each makes one.
        garbage: Sectors being written may turn to garbage instead of staying old.
    """
    base, device = path.read_bytes(), Device([1])
    with monkeypatch.context() as patch, SessionFile.open(path, writable=True) as file:
        device.install(patch)
        for commit in commits:
            commit(file)
            device.log.append(file.generation)
    image_path, seen = path.with_name("image.kv"), set()
    for length in range(len(device.log) + 1):
        image, promised = crash_image(base, device.log[:length], rng, garbage=garbage)
        image_path.write_bytes(image)
        with SessionFile.open(image_path, writable=False) as file:
            assert promised <= file.generation <= promised + 1
            kit.check(file)
            yield file
            seen.add(file.generation)
    assert seen >= set(range(1, len(commits) + 2))


def crash_image(
    base: bytes, log: list[tuple[int, bytes] | str | int], rng: random.Random, *, garbage: bool
) -> tuple[bytes, int]:
    """What a disk may hold after a power loss at the end of `log`, and the last promised commit.

    Everything before the last barrier is there; of what came after it, any set of sectors, and with
    `garbage` a sector may also be neither old nor new.
    """
    last_barrier = max((i for i, entry in enumerate(log) if entry == "barrier"), default=-1)
    image, promised = bytearray(base), 0
    for position, entry in enumerate(log):
        if isinstance(entry, int):
            promised = entry
        if not isinstance(entry, tuple):
            continue
        offset, data = entry
        share = 1.0 if position < last_barrier else rng.choice((0.0, 0.5, 1.0))
        for start in range(0, len(data), SECTOR):
            sector = data[start : start + SECTOR]
            if rng.random() >= share:
                if not garbage or rng.random() < 0.3:
                    continue
                sector = rng.randbytes(len(sector))
            end = offset + start + len(sector)
            image.extend(bytes(max(0, end - len(image))))
            image[offset + start : end] = sector
    return bytes(image), promised


def opened(path: Path) -> Recovery:
    """What a session opens to, without its lock."""
    file = BlockFile.open(path, Access.PEEK)
    try:
        return recover(file)
    finally:
        file.close()


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Change bytes of a file in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path: Path, offset: int, mask: int = 0x10) -> None:
    """Flip a bit of a file in place."""
    byte = path.read_bytes()[offset]
    overwrite(path, offset, bytes([byte ^ mask]))


def spoil(path: Path, page: int, part: Part = Part.KEYS, layer: int = 1) -> None:
    """Flip a bit of one slice of a page, counted from the start of the sequence."""
    state = opened(path).state
    segment, position = divmod(page, state.geometry.pages_per_segment)
    extent = state.segments.extent(segment)
    assert extent is not None
    flip(path, extent + state.segments.layout(segment).page_offset(part, layer, position) + 9)
