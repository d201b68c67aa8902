"""A long chat about documents: is what was said found again, and does it harm what is written?

Chats over a copy of a session in two sittings: remarks that say something the documents do not,
among them some of the same form, and a set's questions (tests/bench/questions) between them. Then
every remark is asked for, and every question of the set that shares words with its place is asked
once more, each on a fork that is dropped. The same questions were asked before the chat.

- first: the right turn (of the chat) or place (of the documents) is cited first;
- cited: it is among the first eight;
- right: the answer says it;
- recalled: some turn of the chat stood in front of the question.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from kvcli import opening
from kvcli.answer import Answer
from kvcli.corpus.source_map import CHAT
from kvcli.focus import FocusConversation
from kvcli.options import RunOptions
from kvcli.run import Run
from tests.bench.harness import report
from tests.bench.hidden import ask_afresh
from tests.bench.questions import NAMES, Question, load
from tests.bench.real import hits


@dataclass(frozen=True)
class Remark:
    """Something said in a chat, and the question for it."""

    said: str
    asked: str
    value: str


PLACES = (
    ("Elena", "Porto"), ("Tomas", "Gdansk"), ("Ingrid", "Bergen"), ("Mateo", "Sevilla"),
    ("Yusuf", "Izmir"), ("Clara", "Basel"),
)  # fmt: skip
REMARKS = (
    *(
        Remark(f"My friend {name} lives in {town}.", f"Where does my friend {name} live?", town)
        for name, town in PLACES
    ),
    Remark("My bicycle is called Rosinante.", "What is my bicycle called?", "Rosinante"),
    Remark("We meet on Thursdays in room 217.", "In which room do we meet?", "217"),
    Remark("The code name of our project is Pelican.",
           "What is the code name of our project?", "Pelican"),
    Remark("I am allergic to walnuts.", "What am I allergic to?", "walnut"),
    Remark("My deadline for the report is the 14th of May.",
           "When is my deadline for the report?", "14"),
    Remark("Our budget for new laptops is 5200 euros.",
           "How large is our budget for new laptops?", "5200"),
)  # fmt: skip


@contextmanager
def sitting(session: Path, options: RunOptions) -> Iterator[tuple[Run, FocusConversation]]:
    """Open the session as `kvcli resume` does."""
    with opening.go_on(options, session) as run:
        run.read()
        assert isinstance(run.conversation, FocusConversation)
        yield run, run.conversation


def in_chat(answer: Answer, turn: int | None, value: str) -> dict[str, float]:
    """How a remark was found and told."""
    cited = [one.name for one in answer.citations[:8] if one.path == CHAT]
    right = f"turn {turn}"
    return {
        "first": float(cited[:1] == [right] and answer.citations[0].path == CHAT),
        "cited": float(right in cited),
        "right": float(value.lower() in answer.text.lower()),
        "recalled": float(bool(cited)),
        "first token s": answer.first_token_s,
    }


def in_documents(answer: Answer, question: Question) -> dict[str, float]:
    """How a place of the documents was found and told."""
    return {
        **hits(question, answer.citations),
        "right": float(question.is_answered_by(answer.text)),
        "recalled": float(any(one.path == CHAT for one in answer.citations)),
        "first token s": answer.first_token_s,
    }


def told(kind: str, asked: str, figures: dict[str, float], answer: Answer) -> dict[str, float]:
    """Show one answer; gives its figures."""
    marks = ", ".join(name for name, value in figures.items() if value == 1.0)
    print(f"{kind}: {marks or 'nothing'} | {asked} | {answer.text[:90]!r}")
    print(f"      {'; '.join(one.text for one in answer.citations)}", flush=True)
    return figures


def summed(seen: Sequence[dict[str, float]]) -> dict[str, float]:
    """Counts of all, and the median of what is in seconds."""
    counts = {name: sum(one[name] for one in seen) for name in seen[0]}
    seconds = statistics.median(one["first token s"] for one in seen)
    return {"asked": float(len(seen)), **counts, "first token s": seconds}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("session", type=Path)
    parser.add_argument("set", choices=NAMES)
    parser.add_argument("--max-tokens", type=int, default=32)
    choices = parser.parse_args()
    options = RunOptions(max_tokens=choices.max_tokens, dashboard="off", quiet=True)
    questions = load(choices.set, None)
    sharing = [one for one in questions if one.shares_words]
    session = choices.session.with_name("chat-bench.kv")
    shutil.copyfile(choices.session, session)
    rows: dict[str, list[dict[str, float]]] = {}
    turn_of: dict[str, int] = {}
    try:
        with sitting(session, options) as (_, talk):
            for one in sharing:
                answer = ask_afresh(talk, one.text, options.sampling)
                figures = told("before", one.text, in_documents(answer, one), answer)
                rows.setdefault("documents, before the chat", []).append(figures)
        half = len(REMARKS) // 2
        for remarks, between in (
            (REMARKS[:half], questions[::2]),
            (REMARKS[half:], questions[1::2]),
        ):
            with sitting(session, options) as (run, talk):
                said = [one.said for one in remarks]
                pairs = zip_longest(said, [one.text for one in between])
                for line in (line for pair in pairs for line in pair if line is not None):
                    answer = run.ask(line)
                    turn_of[line] = talk.turns
                    recalled = float(any(one.path == CHAT for one in answer.citations))
                    figures = {"recalled": recalled, "first token s": answer.first_token_s}
                    rows.setdefault("while chatting", []).append(
                        told("chat", line, figures, answer)
                    )
        with sitting(session, options) as (_, talk):
            for remark in REMARKS:
                answer = ask_afresh(talk, remark.asked, options.sampling)
                figures = in_chat(answer, turn_of[remark.said], remark.value)
                rows.setdefault("the chat", []).append(told("chat", remark.asked, figures, answer))
            for one in sharing:
                answer = ask_afresh(talk, one.text, options.sampling)
                figures = told("after", one.text, in_documents(answer, one), answer)
                rows.setdefault("documents, after it", []).append(figures)
            num_tokens, turns = len(talk.sequence.token_ids), talk.turns
            documents = talk.document_tokens
    finally:
        session.unlink(missing_ok=True)
    report(
        f"a chat of {turns} turns", {kind: summed(seen) for kind, seen in rows.items()},
        document_tokens=documents, chat_tokens=num_tokens - documents,
    )  # fmt: skip


if __name__ == "__main__":
    main()
