"""Peak memory under random budgets: what a run takes beyond the model and its runtime.

The same text is ingested by the command line with RAM budgets drawn at random, and once with the
least that is accepted. That run's pages and buffers are known, so its peak less its budget is what
weights, runtime and one step's activations take; every other run may take its own budget on top,
and 5 % of the whole.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.harness import ROOT, report
from tests.bench.ingest import Watch

LARGEST = 600 << 20
TOLERANCE = 1.05


def command(text: Path, session: Path, ram: int) -> list[str]:
    """The command line of one run."""
    run = [sys.executable, "-m", "kvcli.app", "ingest", str(text), "-o", str(session)]
    return [*run, "--ram", str(ram), "--attention", "exact", "--dashboard", "off"]


def least_budget(text: Path, folder: Path) -> int:
    """The bytes that a refusal asks for."""
    refused = subprocess.run(
        [*command(text, folder / "least.kv", 1 << 20), "--json"], cwd=ROOT, capture_output=True
    )
    message = json.loads(refused.stdout)["error"]["message"]
    found = re.search(r"below the ([\d,]+) bytes", message)
    assert found is not None, message
    return int(found[1].replace(",", ""))


def peak_of(text: Path, folder: Path, ram: int) -> int:
    """Peak resident bytes of one run."""
    session = folder / f"{ram}.kv"
    process = subprocess.Popen(command(text, session, ram), cwd=ROOT, stderr=subprocess.DEVNULL)
    watch = Watch(process, session.with_suffix(".jsonl"))
    while process.poll() is None:
        watch.look()
        time.sleep(0.02)
    assert process.returncode == 0, process.returncode
    session.unlink()
    return watch.rss_peak


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--words", type=int, default=3500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(dir=Path.home()) as name:
        folder = Path(name)
        text = folder / "text.txt"
        words = (chance.choice(("river", "stone", "bridge", "pier")) for _ in range(options.words))
        text.write_text(" ".join(words) + "\n")
        least = least_budget(text, folder)
        base = peak_of(text, folder, least) - least
        rows: dict[str, dict[str, float]] = {}
        for number in range(options.runs):
            ram = round(least * (LARGEST / least) ** chance.random())
            peak = peak_of(text, folder, ram)
            allowed = (base + ram) * TOLERANCE
            rows[f"{number + 1}"] = {
                "--ram MB": ram / 1e6,
                "peak RSS MB": peak / 1e6,
                "allowed MB": allowed / 1e6,
                "of allowed": peak / allowed,
            }
    within = sum(row["of allowed"] <= 1.0 for row in rows.values())
    report(
        "peak memory under random budgets", rows,
        least_mb=least / 1e6, base_mb=base / 1e6, within=f"{within} of {len(rows)}",
    )  # fmt: skip


if __name__ == "__main__":
    main()
