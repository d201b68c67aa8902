"""`kvcli compact S.kv`: write a session anew without what no commit refers to, and coded if wanted.

Owns the closing word. How it is replaced is `engine.session.copying`'s.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.errors import ConfigError
from engine.session import Recoding, compact_session, describe
from kvcli.byte_progress import ByteProgress
from kvcli.options import RunOptions, parse_codecs
from kvcli.output import Output
from kvcli.sizes import format_size


def run(options: RunOptions, session: Path, kv_dtype: str | None = None) -> None:
    """Compact a session and say what that gave.

    Args:
        options: The shared options.
        session: The file.
        kv_dtype: A codec for its pages; None: they stay as they are.

    Raises:
        KVError: The session is in use or damaged, or the disk has no room for both.
    """
    output = Output(options)
    recoding = None if kv_dtype is None else _recoding(session, parse_codecs(kv_dtype).disk)
    before = _allocated(session)
    with ByteProgress("compacting", options, output) as progress:
        lost = compact_session(session, progress.update, recoding)
    after = _allocated(session)
    for name in lost:
        output.warn(f"{name} was damaged and is left out; it is made again when it is needed")
    if options.json:
        output.json({"session": str(session), "bytes_before": before, "bytes_after": after})
    else:
        output.show(f"{session}: {format_size(before)} before, {format_size(after)} now")


def _recoding(session: Path, codec: str) -> Recoding | None:
    """How a session is coded; None where it is so already.

    Raises:
        ConfigError: It cannot be.
        SessionError: It cannot be read.
    """
    summary = describe(session)
    if summary.identity.codec == codec:
        return None
    if codec == "raw":
        raise ConfigError(
            f"{session}: its pages are coded as {summary.identity.codec}, and what that took "
            "cannot be had back",
            f"Compute them again: kvcli resume --rebuild --kv-dtype raw {session}",
        )
    from engine.tiers.coding import recoding_to

    return recoding_to(codec, summary.geometry)


def _allocated(session: Path) -> int:
    try:
        return os.stat(session).st_blocks * 512
    except OSError:
        return 0  # opening it says better what is wrong
