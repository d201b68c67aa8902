"""`kvcli resume`: go on with a session: finish its reading, then answer or chat.

Owns the chat loop. Everything else is the run's.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from engine.errors import ConfigError, OverBudget
from kvcli import opening
from kvcli.answer import WindowOutgrown
from kvcli.commands.answering import Ask, answer_one
from kvcli.commands.section_work import answer_thoroughly
from kvcli.mode import Work
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.rebuilding import rebuild_contents
from kvcli.run import Run
from kvcli.stopping import StopRequested

LEAVING = ("/exit", "/quit")


def run(
    options: RunOptions,
    session_file: Path,
    *,
    question: str | None,
    is_thorough: bool = False,
    rebuilds: bool = False,
) -> None:
    """Resume a session.

    Args:
        options: The shared options.
        session_file: The session.
        question: None: chat.
        is_thorough: Ask every section.
        rebuilds: Give up the KV, and compute it again as this run would.

    Raises:
        ConfigError: An empty question, or a chat as JSON or without an input.
        KVError: Whatever stops the run.
    """
    if question is not None and not question.strip():
        raise ConfigError("the question is empty", "Give a question, or none at all to chat.")
    if question is None and options.json:
        raise ConfigError("a chat has no single JSON result", "Give a question with --json.")
    if question is None and sys.stdin is None:
        raise ConfigError("standard input is closed, so nobody can chat", "Give a question.")
    ask = answer_thoroughly if is_thorough else Run.ask
    work = Work.SECTIONS if is_thorough else Work.QUESTIONS
    loaded = None
    if rebuilds:
        options, loaded = rebuild_contents(options, session_file, Output(options))
    job = opening.go_on(options, session_file, work=work, loaded=loaded)
    if question is not None:
        answer_one(job, question, ask)
    else:
        _chat_on(job, ask)


def _chat_on(job: Run, ask: Ask) -> None:
    """Chat until the user leaves; what outgrows the window is answered beyond it."""
    with job:
        job.read()
        if sys.stdin.isatty():
            leave = f"leave with {LEAVING[0]} or Ctrl-D"
            job.output.status(f"ask, stop an answer with Ctrl-C, {leave}")
        try:
            return _chat(job, ask, _questions(job))
        except WindowOutgrown as outgrown:
            question = outgrown.question
            if not job.can_go_beyond(question):
                raise
    with opening.go_beyond(job) as wider:
        wider.read()
        _chat(wider, ask, chain((question,), _questions(wider)))


def _chat(job: Run, ask: Ask, questions: Iterable[str]) -> None:
    """Answer questions as they come.

    Raises:
        WindowOutgrown: One cannot be answered within the window.
        KVError: Whatever stops the run.
    """
    for question in questions:
        answer = None
        try:
            answer = ask(job, question)
        except StopRequested:
            pass
        except OverBudget as error:
            goes_on = isinstance(error, WindowOutgrown) and job.can_go_beyond(question)
            if goes_on or not sys.stdin.isatty():
                raise
            job.output.error(error.message, error.advice, error.exit_code)
        if job.stop.received is not None:
            _go_on_after_ctrl_c(job)
        if answer is not None:
            job.tell(answer)


def _go_on_after_ctrl_c(job: Run) -> None:
    """Take Ctrl-C for the answer at hand; whoever sends another signal means the chat.

    Raises:
        StopRequested: It was another signal.
    """
    if job.stop.received is not signal.SIGINT:
        raise StopRequested
    job.stop.forget()
    job.output.status("stopped; ask on, or leave with /exit")


def _questions(job: Run) -> Iterator[str]:
    """What the user types, line by line, until the end, `/exit` or Ctrl-C."""
    while True:
        try:
            line = _next_line(job)
        except StopRequested:
            if job.stop.received is not signal.SIGINT:
                raise
            job.stop.forget()
            if sys.stdin.isatty():
                job.output.status("")
            return
        question = line.strip()
        if not line or question in LEAVING:
            return
        if question:
            yield question


def _next_line(job: Run) -> str:
    with job.dashboard.pause(for_input=sys.stdin.isatty()), job.stop.at_once():
        if sys.stdin.isatty():
            job.output.console.print("> ", end="", style="bold")
        return sys.stdin.readline()
