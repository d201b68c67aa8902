"""Every figure of the tiers beside its goal: runs the benchmarks one after another.

Each prints its own table with its floors as it ends; the last table has one line a figure. With
`--session` (a long session of R's reference manual) the look-up's scan and second questions are
measured, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.harness import ROOT

Reports = list[dict[str, Any]]
"""What a benchmark printed, one report a table."""
Figure = tuple[str, float, str]
"""What it is, what was measured, and the goal."""


def run(module: str, *arguments: str) -> Reports:
    """Run a benchmark; what it prints is shown."""
    command = [sys.executable, "-m", f"tests.bench.{module}", *arguments]
    print("\n$", "python", *command[1:], flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    reports = []
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            reports.append(json.loads(line))
        else:
            print(line)
    return reports


def stream(folder: Path) -> Iterator[Figure]:
    """Streaming against bare calls."""
    (report,) = run("stream", "--folder", str(folder))
    for way, goal in (("read", "0.9"), ("write", "0.85")):
        yield f"{way}, of bare calls", report["rows"][f"{way}, session"]["of bare"], f">= {goal}"


def pressure(session: Path | None) -> Iterator[Figure]:
    """Compute and reading at the same time."""
    decode, *scan = run("pressure", *(["--session", str(session)] if session else []))
    explicit = decode["rows"]["1/8, explicit"]["of max(compute, reading)"]
    yield "exact decode, 1/8 resident, of max(compute, reading)", explicit, "<= 1.3"
    yield "overlap efficiency, exact decode", decode["overlap_efficiency"], ">= 0.8"
    for report in scan:
        yield "overlap efficiency, probe scan", report["overlap_efficiency"], ">= 0.8"
        yield "probe scan, of max(compute, reading)", report["of_max"], ""


def telemetry() -> Iterator[Figure]:
    """What watching costs."""
    (report,) = run("telemetry")
    yield "watched, of unwatched", report["rows"]["dashboard and metrics"]["ratio"], "<= 1.02"


def bring_back() -> Iterator[Figure]:
    """Load or recompute."""
    (report,) = run("bring_back")
    worst = max(row["regret"] for row in report["rows"].values())
    yield "load or recompute, worst regret", worst, "<= 1.1"


def budgets(words: int) -> Iterator[Figure]:
    """Peak memory."""
    (report,) = run("budgets", "--words", str(words))
    worst = max(row["of allowed"] for row in report["rows"].values())
    yield f"peak RSS of {len(report['rows'])} random budgets, of allowed", worst, "<= 1"


def again(session: Path, pairs: int, about: str) -> Iterator[Figure]:
    """Second questions on a subject."""
    (report,) = run("again", str(session), "--pairs", str(pairs), "--about", about)
    row = report["rows"]["second question, prefetch auto"]
    yield "second question, pages in RAM", row["share"], ">= 0.7"
    if row["issued"]:
        yield "prefetched and not used", 1 - row["useful"] / row["issued"], "<= 0.1"


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--folder", type=Path, default=Path.home(), help="on the disk to measure")
    parser.add_argument("--session", type=Path, help="a long session, for the scan and questions")
    parser.add_argument("--pairs", type=int, default=5, help="of questions on one subject")
    parser.add_argument("--about", default="manual", help="what the session is about, see again")
    parser.add_argument("--words", type=int, default=2000, help="of the text under random budgets")
    options = parser.parse_args()
    figures = [*stream(options.folder), *pressure(options.session), *telemetry()]
    figures += [*bring_back(), *budgets(options.words)]
    if options.session:
        figures += again(options.session, options.pairs, options.about)
    print("\n| what | measured | goal |\n| --- | ---: | ---: |")
    for what, value, goal in figures:
        print(f"| {what} | {value:.3f} | {goal} |")


if __name__ == "__main__":
    main()
