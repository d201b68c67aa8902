"""A device with memory of its own: pages are copied up and down beside compute, none too late.

No CUDA device is needed: the copies of `late_copies` are done as late as the order between them and
compute allows, so that one that nobody waited for gives other bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
import torch
from engine_kit import (
    RESIDENT,
    SMALL,
    SMALL_DEVICE,
    SMALLEST,
    Budget,
    Heard,
    listen,
    new_file,
    open_engine,
    text,
    tiny,
)
from late_copies import LateCopies
from torch import Tensor

from engine import assembly
from engine.attention.recorder import QueryRecorder
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.lookup import ProbeWay
from engine.memory.budget import MemoryPlan
from engine.model.load import LoadedModel
from engine.tiers.host import HostTier
from engine.tiers.managed import ManagedMemory

PROMPT, ANSWER = 600, 12
BUDGETS = {"device": SMALL_DEVICE, "ram": SMALL, "one page": SMALLEST}


def late(monkeypatch: pytest.MonkeyPatch) -> tuple[LateCopies, LateCopies]:
    """Have engines made from now on copy late; gives the streams up and down."""
    streams = LateCopies(), LateCopies()
    monkeypatch.setattr(assembly, "copy_streams", lambda _: streams)
    return streams


@cache
def expected(architecture: str) -> Heard:
    """What the engine says with everything in the device tier, copied at once."""
    with open_engine(tiny(architecture, "bfloat16")) as engine:
        return listen(engine, engine.new_sequence(), text(PROMPT), ANSWER)


@pytest.mark.parametrize("kept", [False, True], ids=["no file", "session"])
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_copies_done_late_give_the_same_bits(
    architecture: str, budget: Budget, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, wanted = tiny(architecture, "bfloat16"), expected(architecture)
    up, down = late(monkeypatch)
    file = new_file(tmp_path / "s.kv", model) if kept else None
    with open_engine(model, budget, file=file) as engine:
        sequence = engine.new_sequence()
        heard = listen(engine, sequence, text(PROMPT), ANSWER)
        engine.commit(sequence)
        assert up.queued > 100 and down.queued > 100
        assert down.done == down.queued, "a step ends when what it stored lies at rest"
    assert heard.same_bits(wanted)


@dataclass
class Shared:
    """Memory of which both sides have a view."""

    in_ram: Tensor
    moved: list[tuple[int, int]] = field(default_factory=list)

    @property
    def on_device(self) -> Tensor:
        return self.in_ram

    def send_up(self, address: int, num_bytes: int, stream: int) -> None:
        offset = address - self.in_ram.data_ptr()
        assert offset >= 0 and offset + num_bytes <= self.in_ram.nbytes
        self.moved.append((offset, num_bytes))


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_pages_in_managed_memory_are_read_where_they_lie(
    budget: Budget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not copied, only moved ahead; what comes from disk still is."""
    model, wanted = tiny("llama", "bfloat16"), expected("llama")
    made: list[Shared] = []

    def host_tier(model: LoadedModel, config: EngineConfig, plan: MemoryPlan) -> HostTier:
        num_bytes = plan.host_pages * model.geometry.page_bytes
        made.append(Shared(torch.empty(num_bytes, dtype=torch.uint8)))
        return HostTier(model.geometry, plan.host_pages, pinned=False, shared=made[0])

    up, _ = late(monkeypatch)
    monkeypatch.setattr(assembly, "_host_tier", host_tier)
    with open_engine(model, budget, file=new_file(tmp_path / "s.kv", model)) as engine:
        heard = listen(engine, engine.new_sequence(), text(PROMPT), ANSWER)
        reads_disk = engine.telemetry.sample().read_bytes > 0
    assert heard.same_bits(wanted)
    sizes = {num_bytes for _, num_bytes in made[0].moved}
    assert sizes == {model.geometry.page_slice_bytes}
    assert (up.queued > 0) is reads_disk


def test_managed_memory_without_a_driver_is_refused_in_one_line() -> None:
    """On a machine without bindings or without a driver: no traceback, and what to do instead."""
    with pytest.raises(ConfigError) as refused:
        ManagedMemory(1 << 20, torch.device("cuda", 0))
    assert "unified memory" in refused.value.message and "--pager" in refused.value.advice


def looked_up(budget: Budget, path: Path) -> tuple[Tensor, list[Tensor]]:
    """The probe's masses over a text, and the logits of a question after some gathered pages."""
    model = tiny("llama", "bfloat16")
    with open_engine(model, budget, file=new_file(path, model)) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, text(PROMPT), 0)
        recorder = QueryRecorder(model.lookup_layers)
        fork = engine.fork(sequence)
        fork.token_ids += text(20, seed=2)
        engine.compute(fork, recorder=recorder)
        engine.drop(fork)
        mass = engine.probe(sequence, PROMPT, recorder, ProbeWay.SCAN)
        gathered = engine.gather(sequence, [0, 3, 4, 5])
        heard = listen(engine, gathered, text(20, seed=3), 2)
        engine.drop(gathered)
        return mass, heard.logits


@pytest.mark.parametrize("budget", [SMALL_DEVICE, SMALL], ids=["device", "ram"])
def test_a_look_up_and_a_gathering_read_what_was_copied(
    budget: Budget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mass, logits = looked_up(RESIDENT, tmp_path / "at-once.kv")
    late(monkeypatch)
    late_mass, late_logits = looked_up(budget, tmp_path / "late.kv")
    assert torch.equal(late_mass, mass)
    assert all(map(torch.equal, late_logits, logits))
