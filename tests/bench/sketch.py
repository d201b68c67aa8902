"""Looking up by the key sketch against reading every key: the same pages, and how much sooner.

A session whose documents were read with focus is opened, and the questions of a set are put to it,
each on a fork that is dropped. The page cache holds nothing of the file when a question is looked
up. Each figure is over the questions of one kind:

- same of 8, same first: of the best pages by every key, how many are among the best by the sketch;
- right first, right in 8: an answer's place is on the best page, or on one of the best eight;
- seconds: for every key and for the sketch, without running the question itself.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

from torch import Tensor

from engine.attention.probe import probe_scores
from engine.attention.recorder import QueryRecorder
from engine.lookup import ProbeWay
from kvcli import opening
from kvcli.conversation import Conversation
from kvcli.options import RunOptions
from tests.bench import questions
from tests.bench.harness import report
from tests.bench.questions import Question

BEST = 8
WAYS = (ProbeWay.SCAN, ProbeWay.SKETCH)


def forget_file(path: Path) -> None:
    """Drop what the page cache holds of a file."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def queries_of(talk: Conversation, text: str) -> QueryRecorder:
    """What a question asks with, put behind the documents."""
    recorder = QueryRecorder(talk.engine.model.lookup_layers)
    fork = talk.engine.fork(talk.sequence)
    try:
        fork.token_ids += talk.question_ids(text)
        talk.engine.compute(fork, recorder=recorder)
    finally:
        talk.engine.drop(fork)
    return recorder


def best_pages(talk: Conversation, mass: Tensor) -> list[int]:
    """The best pages, best first."""
    assert talk.neutral is not None
    return [int(page) for page in probe_scores(mass, talk.neutral).topk(BEST).indices]


def is_right(talk: Conversation, question: Question, page: int) -> bool:
    """Whether an answer's place reaches into a page."""
    size = talk.engine.model.geometry.page_tokens
    return any(
        place.is_cited_by(span.path, span.page, span.name)
        for span in talk.source_map.overlapping(page * size, size)
        for place in question.places
    )


def compare(talk: Conversation, session: Path, question: Question) -> dict[str, float]:
    """Look a question up in both ways; every figure of it."""
    recorder = queries_of(talk, question.text)
    found: dict[ProbeWay, list[int]] = {}
    figures: dict[str, float] = {}
    for way in WAYS:
        forget_file(session)
        started = time.monotonic()
        mass = talk.engine.probe(talk.sequence, talk.document_tokens, recorder, way)
        figures[f"{way.value} s"] = time.monotonic() - started
        found[way] = best_pages(talk, mass)
        right = [is_right(talk, question, page) for page in found[way]]
        figures[f"{way.value} right first"] = right[0]
        figures[f"{way.value} right in 8"] = any(right)
    by_keys, by_sketch = (found[way] for way in WAYS)
    figures["same of 8"] = len(set(by_keys) & set(by_sketch))
    figures["same first"] = by_keys[0] == by_sketch[0]
    print(f"{question.text[:70]:70} {by_keys[:3]} {by_sketch[:3]} {figures}", flush=True)
    return figures


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("session", type=Path)
    parser.add_argument("--set", choices=questions.NAMES, default="httpx")
    parser.add_argument("--document", help="the document's name, if not as in the set")
    parser.add_argument("--questions", type=int, default=16)
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    with opening.go_on(RunOptions(dashboard="off", quiet=True), options.session) as run:
        run.read()
        talk = run.conversation
        forget_file(options.session)
        started = time.monotonic()
        ways = talk.engine.probe_ways(talk.sequence, talk.document_tokens)
        assert ProbeWay.SKETCH in ways, talk.engine.sketch_refusal or "there is no sketch"
        loading = time.monotonic() - started
        asked = questions.load(options.set, options.document)[: options.questions]
        seen = [(q.shares_words, compare(talk, options.session, q)) for q in asked]
        tokens = talk.document_tokens
    for kind, shares in (("shares words", True), ("other words", False)):
        figures = [each for is_shared, each in seen if is_shared is shares]
        rows[kind] = {"asked": len(figures)}
        for name in figures[0]:
            value = statistics.median if name.endswith(" s") else sum
            rows[kind][name] = float(value([each[name] for each in figures]))
    report(f"lookups in {tokens:,} tokens", rows, loading_s=round(loading, 3), set=options.set)


if __name__ == "__main__":
    main()
