"""The second question on a subject: how many of the pages it is answered from lie in RAM already.

Pairs of questions on one subject are put to a session, answered from stored pages: of R's reference
manual (`questions/pairs_manual.json`) or of SymPy's sources (`pairs_sympy.json`). What counts is
where the pages of the second question's working set lie when it is asked; sinks count as well. With
and without prefetching, each from a freshly opened session.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from engine.engine import Engine
from engine.sequence import Sequence
from engine.types import Tier
from kvcli import opening
from kvcli.conversation import Conversation
from kvcli.options import RunOptions
from kvcli.sizes import parse_size
from tests.bench.harness import report
from tests.bench.hidden import ask_afresh

QUESTIONS = Path(__file__).with_name("questions")


@contextmanager
def watched(engine: Engine) -> Iterator[dict[Tier, int]]:
    """Where the pages lay that are gathered inside."""
    found = dict.fromkeys(Tier, 0)
    real = engine.gather

    def gather(sequence: Sequence, pages: list[int]) -> Sequence:
        before = engine.telemetry.sample().hits
        gathered = real(sequence, pages)
        after = engine.telemetry.sample().hits
        for tier in Tier:
            found[tier] += after[tier] - before[tier]
        return gathered

    engine.gather = gather  # type: ignore[method-assign]
    try:
        yield found
    finally:
        engine.gather = real  # type: ignore[method-assign]


def ask(talk: Conversation, options: RunOptions, question: str) -> dict[Tier, int]:
    """Ask on a fork that is dropped; gives where the pages lay."""
    with watched(talk.engine) as found:
        ask_afresh(talk, question, options.sampling)
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("session", type=Path)
    parser.add_argument("--ram", default="2GiB")
    parser.add_argument("--about", choices=("manual", "sympy"), default="manual")
    parser.add_argument("--pairs", type=int, help="how many; default: all")
    choices = parser.parse_args()
    about = (QUESTIONS / f"pairs_{choices.about}.json").read_text(encoding="utf-8")
    pairs: list[tuple[str, str]] = json.loads(about)[: choices.pairs]
    rows: dict[str, dict[str, float]] = {}
    shares: dict[str, list[str]] = {}
    for prefetch in ("off", "auto"):
        options = RunOptions(
            attention="stored", prefetch=prefetch, lookup="sketch", ram=parse_size(choices.ram),
            max_tokens=8, dashboard="off", quiet=True,
        )  # fmt: skip
        first, second = dict.fromkeys(Tier, 0), dict.fromkeys(Tier, 0)
        with opening.go_on(options, choices.session) as run:
            run.read()
            for opener, follower in pairs:
                for counts, question in ((first, opener), (second, follower)):
                    found = ask(run.conversation, options, question)
                    for tier in Tier:
                        counts[tier] += found[tier]
                share = found[Tier.HOST] / max(1, sum(found.values()))
                shares.setdefault(prefetch, []).append(f"{share:.0%}")
            counts = asdict(run.telemetry.prefetch)
        for name, seen in (("first", first), ("second", second)):
            rows[f"{name} question, prefetch {prefetch}"] = {
                "pages": float(sum(seen.values())),
                "in RAM": float(seen[Tier.HOST]),
                "share": seen[Tier.HOST] / max(1, sum(seen.values())),
            }
        rows[f"second question, prefetch {prefetch}"] |= counts
    report("the second question on a subject", rows, ram=choices.ram, each=shares)


if __name__ == "__main__":
    main()
