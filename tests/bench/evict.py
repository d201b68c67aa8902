"""Eviction policies compared on three recorded runs of the default model, small ones.

- chat: `--document` is kept as a session with focus, then questions are put to it in one chat;
- repository: `--repo` is read with focus and asked five questions in the same run;
- decode: an exact answer over the beginning of `--document`, with RAM for about half of its pages.

What a run reads does not depend on the policy or the budget it was recorded with. The traces stay
in `--folder`, where `kvcli bench evict FOLDER/*.jsonl` replays them again; what lies there already
is not recorded anew.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.policies.comparison import compare, num_pages_read
from kvcli import opening
from kvcli.access_log import read_accesses
from kvcli.commands.bench import SHARES
from kvcli.options import RunOptions
from kvcli.run import Run
from tests.bench.harness import ROOT, report

CHAT = (
    "What lies in the superblock?",
    "Which checksum does a page slice have?",
    "What happens when the file is opened after a crash?",
    "And how long is the superblock?",
    "What is a sealed segment?",
    "Which checksum is used for attachments?",
    "How are commits ordered?",
    "What does a superblock point to?",
)
REPOSITORY = (
    "Which file decides how much memory each part may use?",
    "Which class counts references to pages?",
    "What is the smallest host tier?",
    "How are references to pages counted when a sequence is forked?",
    "Which error is raised when the budget is too small?",
)
DECODE_CHARACTERS = 4000
DECODED = 48


def options(metrics: Path, ram: int, attention: str, max_tokens: int) -> RunOptions:
    """What all runs have in common."""
    return RunOptions(
        ram=ram << 20, page_tokens=16, attention=attention, max_tokens=max_tokens,
        metrics=metrics, dashboard="off", quiet=True,
    )  # fmt: skip


def chat(metrics: Path, choices: argparse.Namespace) -> None:
    """Several questions to one document that was read before."""
    kept = metrics.with_suffix(".kv")
    asking = options(metrics, choices.ram, "stored", 24)
    reading, paths = replace(asking, metrics=None), [str(choices.document)]
    with opening.start(reading, paths, question=None, session=kept, overwrite=True) as run:
        run.read()
    with opening.go_on(asking, kept) as run:
        ask(run, *CHAT)


def repository(metrics: Path, choices: argparse.Namespace) -> None:
    """Read a folder and ask at once."""
    asking = options(metrics, choices.ram, "stored", 24)
    with opening.start(asking, [str(choices.repo)], question=REPOSITORY[0], session=None) as run:
        ask(run, *REPOSITORY)


def decode(metrics: Path, choices: argparse.Namespace) -> None:
    """Every token of the answer reads every page."""
    text = metrics.with_suffix(".txt")
    text.write_text(choices.document.read_text("utf-8")[:DECODE_CHARACTERS], "utf-8")
    asking = options(metrics, choices.exact_ram, "exact", DECODED)
    with opening.start(asking, [str(text)], question=CHAT[0], session=None) as run:
        ask(run, CHAT[0])


def ask(run: Run, *questions: str) -> None:
    """Read what there is to read, then ask; say what the policy at work came to."""
    run.read()
    for question in questions:
        print(f"\n> {question}", flush=True)
        run.ask(question)
    plan, sample = run.engine.memory_plan, run.telemetry.sample()
    hits = ", ".join(f"{tier.value} {count:,}" for tier, count in sample.hits.items())
    print(
        f"\n{len(run.conversation.sequence.token_ids):,} tokens; room for {plan.device_pages} "
        f"pages in the device tier, {plan.host_pages} in the host tier; {sample.wall_s:.0f} s; "
        f"served by {hits}"
    )


RUNS: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "chat": chat,
    "repository": repository,
    "decode": decode,
}


def tell(name: str, metrics: Path) -> None:
    """Print one trace's table."""
    log = read_accesses(metrics)
    pages = num_pages_read(log.accesses)
    rows: dict[str, dict[str, float]] = {}
    for share in SHARES:
        capacity = max(1, round(share * pages))
        for contender in compare(log.accesses, capacity):
            row = rows.setdefault(contender.policy, {})
            row[f"misses, {capacity} pages"] = contender.result.misses
            if math.isfinite(contender.regret):  # else there is nothing to divide by
                row[f"regret, {capacity} pages"] = contender.regret
            reads = contender.result.hits + contender.result.misses
    report(f"eviction: {name}", rows, pages_read=pages, reads=reads, page_bytes=log.page_bytes)


def main() -> None:
    """Record what is missing, then compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--folder", type=Path, help="keeps the traces; default: a temporary one")
    parser.add_argument("--document", type=Path, default=ROOT / "engine/session/FORMAT.md")
    parser.add_argument("--repo", type=Path, default=ROOT / "engine/memory")
    parser.add_argument("--ram", type=int, default=128, help="MiB, with focus")
    parser.add_argument("--exact-ram", type=int, default=32, help="MiB, for the exact answer")
    choices = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = choices.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name, record in RUNS.items():
            metrics = folder / f"{name}.jsonl"
            if not metrics.exists():
                partial = folder / f"{name}.partial"
                partial.unlink(missing_ok=True)
                record(partial, choices)
                partial.rename(metrics)
            tell(name, metrics)


if __name__ == "__main__":
    main()
