"""A device with memory of its own: pages are copied up and down beside compute, none too late.

No CUDA device is needed: the copies of `late_copies` are done as late as the order between them and
compute allows, so that one that nobody waited for gives other bits.
"""

from __future__ import annotations

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
from engine.lookup import ProbeWay

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
