"""One changed file in a repository of many: what `kvcli update` computes again, in what time.

The files are generated, each a few functions that differ. They are ingested once, then one file is
changed, near the end, in the middle and near the beginning in turn. The floor is the share of the
ingest that lies behind the change.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.harness import ROOT, report

NOUNS = ("bridge", "pier", "bearing", "joint", "drain", "gauge", "cable", "anchor", "tower")


def source(rng: random.Random, number: int) -> str:
    """A file of two functions."""
    lines = [f'"""Part {number} of the works."""', ""]
    for _ in range(2):
        one, other = rng.sample(NOUNS, 2)
        lines += [
            f"def {one}_{other}_{rng.randrange(1000)}(load: float) -> float:",
            f"    return load * {rng.random():.3f} + {rng.randrange(100)}  # by the {one}",
            "",
        ]
    return "\n".join(lines)


def run(command: str, *words: str) -> tuple[dict[str, Any], float]:
    """One command line; gives its object and its seconds."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "kvcli.app", command, *words, "--json", "--dashboard", "off"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told, time.monotonic() - started


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--files", type=int, default=500)
    options = parser.parse_args()
    rng, rows = random.Random(0), {}
    with tempfile.TemporaryDirectory(dir=Path.home()) as name:
        folder, session = Path(name) / "repo", str(Path(name) / "s.kv")
        folder.mkdir()
        files = [folder / f"part_{number:04}.py" for number in range(options.files)]
        for number, file in enumerate(files):
            file.write_text(source(rng, number))
        told, seconds = run("ingest", str(folder), "-o", session)
        rows["ingest"] = {"s": seconds, "read again": float(told["usage"]["prompt_tokens"])}
        for share in (0.9, 0.5, 0.1):
            file = files[int(share * len(files))]
            file.write_text("# changed\n" + file.read_text())
            told, seconds = run("update", session)
            again = float(told["usage"]["recomputed_tokens"])
            rows[f"a file changed at {share:.0%}"] = {
                "s": seconds,
                "read again": again,
                "of the ingest": seconds / rows["ingest"]["s"],
                "floor": 1 - share,
            }
    report("update of one changed file", rows, files=options.files)


if __name__ == "__main__":
    main()
