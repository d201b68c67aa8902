"""Start-up: whole processes that must not wait for torch."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from tests.bench.harness import report

COMMANDS = {
    "kvcli --help": ["--help"],
    "kvcli models": ["models"],
    "kvcli --version": ["--version"],
}


def main() -> None:
    """Run and print."""
    rows = {}
    for name, arguments in COMMANDS.items():
        times = []
        for _ in range(9):
            started = time.perf_counter()
            command = [sys.executable, "-m", "kvcli.app", *arguments]
            subprocess.run(command, check=True, capture_output=True)
            times.append(time.perf_counter() - started)
        rows[name] = {"median s": statistics.median(times), "min s": min(times)}
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    report("start-up", rows, bare_python_s=round(time.perf_counter() - started, 3))


if __name__ == "__main__":
    main()
