"""How fast a folder's disk answers random reads and takes writes, measured in about a second.

Owns the probe, its file, which has no name and so cannot be left behind, and the choice of threads
and extents from what was measured. Does not know what is read later, nor where results are kept.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from engine.session import aligned_buffer
from engine.session.format import BLOCK
from kvcli.sizes import format_size

THREADS = (1, 2, 4, 8)
EXTENTS = (64 << 10, 256 << 10, 1 << 20)
ENOUGH = 0.95
"""Share of the best rate that a cheaper choice must reach."""

BLOCK_BYTES = 4 << 20
MOST_BYTES = 128 << 20
LEAST_BYTES = 2 * BLOCK_BYTES
DISK_SHARE = 4
"""The probe's file takes at most one part in so many of what is free."""
WRITE_SECONDS = 0.4
"""Longest time for writing; a slow disk is measured with fewer bytes."""
READ_SECONDS = 0.8
"""Longest time for all reads together; what was not measured by then is not chosen."""
POINT_SECONDS = 0.06


def format_extent(num_bytes: int) -> str:
    """Write the bytes of an extent, a power of two: `256 KiB`, `1 MiB`."""
    return f"{num_bytes >> 20} MiB" if num_bytes >= 1 << 20 else f"{num_bytes >> 10} KiB"


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """Random reads of one size by so many threads."""

    threads: int
    extent_bytes: int
    rate: float
    """Bytes per second."""

    @property
    def readers(self) -> int:
        """Threads for whoever does more than reading: while one checks, the disk goes on."""
        return self.threads + 1

    def __str__(self) -> str:
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{threads} x {format_extent(self.extent_bytes)}"


DEFAULT = (2, 1 << 20)
"""Threads and extent where nothing could be measured."""


@dataclass(frozen=True, slots=True)
class DiskProbe:
    """What was measured of one disk."""

    grid: tuple[ReadPoint, ...]
    """At least one point; with the page cache in between, only `DEFAULT`."""
    write: float
    """Sequential writes until they are on the disk, bytes per second."""
    is_direct: bool
    """Whether the page cache was bypassed; if not, the rates flatter and choose nothing."""

    def choice(self, longest: int | None = None) -> ReadPoint:
        """Choose how to read, by `choose`.

        Args:
            longest: Bytes of the longest run that will be asked for at once; None: no limit.
        """
        if not self.is_direct:
            return self.grid[0]
        return choose(self.grid, longest)

    def describe(self, longest: int | None = None) -> str:
        """The choice with its rate, and the rate of writing, for people."""
        found = self.choice(longest)
        reads = f"{found}: {format_size(found.rate)}/s random reads"
        cached = "" if self.is_direct else " (through the page cache: no direct I/O here)"
        return f"{reads}; writes {format_size(self.write)}/s{cached}"


def choose(grid: Iterable[ReadPoint], longest: int | None = None) -> ReadPoint:
    """Choose the fewest threads, and for these the smallest extent, that are `ENOUGH`.

    Args:
        grid: What was measured.
        longest: Bytes of the longest run that will be asked for at once. Of points with extents
            more than twice as long the rates would never be seen: they are left out, but for the
            smallest extent.
    """
    points = list(grid)
    if longest is not None:
        most = max(2 * longest, min(point.extent_bytes for point in points))
        points = [point for point in points if point.extent_bytes <= most]
    best = max(point.rate for point in points)
    good = [point for point in points if point.rate >= ENOUGH * best]
    return min(good, key=lambda point: (point.threads, point.extent_bytes))


def explore(
    measure: Callable[[int, int], float], is_late: Callable[[], bool]
) -> tuple[ReadPoint, ...]:
    """Measure the grid, extent by extent, and stop to grow what no longer gains.

    Args:
        measure: Gives the rate of so many threads with such an extent, bytes per second.
        is_late: Whether time is up; the first point is measured in any case.
    """
    grid: list[ReadPoint] = []
    best_before = 0.0
    for extent in EXTENTS:
        best = 0.0
        for threads in THREADS:
            if grid and is_late():
                return tuple(grid)
            rate = measure(threads, extent)
            grid.append(ReadPoint(threads, extent, rate))
            if rate * ENOUGH <= best:
                break
            best = max(best, rate)
        if best * ENOUGH <= best_before:
            break
        best_before = best
    return tuple(grid)


def probe_disk(folder: Path) -> DiskProbe:
    """Write a file to the disk and read it back, in random order and several ways.

    Raises:
        OSError: The folder cannot be written, or the disk is full or nearly so.
    """
    most = min(MOST_BYTES, shutil.disk_usage(folder).free // DISK_SHARE)
    most -= most % BLOCK_BYTES
    if most < LEAST_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    handle, name = tempfile.mkstemp(prefix=".kvcli-probe-", dir=folder)
    os.close(handle)
    try:
        handle, is_direct = _open(name)
    finally:
        os.unlink(name)
    try:
        size, write = _write(handle, most)
        reader = _RandomReader(handle, size)
        if is_direct:
            end = time.monotonic() + READ_SECONDS
            grid = explore(reader.rate, lambda: time.monotonic() > end)
        else:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            grid = (ReadPoint(*DEFAULT, reader.rate(*DEFAULT)),)
        return DiskProbe(grid, write, is_direct)
    finally:
        os.close(handle)


class _RandomReader:
    """Reads extents of a file at random places.

    Args:
        handle: The file.
        size: Its bytes, at least one of the largest extents.
    """

    def __init__(self, handle: int, size: int) -> None:
        self._handle = handle
        self._size = size

    def rate(self, threads: int, extent: int) -> float:
        """Read for `POINT_SECONDS`, and as long as the last reads take; bytes per second."""
        with ThreadPoolExecutor(threads, thread_name_prefix="kv-probe") as pool:
            started = time.monotonic()
            end = started + POINT_SECONDS
            reads = [pool.submit(self._read, extent, end, seed) for seed in range(threads)]
            done = sum(read.result() for read in reads)
            return done / (time.monotonic() - started)

    def _read(self, extent: int, end: float, seed: int) -> int:
        order, into, done = random.Random(seed), aligned_buffer(extent), 0
        while not done or time.monotonic() < end:
            offset = order.randrange(self._size // extent) * extent
            done += os.preadv(self._handle, [into], offset)
        return done


def _write(handle: int, most: int) -> tuple[int, float]:
    """Fill the file; gives its bytes and the rate at which they reached the disk."""
    block = aligned_buffer(BLOCK_BYTES)
    block[:] = os.urandom(BLOCK_BYTES)  # zeros could be compressed away
    started, written = time.monotonic(), 0
    while written < most and (written < LEAST_BYTES or time.monotonic() - started < WRITE_SECONDS):
        written += os.pwritev(handle, [block], written)
    os.fsync(handle)
    return written, written / (time.monotonic() - started)


def _open(name: str) -> tuple[int, bool]:
    """Open the file, directly if it can be: some file systems take the flag and refuse the call."""
    try:
        direct = os.open(name, os.O_RDWR | os.O_DIRECT)
    except OSError:
        return os.open(name, os.O_RDWR), False
    try:
        os.pwritev(direct, [aligned_buffer(BLOCK)], 0)
    except OSError as error:
        os.close(direct)
        if error.errno != errno.EINVAL:
            raise
        return os.open(name, os.O_RDWR), False
    return direct, True
