"""An engine and its session file, as the options and the mode of a run want them.

Owns the way from options to the engine's settings. Computes nothing; what it opens is closed by the
stack it is given.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

from engine.assembly import new_session, plan_for
from engine.config import EngineConfig
from engine.engine import Engine
from engine.lookup import ProbeWay
from engine.model.load import LoadedModel
from engine.session import SessionFile, extents_bytes
from engine.telemetry import Telemetry
from kvcli.fetch import cache_dir
from kvcli.known_disks import suit_disk
from kvcli.mode import Mode, Work
from kvcli.options import RunOptions
from kvcli.output import Output


def new_file(
    session: Path | None,
    model: LoadedModel,
    num_tokens: int,
    overwrite: bool,
    stack: ExitStack,
    codec: str,
) -> SessionFile | None:
    """Start the session file of a run over documents, if there is to be one.

    Args:
        session: Its name; None: nothing is kept.
        model: Whose KV.
        num_tokens: That it must have room for.
        overwrite: Whether a session may be replaced.
        stack: Closes the file.
        codec: How its pages are coded.

    Raises:
        KVError: The name is taken, or the disk has no room for so many tokens.
    """
    if session is None:
        return None
    file = new_session(session, model, codec, overwrite=overwrite)
    stack.callback(file.close)
    file.free_space_check(extents_bytes(model.geometry, file.coded, num_tokens))
    return file


def make_engine(
    options: RunOptions,
    model: LoadedModel,
    telemetry: Telemetry,
    output: Output,
    *,
    file: SessionFile | None,
    stack: ExitStack,
    num_tokens: int,
    mode: Mode,
    work: Work,
) -> Engine:
    """Make the engine of a run.

    Args:
        options: Budgets and policies.
        model: A loaded model.
        telemetry: Where work is booked.
        output: Where it is said what a probe of the disk found.
        file: The session file, if there is one.
        stack: Closes the engine.
        num_tokens: Tokens the longest sequence may grow to.
        mode: How earlier tokens are attended to.
        work: What will be done.

    Raises:
        OverBudget: The budgets do not hold one segment; nothing was allocated.
        IdentityMismatch: The file belongs to another model or other pages.
        StorageError: Pages must go to disk, and there is no room for them.
    """
    spill = cache_dir() / "spill"
    with suppress(OSError):  # it is missed only by a run that spills, and then by name
        spill.mkdir(parents=True, exist_ok=True)
    config = EngineConfig(
        ram_bytes=options.ram_bytes,
        device_bytes=mode.device_bytes(model.geometry, options.vram),
        evict=options.evict,
        prefetch=mode.prefetch(options),
        pager=options.pager,
        kv_codecs=options.kv_codecs,
        sketch=mode is Mode.FOCUS and options.lookup != ProbeWay.SCAN.value,
        spill_folder=spill,
    )
    fork_tokens = mode.fork_tokens(options.max_tokens, work)
    plan = plan_for(model, config, num_tokens=num_tokens, file=file, fork_tokens=fork_tokens)
    if file is not None or plan.needs_disk:
        folder = spill if file is None else file.path.resolve().parent
        config = suit_disk(config, model.geometry, plan, num_tokens, folder, output.status)
    engine = Engine(
        model, config, telemetry, num_tokens=num_tokens, file=file, fork_tokens=fork_tokens
    )
    stack.callback(engine.close)
    return engine
