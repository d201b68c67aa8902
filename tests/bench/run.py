"""Runs the benchmarks by name: `python tests/bench/run.py [exact|stream|telemetry|... ...]`.

Options of one benchmark: `python -m tests.bench.exact --help`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BENCHES = {
    "start": [],
    "stream": [],
    "resume": [],
    "telemetry": [],
    "exact": ["--ram-share", "8"],
    "evict": [],
}


def main() -> None:
    """Run what is named, or everything."""
    names = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"unknown benchmark {unknown[0]}; choose from {', '.join(BENCHES)}")
    for name in names:
        command = [sys.executable, "-m", f"tests.bench.{name}", *BENCHES[name]]
        subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
