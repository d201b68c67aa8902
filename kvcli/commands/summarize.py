"""`kvcli summarize`: read everything and write a summary.

Owns the choice between one request over all of it and notes on its sections, and the order of the
calls.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import ConfigError
from kvcli import opening
from kvcli.commands import section_work
from kvcli.commands.inspect import is_session
from kvcli.mode import Mode, Work
from kvcli.options import RunOptions
from kvcli.output import clean
from kvcli.prompts import SUMMARY_QUESTION
from kvcli.run import Run


def run(options: RunOptions, paths: tuple[str, ...], *, shows_sections: bool) -> None:
    """Summarise files and folders, or one session.

    Args:
        options: The shared options.
        paths: Documents, or one session file.
        shows_sections: Print the notes on sections as well, and make some whatever the length.

    Raises:
        ConfigError: A session file among other paths.
        KVError: Whatever stops the run.
    """
    by_sections = shows_sections or options.wants_focus
    with _open(options, paths, Work.SECTIONS if by_sections else Work.SUMMARY) as job:
        if by_sections or _outgrows(job):
            answer = section_work.summarize(job)
            if shows_sections and not options.json:
                _print_sections(job)
            job.finish(answer)
        else:
            job.read()
            job.answer(SUMMARY_QUESTION, is_request=True)


def _open(options: RunOptions, paths: tuple[str, ...], work: Work) -> Run:
    sessions = [path for path in paths if is_session(path)]
    if not sessions:
        return opening.start(
            options, paths, question=SUMMARY_QUESTION, session=options.session, work=work
        )
    if len(paths) > 1 or options.session is not None:
        raise ConfigError(
            f"{sessions[0]} is a session with documents of its own",
            f"Give it alone: kvcli summarize {sessions[0]}",
        )
    # whether it fits is known only when it is open, and then memory has been planned
    return opening.go_on(options, Path(sessions[0]), work=Work.SECTIONS)


def _outgrows(job: Run) -> bool:
    """Whether one request over everything is out of the question."""
    talk, window = job.conversation, job.model.window
    if job.notes.mode == Mode.FOCUS.value:
        return True
    request = talk.question_ids(SUMMARY_QUESTION, is_request=True)
    return len(talk.sequence.token_ids) + len(request) + job.options.max_tokens > window


def _print_sections(job: Run) -> None:
    """The notes under the summary, on stdout: they were asked for."""
    for section in job.sections:
        text = " ".join(section.text.split())
        job.output.answer_token(f"\n{clean(section.reference)}\n{text}\n")
    job.output.end_answer()
