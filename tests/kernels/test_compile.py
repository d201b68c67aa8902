"""Every Triton kernel builds for three architectures on a machine without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SHARED_BYTES = {80: 166_912, 90: 232_448, 100: 232_448}
"""What a program may take (CUDA C++ programming guide, technical specifications)."""

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def compiled(pytestconfig: pytest.Config) -> list[dict[str, Any]]:
    """What `compile_all.py` finds, in a process of its own: this one interprets kernels.

    The compiler's cache is kept with pytest's: its key holds the source and the options.
    """
    assert pytestconfig.cache is not None
    kept = str(pytestconfig.cache.mkdir("triton"))
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/kernels/compile_all.py"), "--json"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": kept},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_every_case_builds_for_every_architecture(compiled: list[dict[str, Any]]) -> None:
    found = {capability: set() for capability in SHARED_BYTES}
    for row in compiled:
        assert row["registers"] > 0
        found[row["capability"]].add((row["case"], row["kernel"]))
    assert found[80] and found[80] == found[90] == found[100]


def test_no_kernel_at_head_size_128_spills(compiled: list[dict[str, Any]]) -> None:
    rows = [row for row in compiled if "head 128" in row["case"]]
    assert rows
    assert [row for row in rows if row["stack"] > 0] == []


def test_shared_memory_is_what_the_architecture_has(compiled: list[dict[str, Any]]) -> None:
    assert [row for row in compiled if row["shared"] > SHARED_BYTES[row["capability"]]] == []


def test_the_kept_table_names_every_kernel(compiled: list[dict[str, Any]]) -> None:
    """Registers may differ with the version of Triton; what is reported may not."""
    kept = (ROOT / "kernels/RESOURCES.md").read_text()
    missing = {
        head for row in compiled if (head := f"| {row['case']} | `{row['kernel']}` |") not in kept
    }
    assert not missing, "python tests/kernels/compile_all.py --write"
