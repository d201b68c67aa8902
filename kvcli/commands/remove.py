"""`kvcli rm S.kv...`: remove sessions, after asking.

Owns the question and the honest word about what removing does.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from engine.errors import BaseMissing, ConfigError, SessionError
from engine.session import describe, remove_session
from kvcli.options import RunOptions
from kvcli.output import Output, clean
from kvcli.recent_sessions import forget_session
from kvcli.sizes import format_size

HONEST = (
    "The space is free, not overwritten: until something else is written there, the documents in "
    "it may be recovered from the disk."
)


def run(options: RunOptions, sessions: tuple[Path, ...], *, is_agreed: bool) -> None:
    """Remove session files; all of them can be removed, or none is.

    Args:
        options: How to speak.
        sessions: The files.
        is_agreed: Do not ask.

    Raises:
        ConfigError: There is nobody to ask, or the answer was no.
        SessionError: One is no session, or in use.
        StorageError: A folder does not let go of its file.
    """
    output = Output(options)
    found = [_describe(session) for session in sessions]
    if not is_agreed:
        _ask(found, output)
    removed = []
    for doomed in found:
        remove_session(doomed.path)
        forget_session(doomed.path)
        removed.append(doomed)
        if not options.json:
            output.show(f"removed {clean(str(doomed.path))} ({format_size(doomed.num_bytes)})")
    if options.json:
        rows = [{"session": str(each.path), "bytes": each.num_bytes} for each in removed]
        output.json({"removed": rows})
    output.status(HONEST)


@dataclass(frozen=True, slots=True)
class _Doomed:
    path: Path
    num_bytes: int
    what: str


def _describe(session: Path) -> _Doomed:
    try:
        summary = describe(session)
    except BaseMissing:
        return _Doomed(session, session.stat().st_blocks * 512, "a fork whose base is missing")
    except SessionError as error:
        raise type(error)(
            error.message, "Only sessions are removed; for anything else there is rm."
        ) from error
    return _Doomed(session, summary.allocated_bytes, f"{summary.tokens:,} tokens")


def _ask(found: list[_Doomed], output: Output) -> None:
    if not sys.stdin.isatty():
        raise ConfigError("nobody is there to ask whether to remove them", "Add --yes.")
    for doomed in found:
        output.warn(f"{doomed.path}: {doomed.what}, {format_size(doomed.num_bytes)}")
    if not typer.confirm("Remove?", err=True):
        raise ConfigError("nothing was removed")
