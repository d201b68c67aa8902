"""The timing scripts of a GPU, rehearsed with tiny tensors, and the table of their figures."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.bench.gpu_clock import Figure, make_bench
from tests.bench.gpu_table import NO_DEVICE, SCRIPTS, measure, table

RATE = Figure("a rate", 46.0, "GB/s", 50.0, "link up")


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_runs_to_its_end(name: str) -> None:
    """On the CPU, so that none stops at a slip when there is a GPU at last."""
    figures, failed = measure(make_bench(torch.device("cpu")), [name])
    assert not failed and figures
    assert all(figure.value > 0 and figure.peak > 0 for figure in figures)
    assert len({figure.what for figure in figures}) == len(figures)
    assert len(table(figures).splitlines()) == 2 + len(figures)


def test_a_figure_passes_if_it_meets_every_goal_it_has() -> None:
    assert RATE.passes is None
    assert replace(RATE, goal=0.9).passes is True
    assert replace(RATE, goal=0.95).passes is False
    assert replace(RATE, goal=0.9, least=45.0).passes is True
    assert replace(RATE, goal=0.9, least=48.0).passes is False
    row = table([replace(RATE, goal=0.95, least=45.0)]).splitlines()[-1]
    assert "0.92" in row and ">= 0.95, >= 45 GB/s" in row and "NO" in row


def test_a_script_that_fails_leaves_the_others_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bench: object) -> list[Figure]:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("tests.bench.gpu_table.SCRIPTS", {"bad": broken, "good": lambda _: [RATE]})
    assert measure(make_bench(torch.device("cpu")), ["bad", "good"]) == ([RATE], ["bad"])


def test_without_a_gpu_it_says_so_in_one_line_with_a_code_of_its_own(tmp_path: Path) -> None:
    """`nvidia-smi` is the first thing looked for: nothing is installed or fetched without one."""
    script = Path(__file__).parents[2] / "gpu.sh"
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    ran = subprocess.run(
        ["/bin/bash", script], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert ran.returncode == NO_DEVICE
    assert "no GPU here" in ran.stdout and ran.stdout.count("\n") == 1 and not ran.stderr
