"""One question to an open run, and what becomes of it if the chat has outgrown the window.

Owns the way from exact attention to focus within a command. How either answers is the run's.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcli import opening
from kvcli.answer import Answer, WindowOutgrown
from kvcli.run import Run

Ask = Callable[[Run, str], Answer]
"""How a question is put."""


def answer_one(job: Run, question: str, ask: Ask) -> None:
    """Read what is not read yet, answer one question and tell everything; closes the run.

    Raises:
        KVError: Whatever stops the run.
    """
    with job:
        job.read()
        try:
            return job.finish(ask(job, question))
        except WindowOutgrown:
            if not job.can_go_beyond(question):
                raise
    with opening.go_beyond(job) as wider:
        wider.read()
        wider.finish(ask(wider, question))
