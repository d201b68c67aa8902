"""`kvcli export` and `kvcli import`: a session as one file that needs no other, and back.

Owns the closing words of both. Every page is checked on the way, in either direction.
"""

from __future__ import annotations

from pathlib import Path

from engine.session import SessionFile, copy_session
from kvcli.byte_progress import ByteProgress
from kvcli.models import ModelState, list_models
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.recent_sessions import remember_session
from kvcli.sizes import format_size


def run(options: RunOptions, session: Path, *, target: Path) -> None:
    """Write everything a session holds into another file.

    Raises:
        KVError: The session is damaged, the target is taken, or the disk is full.
    """
    output = Output(options)
    _copy(options, output, session, target, "exporting")
    output.status("whoever can read this file can read the documents in it")


def bring_in(options: RunOptions, file: Path, *, target: Path) -> None:
    """Take in a session that was exported, and say what it needs to be used.

    Raises:
        KVError: The file is damaged, the target is taken, or the disk is full.
    """
    output = Output(options)
    _copy(options, output, file, target, "importing")
    remember_session(target)
    with SessionFile.open(target, writable=False) as copy:
        model = str(copy.notes.get("model", copy.identity.model))
    entries = [entry for entry in list_models() if entry.name == model]
    is_here = Path(model).exists() or any(e.state is ModelState.CACHED for e in entries)
    if not is_here:
        output.warn(f"it was made with the model {model}, which is not at hand; see kvcli models")
    output.status(f'ask with: kvcli resume {target} "..."')


def _copy(options: RunOptions, output: Output, source: Path, target: Path, what: str) -> None:
    with (
        SessionFile.open(source, writable=False) as file,
        ByteProgress(what, options, output) as progress,
    ):
        if file.recovered:
            output.warn(f"{source}: {file.recovered}")
        lost = copy_session(file, target, progress.update)
        tokens, pages = len(file.token_ids), file.geometry.num_pages(file.kv_tokens)
    for name in lost:
        output.warn(f"{name} was damaged and is left out; it is made again when it is needed")
    size = target.stat().st_size
    if options.json:
        output.json({"session": str(target), "tokens": tokens, "pages": pages, "bytes": size})
    else:
        output.show(f"{target}: {tokens:,} tokens, {pages:,} pages, {format_size(size)}")
