"""Power loss and kill -9 at any moment: a session opens to its last commit."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import session_kit as kit
from session_faults import losing_power

from engine.errors import NotASession
from engine.session import SessionFile
from engine.types import CodedSizes


@pytest.mark.parametrize("garbage", [False, True], ids=["torn", "garbage"])
@pytest.mark.parametrize("coded", [None, kit.CODED], ids=["raw", "coded"])
@pytest.mark.parametrize("seed", range(4))
def test_power_loss_at_any_write_opens_the_last_commit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    coded: CodedSizes | None,
    garbage: bool,
) -> None:
    """Torn at sector granularity, reordered between barriers, at every point of six commits."""
    rng = random.Random(seed)
    path = kit.make(tmp_path / "s.kv", 5, coded=coded)
    steps = [rng.choice((1, 2, 3, 4, 9, 20)) for _ in range(6)]
    commits = [partial(kit.advance, tokens=tokens) for tokens in steps]
    for file in losing_power(path, monkeypatch, rng, commits, garbage=garbage):
        assert garbage or file.recovered == ""


def test_kill_at_any_moment_opens_the_last_commit(tmp_path: Path) -> None:
    """A writer is killed again and again; every sitting goes on where the last commit ended."""
    path, rng = tmp_path / "s.kv", random.Random(0)
    promised = 0
    for sitting in range(40):
        commits = rng.randrange(6) if sitting % 8 else 0
        promised = max(promised, run_and_kill(lambda: write_for_ever(path), commits, rng))
        try:
            file = SessionFile.open(path, writable=True)
        except NotASession:
            assert promised == 0
            continue
        with file:
            assert file.generation >= promised
            assert file.recovered == ""
            kit.check(file)
            promised = file.generation
    assert promised > 60


def write_for_ever(path: Path) -> Iterator[int]:
    """Commit a few tokens at a time and yield each generation once it is durable."""
    if path.exists():
        file = SessionFile.open(path, writable=True)
    else:
        file = SessionFile.create(path, kit.IDENTITY, kit.SMALL)
    while True:
        kit.advance(file, random.choice((1, 3, 6, 18)))
        yield file.generation


def run_and_kill(work: Callable[[], Iterator[int]], commits: int, rng: random.Random) -> int:
    """Run `work` in a child for so many commits and a moment more, then kill -9.

    Flushes are left out: a killed process loses nothing that it has handed to the kernel.

    Returns:
        The last generation that the child has reported, or 0.
    """
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.fdatasync = os.fsync = lambda fd: None
        with contextlib.suppress(BaseException):
            for generation in work():
                os.write(write_end, generation.to_bytes(8, "little"))
        os._exit(1)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        last = pipe.read(8 * commits)[-8:]
        time.sleep(rng.uniform(0, 0.003))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), "the writer failed by itself"
        last = pipe.read()[-8:] or last
    return int.from_bytes(last, "little")
