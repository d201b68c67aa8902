"""One file as blocks: exact reads and writes at offsets, direct where possible, locks, barriers.

Owns the file descriptors, their lock and the translation of device errors. Knows nothing of what
the bytes mean. Reads and writes are safe from several threads and release the interpreter lock
while the device works. A call goes through the O_DIRECT descriptor when its offset, its length and
the address of its buffer are all multiples of 4,096, and through the buffered one otherwise.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final

from engine.errors import KVError, NotASession, SessionLocked, StorageError
from engine.session.format import BLOCK

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_ALLOWED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_O_DIRECT: Final = getattr(os, "O_DIRECT", 0)


class Access(Enum):
    """What a file is opened for."""

    PEEK = "peek"
    """Read without a lock: metadata only, the file may change."""
    READ = "read"
    """Read, shared with other readers; no writer."""
    WRITE = "write"
    """Read and append, alone."""


class BlockFile:
    """A file that is read and written at offsets."""

    def __init__(self, path: Path, fd: int, access: Access) -> None:
        """Take over `fd`, lock it as `access` says and open the direct descriptor beside it.

        Raises:
            SessionLocked: Another process holds the file. `fd` is closed.
        """
        self.path = path
        self.bytes_read = 0
        self.bytes_written = 0
        self._fd = fd
        self._direct_fd: int | None = None
        self._counters = threading.Lock()
        try:
            lock_file(path, fd, access)
        except KVError:
            os.close(fd)
            raise
        if _O_DIRECT:
            mode = os.O_RDWR if access is Access.WRITE else os.O_RDONLY
            # A file system without direct I/O refuses the flag: buffered I/O serves it as well.
            with contextlib.suppress(OSError):
                self._direct_fd = os.open(f"/proc/self/fd/{fd}", mode | _O_DIRECT)

    @classmethod
    def open(cls, path: Path, access: Access) -> BlockFile:
        """Open an existing regular file.

        Raises:
            NotASession: Nothing there, or no regular file.
            StorageError: Not permitted, or the device failed.
            SessionLocked: Another process holds the file.
        """
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise NotASession(f"{path}: not a file", "Name a session file (NAME.kv).")
            fd = os.open(path, os.O_RDWR if access is Access.WRITE else os.O_RDONLY)
        except FileNotFoundError:
            raise NotASession(
                f"{path}: no such file", "Check the name, or make it with kvcli ingest."
            ) from None
        except OSError as error:
            raise storage_error(path, error) from error
        return cls(path, fd, access)

    @property
    def direct(self) -> bool:
        """Whether O_DIRECT is in use for aligned calls."""
        return self._direct_fd is not None

    def size(self) -> int:
        """Bytes from the start to the end of the file, holes included."""
        return os.fstat(self._fd).st_size

    def allocated(self) -> int:
        """Bytes that the file takes on the device."""
        return os.fstat(self._fd).st_blocks * 512

    def free_space(self) -> int:
        """Bytes that the file system under the file has left for this user."""
        space = os.fstatvfs(self._fd)
        return space.f_bavail * space.f_frsize

    def read(self, into: memoryview, offset: int) -> int:
        """Fill `into` from `offset` on.

        Returns:
            Bytes read: `len(into)`, or less only when the file ends before.

        Raises:
            StorageError: The device failed.
        """
        done = 0
        try:
            while done < len(into):
                rest = into[done:]
                got = self._at(os.preadv, rest, offset + done)
                if got == 0:
                    break
                done += got
        except OSError as error:
            raise storage_error(self.path, error) from error
        finally:
            with self._counters:
                self.bytes_read += done
        return done

    def map(self, offset: int, num_bytes: int) -> mmap.mmap:
        """Map a stretch of the file into memory, to be read; it may reach beyond the end.

        Writes to the file show in it. It is writable for whoever asks, since tensors want that, but
        what is written there never reaches the file.

        Args:
            offset: On a 4,096-byte border.
            num_bytes: Length of the stretch.

        Raises:
            StorageError: The system refused.
        """
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        try:
            return mmap.mmap(
                self._fd, num_bytes, flags=mmap.MAP_PRIVATE, prot=protection, offset=offset
            )
        except (OSError, ValueError) as error:
            failure = error if isinstance(error, OSError) else OSError(errno.EINVAL, str(error))
            raise storage_error(self.path, failure) from error

    def write(self, data: memoryview, offset: int) -> None:
        """Write all of `data` at `offset`; durable only after `sync`.

        Raises:
            StorageError: The disk is full or failed; some of `data` may have been written.
        """
        done = 0
        try:
            while done < len(data):
                done += self._at(os.pwritev, data[done:], offset + done)
        except OSError as error:
            raise storage_error(self.path, error, len(data) - done, self.free_space()) from error
        finally:
            with self._counters:
                self.bytes_written += done

    def _at(self, call: Callable[..., int], view: memoryview, offset: int) -> int:
        if self._direct_fd is not None and _aligned(view, offset):
            try:
                return call(self._direct_fd, [view], offset)
            except OSError as error:
                # Some file systems accept the flag and refuse the call; and no device reaches
                # memory that a GPU's driver manages.
                if error.errno not in (errno.EINVAL, errno.EFAULT):
                    raise
        return call(self._fd, [view], offset)

    def sync(self) -> None:
        """Return when everything written so far would survive a power loss.

        Raises:
            StorageError: It might not survive, and a later success would not mean that it does.
        """
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise storage_error(self.path, error, 0, self.free_space()) from error

    def truncate(self, num_bytes: int) -> None:
        """Cut the file to `num_bytes`.

        Raises:
            StorageError: The device refused.
        """
        try:
            os.ftruncate(self._fd, num_bytes)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def close(self) -> None:
        """Close the descriptors and drop the lock; once is enough, twice is harmless."""
        if self._fd >= 0:
            # A mapping holds a descriptor of its own, and with it the lock, until it is gone.
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        for fd in (self._direct_fd, self._fd):
            if fd is not None and fd >= 0:
                os.close(fd)
        self._direct_fd, self._fd = None, -1


def lock_file(path: Path, fd: int, access: Access) -> None:
    """Lock `fd` for as long as it is open.

    Raises:
        SessionLocked: Another process holds it in a way that excludes `access`.
        StorageError: The file system has no locks.
    """
    if access is Access.PEEK:
        return
    try:
        fcntl.flock(
            fd, fcntl.LOCK_NB | (fcntl.LOCK_EX if access is Access.WRITE else fcntl.LOCK_SH)
        )
    except BlockingIOError:
        holder = "in use by" if access is Access.WRITE else "being written by"
        raise SessionLocked(
            f"{path}: {holder} another kvcli", "Wait until it ends, or use another session file."
        ) from None
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: Path, error: OSError, needed: int = 0, free: int = 0) -> StorageError:
    """The clear line for a failed call on `path`."""
    kept = "what was committed before is kept"
    if error.errno in _FULL:
        return StorageError(
            f"{path}: the disk is full or over its limit: {needed:,} bytes needed, {free:,} free",
            f"Free some space or choose another folder; {kept}.",
        )
    if error.errno in _NOT_ALLOWED:
        return StorageError(
            f"{path}: {error.strerror}", "Choose a file and a folder that you may write to."
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return StorageError(f"{path}: no such folder", "Create the folder, or choose another one.")
    return StorageError(f"{path}: {error.strerror}", f"Check the disk; {kept}.")


def _aligned(view: memoryview, offset: int) -> bool:
    if offset % BLOCK or len(view) % BLOCK or view.readonly:
        return False
    # a sixth of the time that numpy takes to say it, and it is asked at every read
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) % BLOCK == 0
