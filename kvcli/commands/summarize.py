"""`kvcli summarize`: read everything and write a summary.

Owns nothing but the order of the calls.
"""

from __future__ import annotations

from kvcli import opening
from kvcli.options import RunOptions
from kvcli.prompts import SUMMARY_QUESTION


def run(options: RunOptions, paths: tuple[str, ...]) -> None:
    """Summarise files and folders.

    Raises:
        KVError: Whatever stops the run.
    """
    with opening.start(
        options, paths, question=SUMMARY_QUESTION, session=options.session, may_focus=False
    ) as job:
        job.read()
        job.answer(SUMMARY_QUESTION, is_request=True)
