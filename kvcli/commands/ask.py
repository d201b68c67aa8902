"""`kvcli ask`: one question to documents, repositories or a saved session.

Owns nothing but the choice between reading documents and going on with a session.
"""

from __future__ import annotations

from engine.errors import ConfigError
from kvcli import opening
from kvcli.commands.answering import answer_one
from kvcli.commands.section_work import answer_thoroughly
from kvcli.mode import Work
from kvcli.options import RunOptions
from kvcli.run import Run


def run(
    options: RunOptions,
    *,
    repos: tuple[str, ...],
    docs: tuple[str, ...],
    question: str,
    is_thorough: bool = False,
) -> None:
    """Ask one question, of every section if it is to be thorough.

    Raises:
        ConfigError: Nothing to ask, or documents for a session that has its own.
        KVError: Whatever stops the run.
    """
    if not question.strip():
        raise ConfigError("the question is empty", "Put it behind the options, in quotes.")
    work = Work.SECTIONS if is_thorough else Work.QUESTIONS
    job = _open(options, (*docs, *repos), question, work)
    answer_one(job, question, answer_thoroughly if is_thorough else Run.ask)


def _open(options: RunOptions, paths: tuple[str, ...], question: str, work: Work) -> Run:
    session = options.session
    exists = session is not None and session.exists()
    if paths and session is not None and session.is_file():
        raise ConfigError(
            f"{session}: already exists, with documents of its own",
            "Ask it without --doc and --repo, or name a new file.",
        )
    if paths:
        return opening.start(options, paths, question=question, session=session, work=work)
    if session is not None and exists:
        return opening.go_on(options, session, work=work)
    raise ConfigError(
        "no documents to ask" if session is None else f"{session}: no such session file",
        "Give --doc FILE, --repo DIR, or an existing session with --session S.kv.",
    )
