"""A session for another model, dtype or page size: its token ids are kept, its KV is not.

Owns what may change and what must be the same for the ids to mean the same. Computes nothing: the
session is left as an ingest that has just begun.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.assembly import identity_of
from engine.codecs import CODECS
from engine.errors import IdentityMismatch
from engine.model.load import LoadedModel
from engine.session import SessionFile, restart_session
from kvcli.calibration import calibrated
from kvcli.documents import UNKNOWN_TURN
from kvcli.ingest_settings import IngestSettings
from kvcli.mode import Mode
from kvcli.model_choice import lasting_name, load_chosen, same_model
from kvcli.notes import Notes
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.prompts import PromptBuilder


def rebuild_contents(
    options: RunOptions, session: Path, output: Output
) -> tuple[RunOptions, tuple[LoadedModel, float]]:
    """Give up a session's KV, durably, and make the session this run's.

    Args:
        options: Its model, device and page size count; what was not named is the session's.
        session: The file; nobody else may use it.
        output: Where it is said what is given up.

    Returns:
        Options with what the session says, and the model with the seconds that loading it took.

    Raises:
        IdentityMismatch: Its ids mean something else to this model.
        BaseNeeded: Forks have pages from it.
        SessionError: The file cannot be used.
        StorageError: The disk is full; the session is as it was.
    """
    with SessionFile.open(session, writable=True) as file:
        notes = Notes.from_json(file.notes)
        if "page_tokens" not in options.typed:
            options = replace(options, page_tokens=file.geometry.page_tokens)
        name = same_model(options, notes)
        loaded = load_chosen(options, output, name)
        model, seconds = loaded
        _require_same_ids(file, model)
        mode = Mode(notes.mode)
        if len(file.token_ids) + UNKNOWN_TURN.total > model.window:
            mode = Mode.FOCUS
        if mode is Mode.FOCUS:
            builder = PromptBuilder(model.tokenizer, model.name)
            model = calibrated(model, builder, options.ram_bytes, output.status)
        new_notes = replace(
            notes, model=lasting_name(name), mode=mode.value, neutral=None, sections=(),
            lookup_layers=model.lookup_layers, exact_tokens=0, settings=IngestSettings.of_now(),
        )  # fmt: skip
        given_up = file.kv_tokens
        if "kv_dtype" not in options.typed:
            options = replace(options, kv_dtype=file.identity.codec)
        codec = options.kv_codecs.disk
        coded = CODECS[codec].sizes(model.geometry)
        restart_session(file, identity_of(model, codec), model.geometry, new_notes.to_json(), coded)
    output.status(f"the KV of {given_up:,} tokens is given up and computed again")
    return options, (model, seconds)


def _require_same_ids(file: SessionFile, model: LoadedModel) -> None:
    stored, wanted = file.identity, identity_of(model)
    for field in ("tokenizer", "template"):
        if getattr(stored, field) != getattr(wanted, field):
            raise IdentityMismatch(
                f"the session's {field} is {getattr(stored, field)!r}, this run's is "
                f"{getattr(wanted, field)!r}, so its token ids mean something else",
                "Ingest the documents again, into a new session.",
            )
