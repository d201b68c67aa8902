"""Finding a model's layers that look things up: once for each model, on a text of known answers.

Owns the trial and the file that keeps what it found. A model is tried only if it is to answer from
more than its window; until then, and where there is no room for a trial, the guess by depth stands.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from engine.attention.probe import probe_scores
from engine.attention.recorder import QueryRecorder
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import OverBudget
from engine.model.load import LoadedModel
from engine.model.retrieval import without_sliding
from engine.sequence import Sequence
from engine.telemetry import Telemetry
from kvcli.calibration_text import PASSAGES
from kvcli.fetch import cache_dir
from kvcli.prompts import NEUTRAL_QUESTIONS, PromptBuilder

FOLDER = "lookup-layers"
"""In the cache directory, with one file for each model."""

EDITION = 1
"""Counted up when text or trial change, so that models are tried again."""

QUESTION_ROOM = 256
LEAST_RANK = 0.3
"""Mean reciprocal rank below which no layers were found: the model has not learned to look."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of trying a model."""

    layers: tuple[int, ...]
    """The best neighbouring ones, as many as the guess has."""
    rank: float
    """Mean reciprocal rank of the right page by them."""
    guess_rank: float
    """The same by the layers that depth alone would choose."""


def with_known_layers(model: LoadedModel) -> LoadedModel:
    """Give a model the layers that an earlier trial found, if there was one."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(_file(model).read_text())
        layers = tuple(int(layer) for layer in known["layers"])
        if known["edition"] == EDITION and layers and set(layers) <= set(range(len(model.layers))):
            return replace(model, lookup_layers=layers)
    return model


def calibrated(
    model: LoadedModel, builder: PromptBuilder, ram_bytes: int, on_status: Callable[[str], None]
) -> LoadedModel:
    """Give a model the layers that look things up, tried now if they never were.

    Args:
        model: A loaded model; what is found is kept by its weights.
        builder: Its prompts.
        ram_bytes: Budget of the trial, bytes; with less than it takes the guess stands.
        on_status: Is told before the trial, which takes some seconds.
    """
    if (known := with_known_layers(model)) is not model:
        return known
    sequence_ids, passages = _text(builder)
    num_tokens = len(sequence_ids) + QUESTION_ROOM
    if num_tokens > model.window:
        return model
    try:
        config = EngineConfig(ram_bytes=ram_bytes)
        engine = Engine(model, config, Telemetry(), num_tokens=num_tokens)
    except OverBudget:
        return model
    try:
        on_status("trying which layers of the model look things up (once)")
        trial = _try(engine, builder, sequence_ids, passages)
    except OverBudget:
        return model
    finally:
        engine.close()
    found = trial.layers if trial.rank >= LEAST_RANK else model.lookup_layers
    _keep(model, replace(trial, layers=found))
    return replace(model, lookup_layers=found)


def _file(model: LoadedModel) -> Path:
    return cache_dir() / FOLDER / f"{model.weights_fingerprint}.json"


def _keep(model: LoadedModel, trial: Trial) -> None:
    """Write down what was found; a cache that cannot be written is no matter."""
    path = _file(model)
    fields = {
        "edition": EDITION, "model": model.name, "layers": trial.layers,
        "rank": round(trial.rank, 4), "guess_rank": round(trial.guess_rank, 4),
    }  # fmt: skip
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(fields))
        partial.replace(path)


# -- the trial -------------------------------------------------------------------------------------


def _text(builder: PromptBuilder) -> tuple[list[int], list[tuple[int, int]]]:
    """The passages as token ids behind the head of a first turn, and where each stands."""
    ids, places = list(builder.scaffolding.head), []
    for tokens in builder.encode_content(f"{passage}\n\n" for passage, _ in PASSAGES):
        places.append((len(ids), len(ids) + len(tokens)))
        ids += tokens
    return ids, places


def _try(
    engine: Engine, builder: PromptBuilder, ids: list[int], passages: list[tuple[int, int]]
) -> Trial:
    sequence = engine.new_sequence()
    sequence.token_ids += ids
    engine.compute(sequence)
    neutrals = [_mass(engine, builder, sequence, question) for question in NEUTRAL_QUESTIONS]
    neutral = torch.stack(neutrals).amax(dim=0)
    bands, guess = _bands(engine.model), engine.model.lookup_layers
    size, ranks = engine.model.geometry.page_tokens, []
    for (first, end), (_, question) in zip(passages, PASSAGES, strict=True):
        mass = _mass(engine, builder, sequence, question)
        right = first // size, -(-end // size)
        pages = [probe_scores(mass[list(band)], neutral[list(band)]) for band in bands]
        ranks.append([_rank(scores, *right) for scores in pages])
    means = torch.tensor(ranks).mean(dim=0)
    best = int(means.argmax())
    guessed = float(means[bands.index(guess)]) if guess in bands else 0.0
    return Trial(bands[best], float(means[best]), guessed)


def _bands(model: LoadedModel) -> list[tuple[int, ...]]:
    """Every run of neighbouring layers that is as long as the guess, by the first of them."""
    layers = without_sliding(model.layers, range(len(model.layers)))
    count = len(model.lookup_layers)
    return [layers[first : first + count] for first in range(len(layers) - count + 1)]


def _mass(engine: Engine, builder: PromptBuilder, sequence: Sequence, question: str) -> Tensor:
    """Softmax mass of every page in every layer and head, `[layers, num_heads, num_pages]`."""
    fork = engine.fork(sequence)
    recorder = QueryRecorder(range(len(engine.model.layers)))
    try:
        fork.token_ids += builder.first_question(question)
        engine.compute(fork, recorder=recorder)
    finally:
        engine.drop(fork)
    return engine.probe(sequence, sequence.num_tokens, recorder)


def _rank(scores: Tensor, first_page: int, end_page: int) -> float:
    """Reciprocal rank of the best right page, `scores` `[num_pages]`."""
    best = scores[first_page:end_page].max()
    return 1.0 / (1 + int((scores > best).sum())) if float(best) > 0.0 else 0.0
