"""`kvcli rm S.kv...`: remove sessions, after asking.

Owns the question and the honest word about what removing does.
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from engine.errors import ConfigError, SessionError
from engine.session import SessionSummary, describe, remove_session
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
        ConfigError: There is nobody to ask.
        SessionError: One is no session, or in use.
        Abort: The answer was no.
        StorageError: A folder does not let go of its file.
    """
    output = Output(options)
    found = [_describe(session) for session in sessions]
    if not is_agreed:
        _ask(found, output)
    removed = []
    for summary in found:
        remove_session(summary.path)
        forget_session(summary.path)
        removed.append(summary)
        if not options.json:
            output.show(f"removed {clean(str(summary.path))} ({_size(summary)})")
    if options.json:
        rows = [{"session": str(s.path), "bytes": s.allocated_bytes} for s in removed]
        output.json({"removed": rows})
    output.status(HONEST)


def _describe(session: Path) -> SessionSummary:
    try:
        return describe(session)
    except SessionError as error:
        raise type(error)(
            error.message, "Only sessions are removed; for anything else there is rm."
        ) from error


def _ask(found: list[SessionSummary], output: Output) -> None:
    if not sys.stdin.isatty():
        raise ConfigError("nobody is there to ask whether to remove them", "Add --yes.")
    for summary in found:
        output.warn(f"{summary.path}: {summary.tokens:,} tokens, {_size(summary)}")
    if not typer.confirm("Remove?", err=True):
        raise ConfigError("nothing was removed")


def _size(summary: SessionSummary) -> str:
    return format_size(summary.allocated_bytes)
