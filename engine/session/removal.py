"""The end of a session file, and whether anybody is at work on one.

Owns the check before a removal. Nothing is overwritten: the blocks are given back to the file
system.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.session.block_file import Access, BlockFile, storage_error
from engine.session.recovery import recover


def remove_session(path: Path) -> None:
    """Remove a session that nobody uses.

    Raises:
        NotASession: There is none; anything else is left alone.
        UnsupportedVersion: Written by a newer kvcli.
        SessionLocked: Somebody reads or writes it.
        StorageError: The folder does not let go of it.
    """
    file = BlockFile.open(path, Access.WRITE)
    try:
        recover(file)
        os.unlink(path)
    except OSError as error:
        raise storage_error(path, error) from error
    finally:
        file.close()


def require_unwritten(path: Path) -> None:
    """Raise if another process is writing a session.

    Raises:
        SessionLocked: It does.
        NotASession: There is no file.
        StorageError: It cannot be opened.
    """
    BlockFile.open(path, Access.READ).close()
