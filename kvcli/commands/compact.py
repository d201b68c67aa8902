"""`kvcli compact S.kv`: write a session anew without what no commit refers to any more.

Owns the closing word. How it is replaced is `engine.session.copying`'s.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.session import compact_session
from kvcli.byte_progress import ByteProgress
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.sizes import format_size


def run(options: RunOptions, session: Path) -> None:
    """Compact a session and say what that gave.

    Raises:
        KVError: The session is in use or damaged, or the disk has no room for both.
    """
    output = Output(options)
    before = _allocated(session)
    with ByteProgress("compacting", options, output) as progress:
        lost = compact_session(session, progress.update)
    after = _allocated(session)
    for name in lost:
        output.warn(f"{name} was damaged and is left out; it is made again when it is needed")
    if options.json:
        output.json({"session": str(session), "bytes_before": before, "bytes_after": after})
    else:
        output.show(f"{session}: {format_size(before)} before, {format_size(after)} now")


def _allocated(session: Path) -> int:
    try:
        return os.stat(session).st_blocks * 512
    except OSError:
        return 0  # opening it says better what is wrong
