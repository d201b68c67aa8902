"""`kvcli update S.kv`: read a session's documents again and compute only what has changed.

Owns what is said of it. What is kept is decided by `kvcli.updating`.
"""

from __future__ import annotations

from pathlib import Path

from kvcli import opening
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.updating import update_contents


def run(options: RunOptions, session: Path) -> None:
    """Bring a session up to date with its documents.

    Raises:
        KVError: Whatever stops the run; an interrupted one goes on with `resume`.
    """
    output = Output(options)
    session = session.absolute()
    update = update_contents(options, session, output)
    if update.turns_lost:
        turns = "turn" if update.turns_lost == 1 else "turns"
        output.warn(
            f"the chat about the documents of before, {update.turns_lost} {turns}, is dropped "
            "(kvcli fork keeps it, if it comes first)"
        )
    with opening.go_on(update.options, session, loaded=update.loaded) as job:
        kept = min(job.conversation.sequence.num_tokens, update.tokens)
        if update.has_changed:
            output.status(
                f"{update.same_tokens:,} of {update.tokens:,} tokens are as they were; "
                f"{kept:,} are kept, {update.tokens - kept:,} are read again"
            )
        else:
            output.status(f"all {update.tokens:,} tokens are as they were")
        job.read()
        job.tell(None)
