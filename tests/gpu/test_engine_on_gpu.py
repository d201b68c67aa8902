"""The engine on a GPU: what it says on the CPU, and the same bits however its pages are moved.

Each test also runs once with the CPU in place of the GPU: that shows that the test itself works.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from engine_kit import (
    RESIDENT,
    SMALL,
    SMALL_DEVICE,
    SMALLEST,
    Heard,
    listen,
    new_file,
    open_engine,
    text,
    tiny,
)
from tiny_models import ARCHITECTURES

from engine.attention.recorder import QueryRecorder
from engine.lookup import ProbeWay
from engine.session import SessionFile

BUDGETS = {"device": SMALL_DEVICE, "ram": SMALL, "one page": SMALLEST}
HERE, THERE = "cpu", "cuda:0"
DEVICES = [pytest.param(HERE), pytest.param(THERE, marks=pytest.mark.gpu)]
PROMPT, ANSWER, REPEATS = 600, 12, 5
CLOSE = {"float32": 1e-3, "bfloat16": 0.15}
"""How far logits may be apart, in standard deviations of the logits, root mean square."""


def matrix(*rows: list[str]) -> list[object]:
    """Every combination on the GPU, and the first of them on the CPU."""
    every = [pytest.param(*row, THERE, marks=pytest.mark.gpu) for row in product(*rows)]
    return [pytest.param(*(row[0] for row in rows), HERE), *every]


@cache
def resident(architecture: str, dtype: str, device: str) -> Heard:
    """What the engine says with every page in the device tier."""
    with open_engine(tiny(architecture, dtype, device), RESIDENT) as engine:
        return listen(engine, engine.new_sequence(), text(PROMPT), ANSWER)


@pytest.mark.parametrize(
    ("architecture", "dtype", "device"), matrix(list(ARCHITECTURES), list(CLOSE))
)
def test_logits_are_those_of_the_cpu(architecture: str, dtype: str, device: str) -> None:
    """After the prompt alone: what is generated may part ways over one rounding."""
    expected = resident(architecture, dtype, "cpu").logits[0].float()
    heard = resident(architecture, dtype, device).logits[0].float().cpu()
    difference = (heard - expected).square().mean().sqrt()
    assert difference <= CLOSE[dtype] * expected.std()


@contextmanager
def busy(device: str) -> Iterator[None]:
    """Products and copies on streams of their own: nothing is done as soon as it is queued."""
    if not device.startswith("cuda"):
        yield
        return
    stop = threading.Event()

    def work() -> None:
        stream = torch.cuda.Stream(device)
        one = torch.randn(2048, 2048, device=device)
        here = torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True)
        there = torch.empty_like(here, device=device)
        with torch.cuda.stream(stream):
            while not stop.is_set():
                for _ in range(8):
                    one = torch.tanh(one @ one)
                    there.copy_(here, non_blocking=True)
                    here.copy_(there, non_blocking=True)
                stream.synchronize()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()


@pytest.mark.parametrize(
    ("architecture", "room", "kept", "device"),
    matrix(["llama", "gemma2"], list(BUDGETS), ["session", ""]),
)
def test_streams_under_load_give_the_same_bits(
    architecture: str, room: str, kept: str, device: str, tmp_path: Path
) -> None:
    """Pages come up and go down beside compute while the device is busy with other work."""
    model = tiny(architecture, "bfloat16", device)
    wanted = resident(architecture, "bfloat16", device)
    with busy(device):
        for number in range(1 if device == HERE else REPEATS):
            file = new_file(tmp_path / f"{number}.kv", model) if kept else None
            with open_engine(model, BUDGETS[room], file=file) as engine:
                sequence = engine.new_sequence()
                heard = listen(engine, sequence, text(PROMPT), ANSWER)
                engine.commit(sequence)
            assert heard.same_bits(wanted)


@pytest.mark.parametrize("device", DEVICES)
def test_a_look_up_finds_the_same_wherever_the_keys_lie(device: str, tmp_path: Path) -> None:
    model, masses = tiny("llama", "bfloat16", device), []
    for number, budget in enumerate([RESIDENT, SMALL_DEVICE, SMALL]):
        file = new_file(tmp_path / f"{number}.kv", model)
        with open_engine(model, budget, file=file) as engine:
            sequence = engine.new_sequence()
            listen(engine, sequence, text(PROMPT), 0)
            recorder = QueryRecorder(model.lookup_layers)
            fork = engine.fork(sequence)
            fork.token_ids += text(20, seed=2)
            engine.compute(fork, recorder=recorder)
            engine.drop(fork)
            masses.append(engine.probe(sequence, PROMPT, recorder, ProbeWay.SCAN))
    assert all(torch.equal(mass, masses[0]) for mass in masses)
    assert masses[0].sum() > 0


@pytest.mark.parametrize("device", DEVICES)
def test_a_session_written_from_the_device_is_resumed_there(device: str, tmp_path: Path) -> None:
    """What went down to the file comes up again as the bits that it was."""
    model, path = tiny("llama", "bfloat16", device), tmp_path / "s.kv"
    with open_engine(model, SMALL, file=new_file(path, model)) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, text(PROMPT), 0)
        engine.commit(sequence)
        one = listen(engine, sequence, text(20, seed=4), ANSWER)
    file = SessionFile.open(path, writable=True)
    with open_engine(model, SMALL_DEVICE, file=file) as engine:
        other = listen(engine, engine.resume(), text(20, seed=4), ANSWER)
    assert other.same_bits(one)
