"""A chat on a terminal: prompts, answers, Ctrl-C, and how it ends."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from child_kit import Child, Spawn, Terminal, slow_steps
from cli_kit import Kvcli, kv_tokens, make_session, stored_ids
from tiny_models import tiny_tokenizer


def chat(spawn: Spawn, terminal: Terminal, scenario: Any = None, tokens: int = 6) -> Child:
    child = spawn("resume", "s.kv", "--max-tokens", tokens, "--dashboard", "off", "--color",
                  "never", scenario=scenario, terminal=terminal.name)  # fmt: skip
    terminal.read_until("> ")
    return child


@pytest.mark.parametrize("goodbye", ["/exit\n", "/quit\n", "\x04"])
def test_a_chat_on_a_terminal_prompts_answers_and_ends(
    spawn: Spawn, kvcli: Kvcli, notes: Path, terminal: Terminal, goodbye: str
) -> None:
    make_session(kvcli, notes)
    child = chat(spawn, terminal)
    for turn in (1, 2):
        terminal.type("Which pier?\n")
        terminal.read_until("> ", turn + 1)
    terminal.type("\n")
    terminal.read_until("> ", 4)
    terminal.type(goodbye)
    assert child.end().code == 0
    text = tiny_tokenizer().decode(stored_ids(Path("s.kv")))
    assert text.count("<|im_start|>assistant\n") == 2


def test_ctrl_c_at_the_prompt_ends_the_chat_politely(
    spawn: Spawn, kvcli: Kvcli, notes: Path, terminal: Terminal
) -> None:
    make_session(kvcli, notes)
    child = chat(spawn, terminal)
    terminal.type("Which pier?\n")
    terminal.read_until("> ", 2)
    child.send(signal.SIGINT)
    assert child.end().code == 0
    assert "error" not in terminal.screen
    assert kv_tokens(Path("s.kv")) == len(stored_ids(Path("s.kv")))


def test_sigterm_at_the_prompt_says_what_is_kept(
    spawn: Spawn, kvcli: Kvcli, notes: Path, terminal: Terminal
) -> None:
    make_session(kvcli, notes)
    child = chat(spawn, terminal)
    child.send(signal.SIGTERM)
    assert child.end().code == 130
    terminal.read_until("tokens are kept in s.kv")


def test_ctrl_c_in_an_answer_of_a_chat_stops_that_answer(
    spawn: Spawn, kvcli: Kvcli, notes: Path, terminal: Terminal
) -> None:
    """What was said is kept, and the prompt is back."""
    make_session(kvcli, notes)
    child = chat(spawn, terminal, slow_steps, tokens=300)
    terminal.type("Which pier?\n")
    child.wait_for("step4")
    child.send(signal.SIGINT)
    terminal.read_until("> ", 2)
    stopped = stored_ids(Path(shutil.copy("s.kv", "copy.kv")))  # the child holds the lock
    said = tiny_tokenizer().decode(stopped).split("<|im_start|>assistant\n")[-1]
    assert 0 < len(said) < 200
    terminal.type("And then?\n")
    child.wait_for("step9")
    child.send(signal.SIGINT)
    terminal.read_until("> ", 3)
    terminal.type("/exit\n")
    assert child.end().code == 0
    assert stored_ids(Path("s.kv"))[: len(stopped)] == stopped


def test_ctrl_c_before_an_answer_of_a_chat_returns_to_the_prompt(
    spawn: Spawn, kvcli: Kvcli, notes: Path, terminal: Terminal
) -> None:
    make_session(kvcli, notes)
    child = chat(spawn, terminal, slow_steps)
    terminal.type("Which pier?\n")
    child.wait_for("step1")
    child.send(signal.SIGINT)
    terminal.read_until("> ", 2)
    terminal.type("Which year?\n")
    terminal.read_until("> ", 3)
    terminal.type("/exit\n")
    assert child.end().code == 0
    text = tiny_tokenizer().decode(stored_ids(Path("s.kv")))
    assert "<|im_start|>user\nWhich year?<|im_end|>\n<|im_start|>assistant\n" in text


def test_a_question_too_long_for_a_chat_is_refused_and_the_chat_goes_on(
    spawn: Spawn, kvcli: Kvcli, notes: Path, terminal: Terminal
) -> None:
    make_session(kvcli, notes)
    child = chat(spawn, terminal)
    terminal.type("why " * 900 + "\n")
    terminal.read_until("more than the window of 2,048")
    terminal.read_until("> ", 2)
    terminal.type("Which year?\n")
    terminal.read_until("> ", 3)
    terminal.type("/exit\n")
    assert child.end().code == 0


def test_two_at_once_on_one_session_are_refused(
    spawn: Spawn, kvcli: Kvcli, notes: Path, terminal: Terminal
) -> None:
    """The second resume, and a second ingest over it, while the first chats."""
    make_session(kvcli, notes)
    child = chat(spawn, terminal)
    second = kvcli("resume", "s.kv", "Which pier?")
    over = kvcli("ingest", notes, "-o", "s.kv", "--force")
    assert (second.code, over.code) == (5, 5)
    assert second.error[0] == "kvcli: error: s.kv: in use by another kvcli"
    terminal.type("/exit\n")
    assert child.end().code == 0
