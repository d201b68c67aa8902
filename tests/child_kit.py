"""Command lines in processes of their own, to interrupt, to kill and to type at.

A child is forked from a server that has imported everything, so that it costs half a second and not
five. A scenario is a function that changes the child before it starts.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import pty
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_kit import Ran

from engine.config import EngineConfig
from engine.stepper import Stepper
from kvcli import app, engine_setup

PATIENCE = 60.0
"""Seconds after which a child has hung; it takes two on an idle machine."""

Scenario = Callable[[], None]
"""Changes the child before it runs its command line; a function of a test module."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["kvcli.opening", "kvcli.commands.resume", "transformers.models.llama.modeling_llama", __name__]
)


@dataclass
class Child:
    """A command line in a process of its own."""

    process: BaseProcess
    folder: Path

    def wait_for(self, mark: str) -> None:
        """Return once the scenario has said `mark`."""
        deadline = time.monotonic() + PATIENCE
        while mark not in self._text("marks").split():
            assert self.process.is_alive(), f"ended without '{mark}': {self._text('err')}"
            assert time.monotonic() < deadline, f"never said '{mark}': {self._text('err')}"
            time.sleep(0.005)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def end(self) -> Ran:
        """Wait for the end."""
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            pytest.fail(f"hung; it said: {self._text('err')}")
        assert self.process.exitcode is not None
        return Ran(self.process.exitcode, self._text("out"), self._text("err"))

    def _text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text("utf-8", "replace") if path.exists() else ""


Spawn = Callable[..., Child]


@pytest.fixture
def spawn(tmp_path: Path, tiny_model: Path) -> Iterator[Spawn]:
    """Start a command line in a child, in the test's folder."""
    children: list[Child] = []

    def start(
        *arguments: object,
        scenario: Scenario | None = None,
        model: Path = tiny_model,
        terminal: str | None = None,
    ) -> Child:
        folder = tmp_path / f".child-{len(children)}"
        folder.mkdir()
        words = [str(argument) for argument in arguments]
        command = [words[0], "--model", str(model), *words[1:]]
        process = _FORKS.Process(
            target=_serve, args=(command, folder, tmp_path, dict(os.environ), scenario, terminal)
        )
        process.start()
        children.append(Child(process, folder))
        return children[-1]

    yield start
    for child in children:
        if child.process.is_alive():
            child.process.kill()
        child.process.join()


def mark(word: str) -> None:
    """Say in a scenario how far the child is."""
    with open(os.environ["KIT_MARKS"], "a") as file:
        file.write(word + "\n")


def _serve(
    command: list[str],
    folder: Path,
    cwd: Path,
    environment: dict[str, str],
    scenario: Scenario | None,
    terminal: str | None,
) -> None:
    os.environ.clear()
    os.environ.update(environment, KIT_MARKS=str(folder / "marks"))
    os.chdir(cwd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    names = (os.devnull, folder / "out", folder / "err")
    for descriptor, name in enumerate(names if terminal is None else [terminal] * 3):
        opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOCTTY)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(0, encoding="utf-8", closefd=False),
        os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False),
        os.fdopen(2, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1),
    )
    torch.set_num_threads(1)
    if scenario is not None:
        scenario()
    sys.exit(app.run(command))


# -- scenarios -------------------------------------------------------------------------------------


def marked_steps(seconds: float) -> None:
    """Say each step, and take some time after it."""
    real, count = Stepper.run, 0

    def run(stepper: Stepper, *arguments: Any) -> Any:
        nonlocal count
        result = real(stepper, *arguments)
        count += 1
        mark(f"step{count}")
        time.sleep(seconds)
        return result

    Stepper.run = run  # type: ignore[method-assign]


def slow_steps() -> None:
    marked_steps(0.2)


def checkpointed_steps() -> None:
    """Every step is committed."""
    engine_setup.EngineConfig = functools.partial(EngineConfig, checkpoint_seconds=0.0)  # type: ignore[misc, assignment]
    marked_steps(0.02)


# -- terminals -------------------------------------------------------------------------------------


@dataclass
class Terminal:
    """The keyboard and the screen of a child."""

    master: int
    name: str
    screen: str = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read_until(self, text: str, count: int = 1) -> None:
        """Return once the screen has shown `text` that often."""
        deadline = time.monotonic() + 60
        while self.screen.count(text) < count:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.master], [], [], max(0.0, left))
            assert ready, f"{text!r} never came: {self.screen!r}"
            self.screen += os.read(self.master, 1 << 16).decode("utf-8", "replace")


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    master, slave = pty.openpty()
    yield Terminal(master, os.ttyname(slave))
    os.close(master)
    os.close(slave)
