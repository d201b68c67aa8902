"""Real questions with known places, asked of a session: found, cited and answered how often.

Asks every question of a set (tests/bench/questions) on a fork of the session that is dropped, so
that none follows on from another. "cited" counts a right place among the first eight citations,
"words" the same for BM25 alone over the same pages. Nothing is tuned in here; rows are counts.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import numpy as np

from kvcli import opening
from kvcli.citations import best_pages, cite
from kvcli.focus import FocusConversation
from kvcli.lexical import LexicalIndex
from kvcli.options import RunOptions
from kvcli.results import Citation
from tests.bench.harness import report
from tests.bench.hidden import ask_afresh
from tests.bench.questions import NAMES, Question, load

LISTED = 8


def hits(question: Question, citations: tuple[Citation, ...]) -> dict[str, float]:
    """Whether a right place comes first, and whether it is among the first eight."""
    right = [
        any(place.is_cited_by(one.path, one.page, one.name) for place in question.places)
        for one in citations[:LISTED]
    ]
    return {"first": float(right[:1] == [True]), "cited": float(any(right))}


def by_words(talk: FocusConversation, index: LexicalIndex, text: str) -> tuple[Citation, ...]:
    """What BM25 alone would cite."""
    scores = [float(score) for score in index.look_up(text).scores]
    return cite(best_pages(scores), talk.source_map, talk.engine.model.geometry.page_tokens)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("session", type=Path)
    parser.add_argument("set", choices=NAMES)
    parser.add_argument("--document", help="the document's name, if not as in the set")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--attention", default="auto", help="auto, reread or stored")
    parser.add_argument("--lookup", default="scan", help="scan or sketch")
    choices = parser.parse_args()
    options = RunOptions(
        max_tokens=choices.max_tokens, attention=choices.attention, lookup=choices.lookup,
        dashboard="off", quiet=True,
    )  # fmt: skip
    told: dict[str, list[dict[str, float]]] = {}
    with opening.go_on(options, choices.session) as run:
        talk = run.conversation
        assert isinstance(talk, FocusConversation)
        run.read()
        index = talk.words.index()
        for question in load(choices.set, choices.document):
            answer = ask_afresh(talk, question.text, options.sampling)
            figures = hits(question, answer.citations)
            words = hits(question, by_words(talk, index, question.text))
            figures |= {f"{name} by words": value for name, value in words.items()}
            figures["right"] = float(question.is_answered_by(answer.text))
            figures["not found"] = float(not answer.is_found)
            figures["first token s"] = answer.first_token_s
            kind = "shares words" if question.shares_words else "other words"
            told.setdefault(kind, []).append(figures)
            marks = ", ".join(name for name, value in figures.items() if value == 1.0)
            print(f"{kind}: {marks or 'nothing'} | {question.text} | {answer.text[:90]!r}")
            print(f"      {'; '.join(one.text for one in answer.citations)}", flush=True)
        num_tokens = len(talk.sequence.token_ids)
    rows = {}
    for kind, seen in told.items():
        rows[kind] = {"asked": float(len(seen))}
        rows[kind] |= {name: float(np.sum([f[name] for f in seen])) for name in seen[0]}
        rows[kind]["first token s"] = statistics.median(f["first token s"] for f in seen)
    report(f"real questions, {choices.set}, {num_tokens:,} tokens", rows, lookup=choices.lookup)


if __name__ == "__main__":
    main()
