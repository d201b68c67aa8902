"""The end of a session file: who uses it, and who needs its pages.

Owns the checks before a file is removed or written anew. Nothing is overwritten: the blocks are
given back to the file system.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.errors import (
    BaseMissing,
    BaseNeeded,
    KVError,
    NotASession,
    StorageError,
    UnsupportedVersion,
)
from engine.session.block_file import Access, BlockFile, storage_error
from engine.session.lineage import places
from engine.session.recovery import recovered


def remove_session(path: Path) -> None:
    """Remove a session that nobody uses and no fork needs; also a fork whose base is gone.

    Raises:
        NotASession: There is none; anything else is left alone.
        UnsupportedVersion: Written by a newer kvcli.
        SessionLocked: Somebody reads or writes it.
        BaseNeeded: Forks have pages from it.
        StorageError: The folder does not let go of it.
    """
    with suppress(BaseMissing), recovered(path, Access.PEEK) as (_, found):
        require_no_forks(path, found.state.uuid, found.state.forks)
    file = BlockFile.open(path, Access.WRITE)
    try:
        os.unlink(path)
    except OSError as error:
        raise storage_error(path, error) from error
    finally:
        file.close()


def require_replaceable(path: Path) -> None:
    """Refuse to replace a session that forks have pages from; whatever else it is is no matter.

    Raises:
        BaseNeeded: Names the forks.
    """
    with (
        suppress(NotASession, UnsupportedVersion, BaseMissing, StorageError),
        recovered(path, Access.PEEK) as (_, found),
    ):
        require_no_forks(path, found.state.uuid, found.state.forks)


def require_no_forks(path: Path, uuid: bytes, forks: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to end a session that forks have pages from.

    Args:
        path: The session.
        uuid: Its own.
        forks: What it knows of them.

    Raises:
        BaseNeeded: Names those that are still there; one that cannot be read counts.
    """
    found = []
    for entry in forks:
        for place in dict.fromkeys(places(path.resolve().parent, entry)):
            if place.is_file() and _is_fork_of(place, uuid):
                found.append(str(place))
                break
    if found:
        count = "a fork has" if len(found) == 1 else f"{len(found)} forks have"
        raise BaseNeeded(
            f"{path}: {count} pages from it: {', '.join(found)}",
            "Remove them first, or let them stand alone: kvcli export FORK.kv NEW.kv",
        )


def _is_fork_of(place: Path, uuid: bytes) -> bool:
    try:
        with recovered(place, Access.PEEK) as (_, found):
            base = found.state.base
            return base is not None and base.ref.uuid == uuid
    except KVError:
        return True


def require_unwritten(path: Path) -> None:
    """Raise if another process is writing a session.

    Raises:
        SessionLocked: It does.
        NotASession: There is no file.
        StorageError: It cannot be opened.
    """
    BlockFile.open(path, Access.READ).close()
