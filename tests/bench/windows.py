"""What a document is read with, and what that does to answers: the local window and the sinks.

Reads a text with hidden facts (`tests.bench.haystack`) anew for each setting, in one process, and
asks its single questions from stored KV and by reading again. The probe sees the same text every
time, through keys that were computed with more or less of what stood before them.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from kvcli import opening
from kvcli.options import RunOptions
from kvcli.working_set import Reading
from tests.bench.harness import report
from tests.bench.haystack import Question, hide
from tests.bench.hidden import PROSE, ask_afresh, judge, prose_lines, token_counter

SINKS = ("engine.tiers.stack.SINK_TOKENS", "kvcli.working_set.SINK_TOKENS")
WINDOW = "kvcli.mode.LOCAL_WINDOW"


def try_setting(
    text: Path, questions: list[Question], window: int, sinks: int, max_tokens: int
) -> dict[str, float]:
    """Read the text and ask everything; counts over the questions."""
    options = RunOptions(
        attention="focus", lookup="scan", max_tokens=max_tokens, dashboard="off", quiet=True
    )
    figures = dict.fromkeys(("first", "cited", "right, read again", "right, stored"), 0.0)
    with ExitStack() as stack:
        for name in SINKS:
            stack.enter_context(patch(name, sinks))
        stack.enter_context(patch(WINDOW, window))
        run = stack.enter_context(opening.start(options, [str(text)], question=None, session=None))
        run.read()
        figures["tok/s"] = len(run.conversation.sequence.token_ids) / run.timings.ingest_s
        for question in questions:
            for reading in Reading:
                talk = replace(run.conversation, reading=reading)
                found = judge(question, ask_afresh(talk, question.text, options.sampling))
                if reading is Reading.REREAD:
                    figures["first"] += found["first"]
                    figures["cited"] += found["cited"]
                    figures["right, read again"] += found["right"]
                else:
                    figures["right, stored"] += found["right"]
    return figures


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument("--windows", type=int, nargs="+", default=[256, 1024, 2048])
    parser.add_argument("--sinks", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--max-tokens", type=int, default=32)
    options = parser.parse_args()
    haystack = hide(
        prose_lines(list(PROSE)), options.seed, tokens=options.tokens,
        count_tokens=token_counter(), singles=options.questions, groups=0,
    )  # fmt: skip
    questions = [question for question in haystack.questions if question.kind == "single"]
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("\n".join(haystack.lines) + "\n", "utf-8")
        for window in options.windows:
            for sinks in options.sinks if window == 1024 else options.sinks[-1:]:
                rows[f"window {window:,}, sinks {sinks}"] = try_setting(
                    text, questions, window, sinks, options.max_tokens
                )
                print(rows, flush=True)
    report(f"reading {haystack.num_tokens:,} tokens", rows, asked=len(questions))


if __name__ == "__main__":
    main()
