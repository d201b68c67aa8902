"""Forks: a session that shares what another one has sealed, for the price of a commit.

Owns the order of things: the base takes note of the fork before there is one, so that nobody
removes it in between.
"""

from __future__ import annotations

from pathlib import Path

from engine.session import publish
from engine.session.lineage import place_of
from engine.session.writer import SessionFile


def fork_session(base: SessionFile, path: Path, *, num_segments: int) -> None:
    """Make a session that holds what another one does, and has its first segments from there.

    The KV behind them is to be computed again, as after an interrupted ingest.

    Args:
        base: Open for writing, and committed.
        path: The new file's name.
        num_segments: Of those that are sealed.

    Raises:
        ConfigError: `path` exists.
        StorageError: A disk is full or failed.
    """
    publish.require_free(path, overwrite=False)
    ref = base.as_base(path, num_segments)
    base.commit(kv_tokens=base.kv_tokens, forks=[place_of(path, base.path.parent)])
    with SessionFile.create(path, base.identity, base.geometry, coded=base.coded, base=ref) as fork:
        fork.commit(kv_tokens=fork.kv_tokens)
