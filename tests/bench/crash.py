"""What becomes of session files that are killed, torn and damaged, in numbers.

- kills: a process that commits is killed by SIGKILL at a random moment, and the file opened again;
- torn: the device loses power at every write and barrier of random commits; what was not flushed
  arrives in sectors, in any choice, or as garbage;
- damage: a random bit is flipped, the file is cut, or two extents of it are swapped or doubled.

Every file is opened and all of it is read. What is counted: how it opened, and how often bytes were
served that no commit has written, which must be never. Small pages, as in the tests.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from engine.errors import KVError, NotASession
from engine.session import SessionFile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fault"))

import session_kit as kit
from session_faults import losing_power
from test_session_crash import run_and_kill, write_for_ever

from tests.bench.harness import report

EXTENT = 4096


def kills(folder: Path, count: int, rng: random.Random) -> Counter[str]:
    """Kill a writer so often; each sitting goes on where the last commit ended."""
    seen: Counter[str] = Counter()
    path, promised = folder / "kills.kv", 0
    for sitting in range(count):
        if sitting % 50 == 0:  # the birth of a file is a moment, too
            path.unlink(missing_ok=True)
            promised = 0
        commits = rng.randrange(6)
        promised = max(promised, run_and_kill(lambda: write_for_ever(path), commits, rng))
        try:
            file = SessionFile.open(path, writable=True)
        except NotASession:
            seen["no file yet, none promised" if not promised else "LOST"] += 1
            continue
        with file:
            seen["opened at the last commit" if file.generation >= promised else "LOST"] += 1
            seen["WRONG"] += not is_right(file)
            promised = file.generation
    return seen


def torn(folder: Path, count: int, rng: random.Random) -> Counter[str]:
    """Lose power so often."""
    seen: Counter[str] = Counter()
    patch = pytest.MonkeyPatch()
    while sum(seen.values()) < count:
        path = folder / "torn.kv"
        path.unlink(missing_ok=True)
        kit.make(path, rng.randrange(1, 9))
        steps = [rng.choice((1, 2, 3, 4, 9, 20)) for _ in range(6)]
        commits = [partial(kit.advance, tokens=tokens) for tokens in steps]
        garbage = rng.random() < 0.5
        for file in losing_power(path, patch, rng, commits, garbage=garbage):  # asserts the rest
            seen["opened, something said" if file.recovered else "opened, nothing to say"] += 1
    return seen


def damage(folder: Path, count: int, rng: random.Random) -> Counter[str]:
    """Damage a copy so often."""
    seen: Counter[str] = Counter()
    whole = kit.make(folder / "whole.kv", 6, 21, 3, 1, 17, 40, geometry=kit.ALIGNED).read_bytes()
    copy = folder / "copy.kv"
    harms: list[Callable[[bytearray, random.Random], str]] = [flip, flip, flip, cut, swap, double]
    for _ in range(count):
        data = bytearray(whole)
        harm = rng.choice(harms)(data, rng)
        copy.write_bytes(data)
        seen[f"{harm}: {outcome(copy)}"] += 1
    return seen


def flip(data: bytearray, rng: random.Random) -> str:
    """Flip one bit."""
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return "bit"


def cut(data: bytearray, rng: random.Random) -> str:
    """Cut the file anywhere."""
    del data[rng.randrange(len(data)) :]
    return "cut"


def swap(data: bytearray, rng: random.Random) -> str:
    """Swap two blocks behind the superblocks."""
    one, other = (rng.randrange(2, len(data) // EXTENT) * EXTENT for _ in range(2))
    first, second = data[one : one + EXTENT], data[other : other + EXTENT]
    data[one : one + EXTENT], data[other : other + EXTENT] = second, first
    return "swapped"


def double(data: bytearray, rng: random.Random) -> str:
    """Write one block over another."""
    one, other = (rng.randrange(2, len(data) // EXTENT) * EXTENT for _ in range(2))
    data[other : other + EXTENT] = data[one : one + EXTENT]
    return "doubled"


def outcome(path: Path) -> str:
    """Open a file and read all of it."""
    try:
        with SessionFile.open(path, writable=False) as file:
            told = "opened, said what" if file.recovered else "opened"
            try:
                return told if is_right(file) else "WRONG"
            except KVError as error:
                return f"{told}, then {type(error).__name__}"
    except KVError as error:
        return f"refused, {type(error).__name__}"


def is_right(file: SessionFile) -> bool:
    """Whether everything that is served is what was committed."""
    try:
        kit.check_served(file)
    except AssertionError:
        return False
    return True


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--torn", type=int, default=1000)
    parser.add_argument("--damage", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, rows = random.Random(options.seed), {}
    folder = Path(tempfile.mkdtemp(prefix="kvcli-crash-"))
    try:
        for name, run in (("kills", kills), ("torn", torn), ("damage", damage)):
            started = time.monotonic()
            seen = run(folder, getattr(options, name), rng)
            for what, times in sorted(seen.items()):
                if times:
                    rows[f"{name}: {what}"] = {"times": float(times)}
            rows[f"{name}: seconds"] = {"times": time.monotonic() - started}
    finally:
        shutil.rmtree(folder)
    report("sessions killed, torn and damaged", rows, seed=options.seed)


if __name__ == "__main__":
    main()
