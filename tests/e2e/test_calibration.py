"""Layers that look things up: found once for each model, kept with it, fixed in a session."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_kit import Kvcli
from engine_kit import tiny
from torch import Tensor

from engine.engine import Engine
from engine.model.load import LoadedModel
from engine.sequence import Sequence
from engine.session import SessionFile
from kvcli import calibration
from kvcli.calibration import calibrated, with_known_layers
from kvcli.calibration_text import PASSAGES
from kvcli.notes import Notes
from kvcli.prompts import NEUTRAL_QUESTIONS, PromptBuilder

PLENTY = 1 << 30


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVCLI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def roomy(window: int = 1 << 15) -> LoadedModel:
    """The tiny model, whose tokenizer knows few words, so that the passages are long."""
    return replace(tiny(), window=window)


def builder_of(model: LoadedModel) -> PromptBuilder:
    return PromptBuilder(model.tokenizer, model.name)


def model_that_looks_with(layer: int, monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """A model of which one layer alone puts its mass on the page that answers."""
    model = roomy()
    size = model.geometry.page_tokens
    _, places = calibration._text(builder_of(model))
    pages = {q: first // size for (first, _), (_, q) in zip(places, PASSAGES, strict=True)}

    def mass(engine: Engine, _: PromptBuilder, sequence: Sequence, question: str) -> Tensor:
        layers, heads = len(engine.model.layers), engine.model.num_heads
        mass = torch.full(
            (layers, heads, engine.model.geometry.num_pages(sequence.num_tokens)), 0.1
        )
        if question not in NEUTRAL_QUESTIONS:
            mass[:, :, 0] = 0.2
            mass[layer, :, pages[question]] = 0.9
        return mass

    monkeypatch.setattr(calibration, "_mass", mass)
    return model


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_the_layer_that_finds_the_answers_is_found(
    layer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_that_looks_with(layer, monkeypatch)
    told: list[str] = []
    found = calibrated(model, builder_of(model), PLENTY, told.append)
    assert found.lookup_layers == (layer,)
    assert len(told) == 1
    assert with_known_layers(model).lookup_layers == (layer,)


def test_a_model_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_that_looks_with(2, monkeypatch)
    calibrated(model, builder_of(model), PLENTY, lambda _: None)
    monkeypatch.setattr(calibration, "_try", None)
    told: list[str] = []
    again = calibrated(model, builder_of(model), PLENTY, told.append)
    assert again.lookup_layers == (2,)
    assert told == []


@pytest.mark.parametrize(
    "change", [{"edition": 0}, {"layers": [7]}, {"layers": []}, {"layers": "all"}, None]
)
def test_what_is_kept_and_no_use_is_found_again(
    change: dict[str, object] | None, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of an older edition, of layers that the model does not have, or cut off (None)."""
    model = model_that_looks_with(2, monkeypatch)
    calibrated(model, builder_of(model), PLENTY, lambda _: None)
    (kept,) = (cache / calibration.FOLDER).iterdir()
    text = kept.read_text()
    kept.write_text(text[:9] if change is None else json.dumps(json.loads(text) | change))
    assert with_known_layers(model) is model
    assert calibrated(model, builder_of(model), PLENTY, lambda _: None).lookup_layers == (2,)
    assert kept.read_text() == text


def test_a_model_that_has_not_learned_to_look_keeps_the_guess(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random weights find the right page no more often than chance."""
    model = roomy()
    found = calibrated(model, builder_of(model), PLENTY, lambda _: None)
    assert found.lookup_layers == model.lookup_layers
    (kept,) = (cache / calibration.FOLDER).iterdir()
    assert json.loads(kept.read_text())["rank"] < calibration.LEAST_RANK


@pytest.mark.parametrize(("window", "ram"), [(512, PLENTY), (1 << 15, 10_000)])
def test_without_room_for_a_trial_the_guess_stands(window: int, ram: int, cache: Path) -> None:
    model = roomy(window)
    assert calibrated(model, builder_of(model), ram, lambda _: None) is model
    assert not (cache / calibration.FOLDER).exists()


def test_a_session_goes_on_with_the_layers_it_was_read_with(
    kvcli: Kvcli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The neutral mass and the sketch in it are of those layers, whatever is found later."""
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("The ferry leaves when the lamp is lit. " * 40)

    def found(layer: int) -> None:
        monkeypatch.setattr(
            "kvcli.opening.calibrated",
            lambda model, *_: replace(model, lookup_layers=(layer,)),
        )

    found(0)
    assert kvcli("ingest", "a.txt", "-o", "s.kv", "--attention", "focus").code == 0
    found(2)
    asked, probe = [], Engine.probe

    def spy(engine: Engine, *arguments: Any) -> Tensor:
        asked.append(engine.model.lookup_layers)
        return probe(engine, *arguments)

    monkeypatch.setattr(Engine, "probe", spy)
    assert kvcli("resume", "s.kv", "When does the ferry leave?", "--max-tokens", 4).code == 0
    assert set(asked) == {(0,)}
    with SessionFile.open(Path("s.kv"), writable=False) as file:
        assert Notes.from_json(file.notes).lookup_layers == (0,)
