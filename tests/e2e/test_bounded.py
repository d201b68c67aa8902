"""Bounded reading and the probe, against their definitions written out in fp64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine_kit import RESIDENT, SMALL, Budget, new_file, one_thread, open_engine, text, tiny
from tiny_models import make_tiny_model
from torch import Tensor

from engine import sequence as sequence_module
from engine.attention.recorder import QueryRecorder
from engine.config import EngineConfig
from engine.engine import Engine
from engine.model.hook import LayerSpec
from engine.model.load import load_model
from engine.model.rope import Rope
from engine.telemetry import Telemetry
from engine.tiers.past import SINK_TOKENS

__all__ = ["one_thread"]
WINDOW = 96


class BoundedReference:
    """Sinks, local window and the step's own tokens as one short text: the gap is left out."""

    def __init__(self, rope: Rope, first: int) -> None:
        self.rope = rope
        self.first = first
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LayerSpec
    ) -> Tensor:
        if layer in self.keys:
            keys = torch.cat((self.keys[layer], keys), 1)
            values = torch.cat((self.values[layer], values), 1)
        self.keys[layer], self.values[layer] = keys, values
        start = (self.first - WINDOW) // 16 * 16
        if start > SINK_TOKENS:
            seen = torch.tensor([*range(SINK_TOKENS), *range(start, keys.shape[1])])
            keys, values = keys[:, seen], values[:, seen]
        count, own = keys.shape[1], queries.shape[1]
        groups = queries.shape[0] // keys.shape[0]
        q = self._rotate(queries, torch.arange(count - own, count), spec)
        k = self._rotate(keys, torch.arange(count), spec).repeat_interleave(groups, 0)
        scores = q @ k.mT * spec.scaling
        hidden = torch.arange(count) > torch.arange(count - own, count)[:, None]
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        mixed = weights @ values.double().repeat_interleave(groups, 0)
        return mixed.transpose(0, 1).to(queries.dtype)

    def _rotate(self, x: Tensor, positions: Tensor, spec: LayerSpec) -> Tensor:
        angles = positions[:, None].double() * self.rope.sets[spec.rope].inverse.double()
        cos, sin = angles.cos(), angles.sin()
        first, second = x.double().chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def bounded_logits(budget: Budget, ids: list[int], path: Path | None = None) -> list[Tensor]:
    model = tiny()
    file = new_file(path, model) if path else None
    with open_engine(model, budget, file=file) as engine:
        sequence = engine.new_sequence()
        sequence.local_window = WINDOW
        sequence.token_ids += ids
        logits = [engine.compute(sequence)]
        for token in text(5, seed=9):
            sequence.token_ids.append(token)
            logits.append(engine.compute(sequence))
    return logits


@pytest.mark.parametrize("turn", [1 << 15, 256])
@pytest.mark.parametrize("length", [560, 509])
def test_bounded_reading_is_a_short_text_without_the_gap(
    turn: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step's logits equal those of sinks, window and step laid side by side.

    Positions that start anew change nothing, in the middle of reading or of an answer.
    """
    monkeypatch.setattr(sequence_module, "TURN", turn)
    model, ids = tiny(), text(length)
    context = BoundedReference(model.rope, 0)
    expected = []
    with torch.inference_mode():
        steps = [(n, min(n + 128, length)) for n in range(0, length, 128)]
        last = len(steps) - 1
        steps += [(n, n + 1) for n in range(length, length + 5)]
        ids = ids + text(5, seed=9)
        for first, end in steps:
            context.first = first
            out = model.model(
                input_ids=torch.tensor([ids[first:end]]),
                position_ids=torch.arange(first, end)[None],
                use_cache=False, logits_to_keep=1, kv_context=context,
            )  # fmt: skip
            expected.append(out.logits[0, -1])
    actual = bounded_logits(RESIDENT, ids[:length])
    for mine, reference in zip(actual, expected[last:], strict=True):
        assert torch.allclose(mine, reference, atol=2e-4)
        assert reference.std() > 0.1


def test_bounded_reading_does_not_depend_on_residency(tmp_path: Path) -> None:
    ids = text(560)
    resident = bounded_logits(RESIDENT, ids)
    assert all(map(torch.equal, resident, bounded_logits(SMALL, ids)))
    assert all(map(torch.equal, resident, bounded_logits(SMALL, ids, tmp_path / "s.kv")))


def test_a_sequence_longer_than_the_window_is_read_bounded() -> None:
    model = tiny()
    with open_engine(model, num_tokens=2400) as engine:
        sequence = engine.new_sequence()
        sequence.local_window = WINDOW
        sequence.token_ids += text(2300)
        assert len(sequence.token_ids) > model.window
        assert torch.isfinite(engine.compute(sequence)).all()


@pytest.mark.parametrize("budget", [RESIDENT, SMALL], ids=["resident", "small"])
def test_probe_is_the_softmax_over_all_position_free_keys(budget: Budget, tmp_path: Path) -> None:
    """Keys come from the host tier and from disk; the mass is the largest over query tokens."""
    model, ids = tiny(), text(300)
    file = new_file(tmp_path / "s.kv", model)
    keys: list[Tensor] = []

    class KeyKeeper(BoundedReference):
        def attend(
            self, layer: int, queries: Tensor, keys_: Tensor, values: Tensor, spec: LayerSpec
        ) -> Tensor:
            if layer == 1:
                keys.append(keys_.clone())
            return super().attend(layer, queries, keys_, values, spec)

    context = KeyKeeper(model.rope, 0)
    with torch.inference_mode():
        for first in range(0, 300, 128):
            end = min(first + 128, 300)
            context.first = first
            model.model(
                input_ids=torch.tensor([ids[first:end]]),
                position_ids=torch.arange(first, end)[None],
                use_cache=False, logits_to_keep=1, kv_context=context,
            )  # fmt: skip
    with open_engine(model, budget, file=file) as engine:
        sequence = engine.new_sequence()
        sequence.local_window = WINDOW
        sequence.token_ids += ids
        engine.compute(sequence)
        fork = engine.fork(sequence)
        fork.token_ids += text(7, seed=3)
        recorder = QueryRecorder([1])
        engine.compute(fork, recorder=recorder)
        engine.drop(fork)
        mass = engine.probe(sequence, 300, recorder)
        if budget is SMALL:
            assert engine.telemetry.sample().read_bytes > 0
    every = torch.cat(keys, 1).repeat_interleave(2, 0)
    scores = recorder.queries[1].float() @ every.mT * model.layers[1].scaling
    weights = torch.nn.functional.pad(scores.softmax(-1), (0, -300 % 16))
    expected = weights.unflatten(-1, (-1, 16)).sum(-1).amax(1)
    assert mass.shape == (1, 4, 19)
    assert torch.allclose(mass[0], expected, atol=1e-4)
    assert expected.max() > 0.05


def test_pages_larger_than_the_sinks_are_read_bounded_too(tmp_path: Path) -> None:
    """With --page-tokens 256 the sinks are part of a page: focus died on an empty list of pages."""
    folder = make_tiny_model(tmp_path / "tiny", "llama")
    model = load_model(folder, page_tokens=256, segment_tokens=512, self_check=False)
    config = EngineConfig(ram_bytes=1 << 30, step_tokens=512, part_tokens=512)
    engine = Engine(model, config, Telemetry(), num_tokens=1600)
    sequence = engine.new_sequence()
    sequence.local_window = 512
    sequence.token_ids += text(1400)
    assert torch.isfinite(engine.compute(sequence)).all()
    engine.check_integrity()
    engine.close()
