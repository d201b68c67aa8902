"""Layers on several devices: each layer's pages lie on its device, and the answers are the same.

A second name of the CPU stands for a second device, with copies of its own that are done late.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from engine_kit import (
    PAGE,
    RESIDENT,
    SMALL,
    SMALL_DEVICE,
    Budget,
    listen,
    new_file,
    open_engine,
    text,
    tiny,
)
from late_copies import LateCopies

from engine import assembly
from engine.attention.recorder import QueryRecorder
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.lookup import ProbeWay
from engine.model import load
from engine.model.checkpoint import Placement
from engine.model.load import LoadedModel, load_model

ONE, TWO = torch.device("cpu"), torch.device("cpu", 0)
BUDGETS = {"device": SMALL_DEVICE, "ram": SMALL}
PROMPT, ANSWER = 400, 6
Streams = dict[torch.device, tuple[LateCopies, LateCopies]]


def spread(architecture: str) -> LoadedModel:
    """A tiny model of three layers, the second on another device."""
    return replace(tiny(architecture, "bfloat16"), layer_devices=(ONE, TWO, ONE))


def late(monkeypatch: pytest.MonkeyPatch) -> Streams:
    """Have the next engine copy late; gives the copies of each device."""
    made: Streams = {}

    def of(device: torch.device) -> tuple[LateCopies, LateCopies]:
        assert device not in made, "layers of a device share what it has"
        made[device] = LateCopies(), LateCopies()
        return made[device]

    monkeypatch.setattr(assembly, "copy_streams", of)
    return made


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_pages_move_to_the_device_of_their_layer(
    architecture: str, budget: Budget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_engine(tiny(architecture, "bfloat16"), RESIDENT) as engine:
        wanted = listen(engine, engine.new_sequence(), text(PROMPT), ANSWER)
    model, streams = spread(architecture), late(monkeypatch)
    with open_engine(model, budget, file=new_file(tmp_path / "s.kv", model)) as engine:
        heard = listen(engine, engine.new_sequence(), text(PROMPT), ANSWER)
    assert heard.same_bits(wanted)
    assert set(streams) == {ONE, TWO}
    assert all(up.queued > 0 for up, _ in streams.values())
    assert all(down.done == down.queued > 0 for _, down in streams.values())


def test_a_look_up_reads_keys_on_the_device_of_their_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masses = []
    for model in (tiny("llama", "bfloat16"), spread("llama")):
        file = new_file(tmp_path / f"{len(masses)}.kv", model)
        with open_engine(model, SMALL, file=file) as engine:
            sequence = engine.new_sequence()
            listen(engine, sequence, text(PROMPT), 0)
            recorder = QueryRecorder(model.lookup_layers)
            fork = engine.fork(sequence)
            fork.token_ids += text(20, seed=2)
            engine.compute(fork, recorder=recorder)
            engine.drop(fork)
            masses.append(engine.probe(sequence, PROMPT, recorder, ProbeWay.SCAN))
        late(monkeypatch)
    assert torch.equal(*masses) and masses[0].sum() > 0


def test_room_for_pages_is_what_the_fullest_device_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device with one of four layers takes a quarter of a page's bytes."""
    free = {ONE: 3000, TWO: 500}
    monkeypatch.setattr(assembly, "free_device_bytes", free.__getitem__)
    monkeypatch.setattr(assembly, "DEVICE_SHARE", 0.5)
    assert assembly.device_room((ONE, ONE, ONE, TWO)) == min(1500 * 4 // 3, 250 * 4)
    assert assembly.device_room((ONE, ONE)) == 1500


def test_unified_memory_is_for_one_device() -> None:
    model, config = spread("llama"), EngineConfig(ram_bytes=1 << 20, pager="unified")
    model = replace(model, device=torch.device("cuda", 0))
    plan = SimpleNamespace(host_pages=4)
    with pytest.raises(ConfigError, match="several"):
        assembly._host_tier(model, config, plan)


@pytest.mark.gpu
def test_two_gpus_say_what_one_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    from tiny_models import make_tiny_model

    path = make_tiny_model(tmp_path / "llama", "llama", dtype="bfloat16")
    rest = ["model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"]
    places = dict.fromkeys(rest, "cuda:0")
    places |= {f"model.layers.{layer}": f"cuda:{layer % 2}" for layer in range(3)}
    heard = []
    for device_map in (places, {"": "cuda:0"}):
        placement = Placement(device_map)
        monkeypatch.setattr(load, "place_weights", lambda *_, _p=placement, **__: _p)
        model = load_model(path, page_tokens=PAGE, segment_tokens=4 * PAGE)
        assert len(set(model.layer_devices)) == len(set(device_map.values()))
        with open_engine(model, SMALL) as engine:
            heard.append(listen(engine, engine.new_sequence(), text(PROMPT), ANSWER))
    assert heard[0].same_bits(heard[1])
