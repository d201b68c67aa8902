"""The birth of a session file: hidden in its folder until it is whole, then named.

Owns the temporary name, the rules for replacing and the durable rename. Knows nothing of contents
beyond the first bytes that tell a session from another file.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ConfigError, KVError
from engine.session.block_file import Access, lock_file, storage_error
from engine.session.format import is_session_start


@dataclass(frozen=True, slots=True)
class Birth:
    """A file on its way to its name."""

    temporary: Path
    path: Path
    fd: int
    overwrite: bool
    is_held: bool

    def publish(self) -> None:
        """Give the file its name, durably.

        Raises:
            ConfigError: Something else took the name meanwhile.
            SessionLocked: The file to be replaced is in use.
            StorageError: The folder refused.
        """
        require_free(self.path, overwrite=self.overwrite, is_held=self.is_held)
        try:
            os.rename(self.temporary, self.path)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def abandon(self) -> None:
        """Remove the file; it never had a name."""
        self.temporary.unlink(missing_ok=True)


def begin(path: Path, *, overwrite: bool, is_held: bool = False) -> Birth:
    """Make the hidden file, mode 0600, that will become `path`; arguments as for `require_free`.

    Raises:
        ConfigError: `path` exists and may not be replaced.
        SessionLocked: The file to be replaced is in use.
        StorageError: The folder is missing, read-only or full.
    """
    require_free(path, overwrite=overwrite, is_held=is_held)
    prefix = f".{path.name}."
    try:
        _sweep(path.parent, prefix)
        fd, name = tempfile.mkstemp(prefix=prefix, suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise storage_error(path.parent, error) from error
    return Birth(Path(name), path, fd, overwrite, is_held)


def require_free(path: Path, *, overwrite: bool, is_held: bool = False) -> None:
    """Refuse a name that a new session may not take.

    Args:
        path: The name.
        overwrite: Whether a session may be replaced.
        is_held: Whether it is the caller who holds that session.

    Raises:
        ConfigError: It is a folder, no session file, or replacing was not asked for.
        SessionLocked: It is a session in use.
        StorageError: It cannot be looked at.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(path, error) from error
    try:
        if not overwrite:
            raise ConfigError(f"{path}: already exists", "Choose another name for the session.")
        if os.path.isdir(path) or not is_session_start(os.pread(fd, 8, 0)):
            raise ConfigError(
                f"{path}: exists and is not a session file, so it is not replaced",
                "Choose another name for the session.",
            )
        if not is_held:
            lock_file(path, fd, Access.WRITE)
    finally:
        os.close(fd)


def _sweep(folder: Path, prefix: str) -> None:
    """Remove what killed processes left: hidden files of this name that nobody holds."""
    for entry in os.scandir(folder):
        if not (entry.name.startswith(prefix) and entry.name.endswith(".tmp")):
            continue
        with contextlib.suppress(OSError):
            fd = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                lock_file(Path(entry.path), fd, Access.WRITE)
                os.unlink(entry.path)
            except KVError:
                continue
            finally:
                os.close(fd)
