"""What every benchmark shares: the text, the clock, the table and the closing JSON line.

Owns how figures are taken: runs of the compared things alternate within one process, the median is
quoted, the floor stands beside it. Asserts nothing about time.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import torch

from engine.model.load import LoadedModel, load_model
from kvcli.corpus.corpus import read_corpus
from kvcli.models import resolve
from kvcli.prompts import PromptBuilder

ROOT = Path(__file__).parents[2]


def default_model(page_tokens: int = 64) -> LoadedModel:
    """The model that `kvcli` uses when none is named."""
    return load_model(Path(resolve("smollm2-135m")), page_tokens=page_tokens)


def real_text(model: LoadedModel, num_tokens: int) -> list[int]:
    """Token ids of the generated bridge report, as a prompt of `num_tokens` tokens."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.pdf"
        pages = max(12, num_tokens // 300)
        command = [sys.executable, "examples/make_report.py", "--pages", str(pages)]
        subprocess.run(
            [*command, "--output", str(report), "--key", str(report.with_suffix(".json"))],
            cwd=ROOT, check=True, capture_output=True,
        )  # fmt: skip
        corpus = read_corpus([report])
    ids = PromptBuilder(model.tokenizer, model.name).documents(corpus).token_ids
    assert len(ids) >= num_tokens
    return ids[:num_tokens]


def alternate(
    things: Mapping[str, Callable[[], dict[str, float]]], repeats: int
) -> dict[str, dict[str, float]]:
    """Run each thing in turn, `repeats` times, and give the median of every figure."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in things}
    for _ in range(repeats):
        for name, thing in things.items():
            runs[name].append(thing())
    return {
        name: {key: statistics.median(run[key] for run in seen) for key in seen[0]}
        for name, seen in runs.items()
    }


def hardware() -> str:
    """The machine in one line."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = next((x.split(":")[1].strip() for x in info.splitlines() if "model name" in x), "?")
    flags = [flag for flag in ("amx_bf16", "avx512_bf16", "avx2") if flag in info]
    ram = psutil.virtual_memory().total / (1 << 30)
    return (
        f"{name}, {os.cpu_count()} cores ({', '.join(flags[:2])}), {ram:.0f} GiB, "
        f"torch {torch.__version__}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def report(title: str, rows: Mapping[str, Mapping[str, float]], **facts: Any) -> None:
    """Print a table and, last, one JSON line."""
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    print(f"\n## {title}\n{hardware()}\n")
    print("| what | " + " | ".join(keys) + " |\n| --- |" + " ---: |" * len(keys))
    for name, row in rows.items():
        cells = [f"{row[key]:,.4g}" if key in row else "" for key in keys]
        print(f"| {name} | " + " | ".join(cells) + " |")
    for name, value in facts.items():
        print(f"- {name}: {value}")
    print(json.dumps({"bench": title, "hardware": hardware(), "rows": rows, **facts}, default=str))
