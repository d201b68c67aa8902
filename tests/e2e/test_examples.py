"""The example scripts do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.model
def test_read_and_ask_answers_from_a_session(tmp_path: Path) -> None:
    text = tmp_path / "note.txt"
    text.write_text("The lighthouse keeper of Tarn Head is called Oskar Lindqvist.\n" * 3)
    done = subprocess.run(
        [sys.executable, "examples/read_and_ask.py", str(text), "Who is the lighthouse keeper?"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert "Lindqvist" in done.stdout
