"""`kvcli resume`: go on with a session: finish its reading, then answer or chat.

Owns the chat loop. Everything else is the run's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine.errors import ConfigError
from kvcli import run as runs
from kvcli.options import RunOptions


def run(options: RunOptions, session_file: Path, *, question: str | None) -> None:
    """Resume a session.

    Raises:
        ConfigError: A chat was asked for as JSON.
        KVError: Whatever stops the run.
    """
    if question is None and options.json:
        raise ConfigError("a chat has no single JSON result", "Give a question with --json.")
    with runs.go_on(options, session_file) as job:
        job.read()
        job.output.status(
            f"{session_file}: {job.reused_tokens:,} tokens reused, "
            f"{job.recomputed_tokens:,} recomputed"
        )
        if question is not None:
            job.tell(job.ask(question))
            return
        while (line := _next_line(job)) is not None:
            if line:
                job.tell(job.ask(line))


def _next_line(job: runs.Run) -> str | None:
    """The next question of a chat; None when the user is done."""
    with job.dashboard.pause():
        if sys.stdin.isatty():
            job.output.console.print("> ", end="", style="bold")
        line = sys.stdin.readline()
    job.stop.check()
    text = line.strip()
    return None if not line or text in ("/exit", "/quit") else text
