"""`kvcli fork BASE.kv NEW.kv`: a session of its own over pages that another one keeps.

Owns the closing word. How files share pages is `engine.session`'s.
"""

from __future__ import annotations

from pathlib import Path

from engine.config import STEP_TOKENS
from engine.session import SessionFile, describe, fork_session
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.recent_sessions import remember_session
from kvcli.sizes import format_size


def run(options: RunOptions, session: Path, *, target: Path) -> None:
    """Fork a session and say what is shared.

    Raises:
        KVError: The session is in use or cannot be opened, the target is taken, or a disk is full.
    """
    output = Output(options)
    with SessionFile.open(session, writable=True) as file:
        if file.recovered:
            output.warn(f"{session}: {file.recovered}")
        fork_session(file, target, num_segments=shareable_segments(file))
    remember_session(target)
    fork = describe(target)
    if options.json:
        output.json(
            {
                "session": str(target), "base": str(session), "tokens": fork.tokens,
                "shared_tokens": fork.kv_tokens, "bytes": fork.allocated_bytes,
            }
        )  # fmt: skip
        return
    output.show(
        f"{target}: {fork.kv_tokens:,} of {fork.tokens:,} tokens are read from {session}, "
        f"{format_size(fork.allocated_bytes)} of its own"
    )
    output.status(f'{session} must stay where it is; ask with: kvcli resume {target} "..."')


def shareable_segments(file: SessionFile) -> int:
    """Leading segments that a fork may share so that it computes what is behind them alike.

    Documents are read in steps of several segments, and what a token attends to depends on where
    its step begins. So the last one is shared whole or not at all. Turns of a chat are short: their
    steps end with the segments.
    """
    size = file.geometry.segment_tokens
    sealed = file.kv_tokens // size
    documents = file.notes.get("document_tokens", 0)
    if isinstance(documents, int) and sealed * size >= documents:
        return sealed
    return sealed - sealed % (STEP_TOKENS // size)
