"""`kvcli ask`: one question to documents, repositories or a saved session.

Owns nothing but the choice between reading documents and going on with a session.
"""

from __future__ import annotations

from engine.errors import ConfigError
from kvcli import run as runs
from kvcli.options import RunOptions


def run(
    options: RunOptions, *, repos: tuple[str, ...], docs: tuple[str, ...], question: str
) -> None:
    """Ask one question.

    Raises:
        ConfigError: Nothing to ask, or documents for a session that has its own.
        KVError: Whatever stops the run.
    """
    with _open(options, (*docs, *repos), question) as job:
        job.read()
        job.tell(job.ask(question))


def _open(options: RunOptions, paths: tuple[str, ...], question: str) -> runs.Run:
    session = options.session
    exists = session is not None and session.exists()
    if paths and exists:
        raise ConfigError(
            f"{session} exists and has its own documents",
            "Ask it without --doc and --repo, or name a new file.",
        )
    if paths:
        return runs.start(options, paths, question=question, session=session)
    if session is not None and exists:
        return runs.go_on(options, session)
    raise ConfigError(
        "nothing to ask" if session is None else f"{session}: no such session file",
        "Give --doc FILE, --repo DIR, or an existing session with --session S.kv.",
    )
