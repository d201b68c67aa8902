"""Every figure of a GPU beside its peak and its goal, as one table.

`python -m tests.bench.gpu_table` ends with 0 if all goals are met, with 1 if not, and with 77 where
there is no device that torch can use. `--check` stops after saying what there is. `--device cpu`
runs all of it with tiny tensors: a rehearsal of the scripts, whose figures mean nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

import torch

from tests.bench import gpu_attention, gpu_engine, gpu_link, gpu_pages, gpu_tables
from tests.bench.gpu_clock import GB, Figure, GpuBench, make_bench

NO_DEVICE = 77
"""Exit code that test harnesses take for "skipped"."""

SCRIPTS: Mapping[str, Callable[[GpuBench], Iterator[Figure]]] = {
    "link": gpu_link.figures,
    "pages": gpu_pages.figures,
    "tables": gpu_tables.figures,
    "attention": gpu_attention.figures,
    "engine": gpu_engine.figures,
}

QUERY = "driver_version,pcie.link.gen.max,pcie.link.width.max"


def device_line(device: torch.device) -> str:
    """The device in one line."""
    if device.type != "cuda":
        return f"the CPU, as a rehearsal; torch {torch.__version__}"
    properties = torch.cuda.get_device_properties(device)
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        driver, generation, width = (x.strip() for x in asked.stdout.splitlines()[0].split(","))
    except (OSError, subprocess.SubprocessError, ValueError):
        driver = generation = width = "?"
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "none"
    return (
        f"{properties.name}, {properties.total_memory / GB:.0f} GB, sm_{properties.major}"
        f"{properties.minor}, driver {driver}, PCIe {generation} x{width}, "
        f"torch {torch.__version__}, triton {triton}"
    )


def measure(bench: GpuBench, names: Sequence[str]) -> tuple[list[Figure], list[str]]:
    """Run scripts one after another; one that fails does not stop the others.

    Returns:
        The figures, and the names of scripts that failed.
    """
    found, failed = [], []
    for name in names:
        started = time.perf_counter()
        try:
            for figure in SCRIPTS[name](bench):
                found.append(figure)
                print(f"  {figure.what}: {figure.value:,.4g} {figure.unit}", file=sys.stderr)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return found, failed


def table(figures: Sequence[Figure]) -> str:
    """The figures as Markdown."""
    rows = [
        "| what | measured | peak | share | goal | pass |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for figure in figures:
        goals = [f">= {figure.goal:.2f}"] if figure.goal is not None else []
        if figure.least is not None:
            goals.append(f">= {figure.least:g} {figure.unit}")
        passes = {None: "", True: "yes", False: "NO"}[figure.passes]
        rows.append(
            f"| {figure.what} | {figure.value:,.4g} {figure.unit} | {figure.peak:,.4g} "
            f"({figure.peak_of}) | {figure.share:.2f} | {', '.join(goals)} | {passes} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="only say what device there is")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to rehearse")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=list(SCRIPTS))
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print(f"no CUDA device that torch {torch.__version__} can use: nothing was run")
        sys.exit(NO_DEVICE)
    print(device_line(device))
    if options.check:
        return
    figures, failed = measure(make_bench(device), options.only)
    print(f"\n## {device_line(device)}\n\n{table(figures)}")
    for name in failed:
        print(f"FAILED: {name}, see above")
    sys.exit(bool(failed) or any(figure.passes is False for figure in figures))


if __name__ == "__main__":
    main()
