"""What it costs to keep a session: checking all of it, forking it, going on with it.

- verify: the rate of `engine.session.verify`, and as its floor of bare reads of the same file by as
  many threads in reads as long, alternating; both go around the page cache where the file system
  lets them;
- fork: bytes and seconds of a fork, which is removed again;
- first token: from the start of `kvcli ask --session` to the first token, in a process of its own,
  with the page cache dropped before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.session import SessionFile, aligned_buffer, describe, fork_session, verify
from engine.session.block_file import Access, BlockFile
from engine.session.verification import READ_BYTES, READERS
from kvcli.commands.fork import shareable_segments
from tests.bench.harness import ROOT, alternate, report


def checked(session: Path) -> dict[str, float]:
    """Verify it."""
    started = time.monotonic()
    found = verify(session, lambda done, total: None)
    seconds = time.monotonic() - started
    assert not found.faults, found.faults[:3]
    return {"GB": found.num_bytes / 1e9, "s": seconds, "GB/s": found.num_bytes / 1e9 / seconds}


def bare(session: Path) -> dict[str, float]:
    """Read as many bytes in the same way and look at none of them."""
    num_bytes = describe(session).kv_bytes
    file = BlockFile.open(session, Access.READ)

    def read(first: int) -> int:
        buffer, done = aligned_buffer(READ_BYTES), 0
        for offset in range(first, num_bytes, READERS * READ_BYTES):
            done += file.read(buffer, offset - offset % 4096)
        return done

    started = time.monotonic()
    with ThreadPoolExecutor(READERS) as pool:
        done = sum(pool.map(read, range(0, READERS * READ_BYTES, READ_BYTES)))
    seconds = time.monotonic() - started
    file.close()
    return {"GB": done / 1e9, "s": seconds, "GB/s": done / 1e9 / seconds}


def forked(session: Path) -> dict[str, float]:
    """Fork it, and remove the fork."""
    target = session.with_name(f".fork-{os.getpid()}.kv")
    started = time.monotonic()
    with SessionFile.open(session, writable=True) as file:
        fork_session(file, target, num_segments=shareable_segments(file))
    seconds = time.monotonic() - started
    num_bytes = target.stat().st_blocks * 512
    target.unlink()
    return {"s": seconds, "kB": num_bytes / 1e3}


def drop_cache(session: Path) -> None:
    """Have the kernel forget the file."""
    handle = os.open(session, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def asked(session: Path, question: str) -> dict[str, float]:
    """Ask by the command line on a fork, so that the session stays as it is."""
    target = session.with_name(f".ask-{os.getpid()}.kv")
    with SessionFile.open(session, writable=True) as file:
        fork_session(file, target, num_segments=shareable_segments(file))
    drop_cache(session)
    command = [sys.executable, "-m", "kvcli.app", "ask", "--session", str(target), question]
    try:
        started = time.monotonic()
        done = subprocess.run(
            [*command, "--json", "--max-tokens", "1", "--dashboard", "off"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        )  # fmt: skip
        whole = time.monotonic() - started
    finally:
        target.unlink()
    told = json.loads(done.stdout)
    return {
        "s": whole,
        "first token s": told["timings"]["first_token_s"],
        "load s": told["timings"]["load_s"],
        "recomputed": float(told["usage"]["recomputed_tokens"]),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("session", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--question", default="What is this about?")
    options = parser.parse_args()
    session = options.session.resolve()
    summary = describe(session)
    rows = alternate({"verify": lambda: checked(session), "bare": lambda: bare(session)},
                     options.repeats)  # fmt: skip
    rows["verify of bare"] = {"GB/s": rows["verify"]["GB/s"] / rows["bare"]["GB/s"]}
    rows |= alternate({"fork": lambda: forked(session)}, options.repeats)
    rows |= alternate({"ask, cold": lambda: asked(session, options.question)}, options.repeats)
    rows["file of KV"] = {"GB/s": summary.allocated_bytes / summary.kv_bytes}
    report("keeping a session", rows, tokens=summary.tokens, commits=summary.generation)


if __name__ == "__main__":
    main()
