"""How fast a folder's disk is, measured in about a second.

Owns the probe and its file, which has no name and so cannot be left behind.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from engine.session import aligned_buffer

BLOCK_BYTES = 4 << 20
MOST_BYTES = 128 << 20
SECONDS = 0.6
"""Longest time for each direction; a slow disk is measured with fewer bytes."""


@dataclass(frozen=True, slots=True)
class DiskSpeed:
    """Sequential speeds, bytes per second."""

    read: float
    write: float
    is_direct: bool
    """Whether the page cache was bypassed; if not, the read figure flatters."""


def probe_disk(folder: Path) -> DiskSpeed:
    """Write a file to the disk and read it back.

    Raises:
        OSError: The folder cannot be written, or the disk is full.
    """
    handle, name = tempfile.mkstemp(prefix=".kvcli-probe-", dir=folder)
    try:
        os.close(handle)
        handle, is_direct = _open(name)
    finally:
        os.unlink(name)
    block = aligned_buffer(BLOCK_BYTES)
    block[:] = os.urandom(BLOCK_BYTES)  # zeros could be compressed away
    try:
        started = time.monotonic()
        written = 0
        while written < MOST_BYTES and time.monotonic() - started < SECONDS:
            written += os.pwritev(handle, [block], written)
        os.fsync(handle)
        write_seconds = time.monotonic() - started
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        started = time.monotonic()
        read = 0
        while read < written and time.monotonic() - started < SECONDS:
            read += os.preadv(handle, [block], read)
        return DiskSpeed(read / (time.monotonic() - started), written / write_seconds, is_direct)
    finally:
        os.close(handle)


def _open(name: str) -> tuple[int, bool]:
    try:
        return os.open(name, os.O_RDWR | os.O_DIRECT), True
    except OSError:
        return os.open(name, os.O_RDWR), False
