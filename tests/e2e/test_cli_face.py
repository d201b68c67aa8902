"""The command line as a real process: what it imports, closed pipes, full disks, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

ROOT = Path(__file__).parents[2]

HEAVY = """
import sys
from kvcli.app import run
code = run(sys.argv[1:])
heavy = sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "transformers"})
assert not heavy, heavy
sys.exit(code)
"""


def start(*arguments: str, code: str | None = None, **more: object) -> subprocess.Popen[str]:
    how = ["-c", code] if code else ["-m", "kvcli.app"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *how, *arguments], env=environment, text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT, **more},
    )  # fmt: skip


def kvcli(*arguments: str, **more: object) -> tuple[int, str, str]:
    with start(*arguments, **more) as process:
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.save(str(model / "tokenizer.json"))
    fields = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2,
              "num_hidden_layers": 2, "max_position_embeddings": 64}  # fmt: skip
    (model / "config.json").write_text(json.dumps(fields))
    (tmp_path / "a.txt").write_text("words\n")
    (tmp_path / "s.kv").write_bytes(b"not a session")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["ask", "--help"], 0),
        (["models"], 0),
        (["inspect", "s.kv"], 5),
        (["inspect", "a.txt", "--model", "model", "--offline"], 0),
        (["bench", "--help"], 0),
        (["bench", "evict", "none.jsonl"], 3),
        (["bogus"], 2),
    ],
)
def test_light_commands_import_neither_torch_nor_transformers(
    inputs: Path, arguments: list[str], code: int
) -> None:
    returned, _, err = kvcli(*arguments, code=HEAVY, cwd=inputs)
    assert returned == code, err


def test_a_pipe_closed_by_its_reader_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        assert kvcli("--help", stdout=write)[0::2] == (1, "")
        assert kvcli("models", stdout=write)[0::2] == (1, "")
    finally:
        os.close(write)


def test_a_stdout_closed_before_the_start_is_quiet() -> None:
    code, _, err = kvcli("models", preexec_fn=lambda: os.close(1))
    assert (code, err) == (1, "")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_disk_behind_stdout_is_one_line(more: list[str]) -> None:
    with open("/dev/full", "w") as full:
        code, _, err = kvcli("models", *more, stdout=full)
    assert code == 1
    assert err.splitlines()[0] == "kvcli: error: No space left on device"
    assert "Traceback" not in err


def test_a_closed_stderr_does_not_cost_the_result() -> None:
    code, out, _ = kvcli("models", preexec_fn=lambda: os.close(2))
    assert code == 0
    assert "smollm2-135m" in out


def test_ctrl_c_is_130_without_a_traceback() -> None:
    """The command hangs where a real one would compute."""
    hang = """
import sys, time
from kvcli import app
from kvcli.commands import models
def hang():
    print("ready", flush=True)
    time.sleep(60)
models.list_models = hang
sys.exit(app.run(["models"]))
"""
    with start(code=hang) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "kvcli: error: interrupted; nothing was kept\n")


def test_output_into_pipes_has_no_escapes_whatever_the_terminal_says(inputs: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "kvcli.app", "inspect", "a.txt", "--model", "model"]
    done = subprocess.run(command, env=environment, cwd=inputs, capture_output=True, check=True)
    assert b"\x1b" not in done.stdout + done.stderr


def test_an_ascii_locale_does_not_crash_the_tree(inputs: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "kvcli.app", "inspect", "a.txt", "--model", "model"]
    done = subprocess.run(command, env=environment, cwd=inputs, capture_output=True)
    assert done.returncode == 0, done.stderr
