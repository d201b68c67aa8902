"""Which session files this user has worked with, and when.

Owns the file `sessions.json` in the cache folder. It is a convenience: a list that cannot be read
or written changes nothing but what `kvcli sessions` shows.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from kvcli.fetch import cache_dir

SESSIONS_FILE = "sessions.json"
MOST = 500
"""Files that are remembered, those used last."""


def remember_session(path: Path) -> None:
    """Take note that a session is used now."""
    known = {**recent_sessions(), path.resolve(): datetime.now(UTC)}
    newest = sorted(known.items(), key=lambda item: item[1], reverse=True)[:MOST]
    _write({str(each): used.isoformat(timespec="seconds") for each, used in newest})


def forget_session(path: Path) -> None:
    """Take note that a session is no more."""
    known = {each: used for each, used in recent_sessions().items() if each != path.resolve()}
    _write({str(each): used.isoformat(timespec="seconds") for each, used in known.items()})


def recent_sessions() -> dict[Path, datetime]:
    """Every remembered session, whether or not it is still there, with its last use."""
    try:
        known = json.loads((cache_dir() / SESSIONS_FILE).read_text(encoding="utf-8"))
        found = {Path(path): datetime.fromisoformat(used) for path, used in known.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return {path: used for path, used in found.items() if used.tzinfo is not None}


def _write(known: dict[str, str]) -> None:
    path = cache_dir() / SESSIONS_FILE
    with contextlib.suppress(OSError, UnicodeEncodeError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.touch(mode=0o600)
        partial.write_text(json.dumps(known, indent=1), encoding="utf-8")
        partial.replace(path)
