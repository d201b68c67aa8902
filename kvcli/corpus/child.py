"""Child processes that read what may be hostile: started apart from our files, heard with a clock.

Owns the command line, the pipe and the deadline. Knows no format and no message.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import kvcli


class ChildFailed(Exception):
    """The child died, hung or broke a limit; the message says which."""


def start(module: str) -> subprocess.Popen[bytes]:
    """Start a module of this package with pipes to both sides."""
    # -P and our own path first: the current folder may be the very repository that is being read,
    # and no module of it may be imported.
    ours = str(Path(kvcli.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([ours, inherited] if inherited else [ours])
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )


def lines(process: subprocess.Popen[bytes], seconds_left: Callable[[], float]) -> Iterator[bytes]:
    """The lines that a child writes, until it closes its output.

    Args:
        process: The child.
        seconds_left: Asked before each wait how long it may take.

    Raises:
        ChildFailed: The time was over.
    """
    assert process.stdout is not None
    pieces: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = seconds_left()
            if left <= 0 or not selector.select(left):
                raise ChildFailed("took too long")
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=5)
                return
            pieces.append(chunk)
            if b"\n" in chunk:
                *whole, rest = b"".join(pieces).split(b"\n")
                pieces = [rest]
                yield from whole


def cause_of_death(returncode: int | None) -> str:
    """What to say of a child that has ended before its work did."""
    if returncode is not None and returncode < 0:
        return f"was stopped by signal {-returncode}"
    return "crashed or ran out of memory"
