"""Documents of a session read again: what is still as it was, and what takes the place of the rest.

Owns the comparison and the order of documents. Computes nothing: the session is left as an ingest
that was interrupted behind what it shares with the documents of now.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engine.assembly import require_identity
from engine.config import STEP_TOKENS
from engine.errors import ConfigError
from engine.model.load import LoadedModel
from engine.session import SessionFile, num_same, replace_contents
from kvcli.corpus.spans import Corpus, Document
from kvcli.documents import UNKNOWN_TURN, read_documents
from kvcli.mode import Mode, choose_mode
from kvcli.model_choice import load_chosen, same_model, same_pages
from kvcli.notes import Inputs, Notes
from kvcli.options import RunOptions
from kvcli.output import Output
from kvcli.prompts import Prompt, PromptBuilder


@dataclass(frozen=True, slots=True)
class Update:
    """What came of reading the documents again."""

    options: RunOptions
    """With the session's own page size."""
    loaded: tuple[LoadedModel, float]
    """The model and the seconds that loading it took."""
    has_changed: bool
    tokens: int
    """Of the documents as they are now."""
    same_tokens: int
    """Leading ones that are as they were."""
    turns_lost: int
    """Questions and answers about the documents of before."""


def update_contents(options: RunOptions, session: Path, output: Output) -> Update:
    """Read a session's documents again and make it hold what they are now, durably.

    Args:
        options: The shared options.
        session: The file.
        output: Where skips and warnings are said.

    Raises:
        ConfigError: It does not say where its documents are from, or one is no more.
        NothingReadable: Nothing is left to read.
        SessionError: The file cannot be used, or belongs to another model.
        StorageError: The disk is full; the session is as it was.
    """
    with SessionFile.open(session, writable=True) as file:
        if file.recovered:
            output.warn(f"{session}: {file.recovered}")
        notes = Notes.from_json(file.notes)
        notes.settings.require_same(session)
        inputs = _inputs_of(session, notes)
        corpus = _read_again(options, inputs, output)
        options = same_pages(options, file)
        loaded = load_chosen(options, output, same_model(options, notes))
        model, _ = loaded
        require_identity(file, model)
        prompt = PromptBuilder(model.tokenizer, model.name).documents(in_order(corpus, notes))
        new_ids = np.asarray(prompt.token_ids, dtype=np.uint32)
        same = num_same(file.token_ids[: notes.document_tokens], new_ids)
        is_same = same == len(prompt.token_ids) == notes.document_tokens
        if not is_same:
            _put(file, notes, prompt, corpus, _mode_now(options, notes, prompt, model.window))
        return Update(
            options, loaded, not is_same, len(prompt.token_ids), same,
            turns_lost=0 if is_same else notes.turns,
        )  # fmt: skip


def in_order(corpus: Corpus, notes: Notes) -> Corpus:
    """Documents of before in the order of before, new ones behind them.

    A file that comes first by its name would otherwise push all others to other positions.
    """
    places = {path: place for place, path in enumerate(notes.sources)}

    def place(document: Document) -> int:
        return places.get(document.path, len(places))

    return replace(corpus, documents=tuple(sorted(corpus.documents, key=place)))


def _inputs_of(session: Path, notes: Notes) -> Inputs:
    advice = "Ingest the documents again, into a new session."
    if notes.inputs is None:
        raise ConfigError(f"{session}: it does not say where its documents are from", advice)
    if "-" in notes.inputs.paths:
        raise ConfigError(f"{session}: its documents came from standard input", advice)
    if not Path(notes.inputs.folder).is_dir():
        raise ConfigError(f"{session}: the folder {notes.inputs.folder} is no more", advice)
    return notes.inputs


def _read_again(options: RunOptions, inputs: Inputs, output: Output) -> Corpus:
    stored = {name: getattr(inputs, name) for name in ("include", "exclude", "max_file_size")}
    untyped = {name: value for name, value in stored.items() if name not in options.typed}
    selected = replace(options, **untyped)
    with contextlib.chdir(inputs.folder):  # paths are to be shown as they were
        return read_documents(selected, inputs.paths, output)


def _mode_now(options: RunOptions, notes: Notes, prompt: Prompt, window: int) -> Mode:
    """Focus stays focus, however short the documents have become: their KV is of that kind."""
    if notes.mode == Mode.FOCUS.value and not notes.exact_tokens:
        return Mode.FOCUS
    return choose_mode(options, prompt, UNKNOWN_TURN, window)


def _put(file: SessionFile, notes: Notes, prompt: Prompt, corpus: Corpus, mode: Mode) -> None:
    new_notes = replace(
        notes,
        sources=tuple(document.path for document in in_order(corpus, notes).documents),
        mode=mode.value,
        turns=0,
        document_tokens=len(prompt.token_ids),
        neutral=None,
        sections=(),
        exact_tokens=0,
    )
    was_exact = notes.mode == Mode.EXACT.value or notes.exact_tokens >= notes.document_tokens
    spans: Sequence[dict[str, object]] = prompt.source_map.to_json()
    replace_contents(
        file,
        prompt.token_ids,
        spans,
        new_notes.to_json(),
        step_tokens=STEP_TOKENS,
        keeps_kv=(mode is Mode.EXACT) == was_exact,
    )
