"""`kvcli ingest`: read documents once and keep them as a session.

Owns nothing but the order of the calls and the closing word.
"""

from __future__ import annotations

from pathlib import Path

from kvcli import opening
from kvcli.options import RunOptions


def run(options: RunOptions, paths: tuple[str, ...], *, output: Path, force: bool) -> None:
    """Read files and folders into a session file.

    Raises:
        KVError: Whatever stops the run; an interrupted one goes on with `resume`.
    """
    with opening.start(options, paths, question=None, session=output, overwrite=force) as job:
        job.read()
        tokens = job.conversation.sequence.num_tokens
        job.output.status(f'{output}: {tokens:,} tokens; ask with: kvcli resume {output} "..."')
        job.tell(None)
