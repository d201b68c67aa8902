"""Which model a run uses, and in what form: the one named, or the one a session was made with.

Owns the choice and the loading. Knows options and what a session remembers; opens no session.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from engine.config import CODEC_NAMES
from engine.errors import IdentityMismatch
from engine.model.load import LoadedModel, load_model
from engine.session import SessionFile
from kvcli.models import resolve
from kvcli.notes import Notes
from kvcli.options import RunOptions
from kvcli.output import Output


def load_chosen(options: RunOptions, output: Output, name: str) -> tuple[LoadedModel, float]:
    """Load a model as the options want it; gives the seconds that took, too.

    Raises:
        KVError: There is no such model, or it is refused.
    """
    started = time.monotonic()
    source = resolve(name, offline=options.offline, on_status=output.status)
    model = load_model(
        Path(source) if Path(source).exists() else source,
        device=options.device,
        offline=options.offline,
        page_tokens=options.page_tokens,
    )
    if options.window is not None:
        model = replace(model, window=min(model.window, options.window))
    for warning in model.warnings:
        output.detail(warning)
    return model, round(time.monotonic() - started, 3)


def lasting_name(name: str) -> str:
    """What finds the model again from another folder."""
    path = Path(name).expanduser()
    return str(path.resolve()) if path.exists() else name


def same_model(options: RunOptions, notes: Notes) -> str:
    """The session's own model, unless another one was named on the command line."""
    return options.model if "model" in options.typed else notes.model


def same_pages(options: RunOptions, file: SessionFile) -> RunOptions:
    """The session's own page size and codec.

    Raises:
        IdentityMismatch: Others were named on the command line.
    """
    codec = file.identity.codec
    if "kv_dtype" in options.typed and options.kv_codecs.disk != codec:
        raise IdentityMismatch(
            f"the session's pages are coded as {codec}, this run's as {options.kv_codecs.disk}",
            "Leave --kv-dtype out. A raw session is coded by kvcli compact --kv-dtype; to code "
            "anew, compute it again: kvcli resume --rebuild --kv-dtype",
        )
    if codec in CODEC_NAMES:  # else the engine says that it does not know it
        options = replace(options, kv_dtype=codec)
    stored = file.geometry.page_tokens
    if "page_tokens" in options.typed and options.page_tokens != stored:
        raise IdentityMismatch(
            f"the session's page_tokens is {stored}, this run's is {options.page_tokens}",
            "Leave --page-tokens out, or compute it again: kvcli resume --rebuild",
        )
    return replace(options, page_tokens=stored)
