"""The key sketch of a whole engine: grown, kept, resumed, and done without."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_kit import PAGE, SMALL, new_file, one_thread, open_engine, text, tiny
from session_faults import flip
from torch import Tensor

from engine import lookup
from engine.attention import sketch as sketch_module
from engine.attention.exact import ExactAttention
from engine.attention.recorder import QueryRecorder
from engine.attention.sketch import sketch_bytes
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import StorageError
from engine.lookup import ProbeWay
from engine.memory.budget import plan_memory
from engine.sequence import Sequence
from engine.session import Attachment, SessionFile
from engine.telemetry import Telemetry

__all__ = ["one_thread"]
WINDOW, DOCUMENT = 96, 700
SCAN, SKETCH, AUTO = ProbeWay.SCAN, ProbeWay.SKETCH, ProbeWay.AUTO
BOTH = (SCAN, SKETCH)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The components are chosen early, and a session has several attachments of codes."""
    monkeypatch.setattr(sketch_module, "BASIS_TOKENS", 192)
    monkeypatch.setattr(lookup, "CHUNK_TOKENS", 200)


@contextmanager
def sketching(file: SessionFile | None = None, **settings: Any) -> Iterator[Engine]:
    settings = {"num_tokens": 1200, "sketch": True, "model": tiny()} | settings
    with open_engine(settings.pop("model"), file=file, **settings) as engine:
        yield engine


@contextmanager
def resumed(path: Path, **settings: Any) -> Iterator[tuple[Engine, Sequence]]:
    with sketching(SessionFile.open(path, writable=True), **settings) as engine:
        sequence = engine.resume()
        sequence.local_window = WINDOW
        yield engine, sequence


def read(engine: Engine, ids: list[int]) -> Sequence:
    sequence = engine.new_sequence()
    sequence.local_window = WINDOW
    sequence.token_ids += ids
    engine.compute(sequence)
    return sequence


def ask(engine: Engine, sequence: Sequence) -> QueryRecorder:
    """The queries of a question behind what is there."""
    recorder = QueryRecorder(engine.model.lookup_layers)
    fork = engine.fork(sequence)
    fork.token_ids += text(9, seed=5)
    engine.compute(fork, recorder=recorder)
    engine.drop(fork)
    return recorder


def probe(engine: Engine, sequence: Sequence, way: ProbeWay, num_tokens: int = DOCUMENT) -> Tensor:
    return engine.probe(sequence, num_tokens, ask(engine, sequence), way)


def saved(path: Path) -> tuple[Tensor, Tensor]:
    """Read a document into a session; gives its masses by every key and by the sketch."""
    with sketching(new_file(path, tiny())) as engine:
        sequence = read(engine, text(DOCUMENT))
        engine.commit(sequence)
        assert engine.probe_ways(sequence, DOCUMENT) == BOTH
        return probe(engine, sequence, SCAN), probe(engine, sequence, SKETCH)


def attachments(path: Path) -> dict[str, list[int]]:
    """Offsets of a session's attachments by name."""
    found: dict[str, list[int]] = {}
    with SessionFile.open(path, writable=False) as file:
        for attachment in file.attachments:
            found.setdefault(attachment.name, []).append(attachment.offset)
    return found


def test_with_all_components_the_sketch_says_what_every_key_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys of a model with random weights have no components that could be left out."""
    monkeypatch.setattr(sketch_module, "COMPONENT_SHARE", 1)
    by_keys, by_sketch = saved(tmp_path / "s.kv")
    assert by_sketch.shape == by_keys.shape == (1, 4, -(-DOCUMENT // PAGE))
    assert not torch.equal(by_sketch, by_keys)
    difference = (by_sketch - by_keys).abs()
    assert difference.mean() < 0.05 * by_keys.mean() and difference.max() < 0.15
    assert by_keys.max() > 0.5


def test_a_resumed_sketch_gives_the_same_bits_and_reads_no_keys(tmp_path: Path) -> None:
    _, before = saved(tmp_path / "s.kv")
    with resumed(tmp_path / "s.kv") as (engine, sequence):
        assert engine.probe_ways(sequence, DOCUMENT) == BOTH, "waits for the thread that reads it"
        loaded = engine.telemetry.sample().read_bytes
        codes = DOCUMENT * tiny().geometry.num_kv_heads * tiny().geometry.head_dim // 2
        assert codes < loaded < codes + 20_000
        recorder = ask(engine, sequence)
        already = engine.telemetry.sample().read_bytes
        mass = engine.probe(sequence, DOCUMENT, recorder, AUTO)
        assert torch.equal(mass, before)
        assert torch.equal(engine.probe(sequence, DOCUMENT, recorder, SKETCH), mass)
        assert engine.telemetry.sample().read_bytes == already, "read once, and no keys"
        assert engine.sketch_refusal is None


def test_closing_does_not_wait_for_a_sketch_that_nobody_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed session is closed at once; reading its sketch from a slow disk takes an hour."""
    saved(tmp_path / "s.kv")
    read, going_on, reads = SessionFile.read_attachment, threading.Event(), 0

    def slow(self: SessionFile, attachment: Attachment) -> memoryview:
        nonlocal reads
        reads += 1
        going_on.wait(60)
        return read(self, attachment)

    monkeypatch.setattr(SessionFile, "read_attachment", slow)
    with resumed(tmp_path / "s.kv") as (engine, _):
        while not reads:
            time.sleep(0.001)
        threading.Timer(0.2, going_on.set).start()
    stored = sum(map(len, attachments(tmp_path / "s.kv").values()))
    assert reads <= 2 * lookup.READERS < stored, "what was under way, and nothing after it"
    assert engine.sketch_refusal is None


def test_auto_reads_every_key_while_all_lie_in_memory() -> None:
    with sketching() as engine:
        sequence = read(engine, text(DOCUMENT))
        recorder = ask(engine, sequence)
        auto, scan, sketch = (
            engine.probe(sequence, DOCUMENT, recorder, way) for way in (AUTO, SCAN, SKETCH)
        )
        assert torch.equal(auto, scan) and not torch.equal(auto, sketch)


def test_a_fork_is_looked_up_by_the_sketch_as_far_as_it_is_the_main_sequence() -> None:
    with sketching(num_tokens=2000) as engine:
        sequence = read(engine, text(DOCUMENT))
        fork = engine.fork(sequence)
        fork.token_ids += text(40, seed=8)
        engine.compute(fork)
        assert engine.probe_ways(fork, DOCUMENT) == BOTH
        assert engine.probe_ways(fork, DOCUMENT + 40) == (SCAN,)
        sequence.token_ids += text(40, seed=9)
        engine.compute(sequence)
        assert engine.probe_ways(sequence, DOCUMENT + 40) == BOTH
        assert engine.probe_ways(fork, DOCUMENT) == BOTH
        assert engine.probe_ways(fork, DOCUMENT + 40) == (SCAN,), "other tokens"
        beside = engine.side_sequence()
        beside.local_window = WINDOW
        beside.token_ids += text(DOCUMENT)
        engine.compute(beside)
        assert engine.probe_ways(beside, DOCUMENT) == (SCAN,)
        for each in (beside, fork):
            engine.drop(each)


def test_other_layers_than_those_sketched_are_read_key_by_key() -> None:
    with sketching() as engine:
        sequence = read(engine, text(DOCUMENT))
        recorder = QueryRecorder([0, 1])
        fork = engine.fork(sequence)
        fork.token_ids += text(9, seed=5)
        engine.compute(fork, recorder=recorder)
        engine.drop(fork)
        assert engine.probe(sequence, DOCUMENT, recorder, SKETCH).shape[0] == 2


def test_a_sequence_read_exactly_has_no_sketch(tmp_path: Path) -> None:
    with sketching(new_file(tmp_path / "s.kv", tiny())) as engine:
        sequence = engine.new_sequence()
        sequence.token_ids += text(400)
        engine.compute(sequence)
        engine.commit(sequence)
        assert engine.probe_ways(sequence, 400) == (SCAN,)
    assert attachments(tmp_path / "s.kv") == {}


def test_a_step_that_fails_leaves_nothing_in_the_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops in a late layer, when keys of earlier ones have been given, and is repeated."""
    with sketching() as engine:
        expected = probe(engine, read(engine, text(DOCUMENT)), SKETCH)
    real, calls = ExactAttention.attend, 0

    def attend(self: ExactAttention, layer: int, *rest: Any) -> Tensor:
        nonlocal calls
        calls += layer == tiny().geometry.num_layers - 1
        if calls in (1, 4, 7):
            calls += 1
            raise StorageError("gone", "")
        return real(self, layer, *rest)

    with sketching() as engine:
        sequence = engine.new_sequence()
        sequence.local_window = WINDOW
        sequence.token_ids += text(DOCUMENT)
        failures = 0
        with monkeypatch.context() as patch:
            patch.setattr(ExactAttention, "attend", attend)
            while sequence.num_tokens < DOCUMENT:
                try:
                    engine.compute(sequence)
                except StorageError:
                    failures += 1
        assert failures == 3
        assert torch.equal(probe(engine, sequence, SKETCH), expected)


@pytest.mark.parametrize("stops", [(256,), (256, 384), (384, 512, 640)])
def test_reading_that_was_interrupted_goes_on_with_the_sketch(
    stops: tuple[int, ...], tmp_path: Path
) -> None:
    """Each sitting ends with a commit between steps; the sketch is as if it was read at once."""
    path, ids = tmp_path / "s.kv", text(DOCUMENT)
    _, expected = saved(tmp_path / "whole.kv")
    with sketching(new_file(path, tiny())) as engine:
        engine.commit(read(engine, ids[: stops[0]]))
    for first, end in zip(stops, (*stops[1:], DOCUMENT), strict=True):
        with resumed(path) as (engine, sequence):
            sequence.token_ids += ids[first:end]
            engine.compute(sequence)
            engine.commit(sequence)
    with resumed(path) as (engine, sequence):
        assert engine.probe_ways(sequence, DOCUMENT) == BOTH
        assert torch.allclose(probe(engine, sequence, SKETCH), expected, atol=1e-3)
        assert engine.sketch_refusal is None


def test_each_commit_adds_what_is_new_and_writes_nothing_again(tmp_path: Path) -> None:
    path = tmp_path / "s.kv"
    with sketching(new_file(path, tiny())) as engine:
        sequence = read(engine, text(DOCUMENT))
        engine.commit(sequence)
        for _ in range(2):
            engine.commit(sequence)
        sequence.token_ids += text(5, seed=2)
        engine.compute(sequence)
        engine.commit(sequence)
    with SessionFile.open(path, writable=False) as file:
        codes = [a for a in file.attachments if a.name == lookup.CODES]
        assert [a.meta["first"] for a in codes] == [0, 200, 400, 600, 700]
        heads_by_rank = tiny().geometry.num_kv_heads * tiny().geometry.head_dim // 2
        assert sum(a.num_bytes for a in codes) == (DOCUMENT + 5) * heads_by_rank
    assert len(attachments(path)[lookup.BASIS]) == 1


# -- done without ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [lookup.BASIS, lookup.CODES])
def test_a_damaged_sketch_is_dropped_and_said_and_every_key_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "s.kv"
    by_keys, _ = saved(path)
    flip(path, attachments(path)[name][0] + 50)
    with resumed(path) as (engine, sequence):
        mass = engine.probe(sequence, DOCUMENT, ask(engine, sequence), SKETCH)
        assert torch.equal(mass, by_keys)
        assert engine.sketch_refusal is not None
        assert f"attachment '{name}': fails its checksum" in engine.sketch_refusal
        sequence.token_ids += text(30, seed=6)
        engine.compute(sequence)
        engine.commit(sequence)
    assert len(attachments(path)[lookup.CODES]) == 4, "a sketch with a hole is not continued"


def test_the_sound_beginning_of_a_damaged_sketch_is_used(tmp_path: Path) -> None:
    path = tmp_path / "s.kv"
    saved(path)
    flip(path, attachments(path)[lookup.CODES][2] + 50)
    with resumed(path) as (engine, sequence):
        assert engine.probe_ways(sequence, 400) == BOTH
        assert engine.probe_ways(sequence, 401) == (SCAN,)


def test_a_session_without_a_sketch_is_read_key_by_key(tmp_path: Path) -> None:
    path = tmp_path / "s.kv"
    with open_engine(tiny(), num_tokens=1200, file=new_file(path, tiny())) as engine:
        sequence = read(engine, text(DOCUMENT))
        engine.commit(sequence)
        by_keys = probe(engine, sequence, SKETCH)
    assert attachments(path) == {}
    with resumed(path) as (engine, sequence):
        assert torch.equal(probe(engine, sequence, SKETCH), by_keys)
        sequence.token_ids += text(30, seed=6)
        engine.compute(sequence)
        engine.commit(sequence)
    assert attachments(path) == {}


def test_tokens_read_without_a_sketch_leave_a_hole_that_ends_it(tmp_path: Path) -> None:
    """Read in part with a sketch, then with none, then with one again."""
    path = tmp_path / "s.kv"
    saved(path)
    settings = ({"sketch": False}, {"sketch": True})
    for each in settings:
        file = SessionFile.open(path, writable=True)
        with open_engine(tiny(), num_tokens=1200, file=file, **each) as engine:
            sequence = engine.resume()
            sequence.local_window = WINDOW
            sequence.token_ids += text(50, seed=6)
            engine.compute(sequence)
            engine.commit(sequence)
            if each["sketch"]:
                assert engine.probe_ways(sequence, DOCUMENT) == BOTH
                assert engine.probe_ways(sequence, DOCUMENT + 1) == (SCAN,)


def test_a_sketch_of_other_layers_is_not_used(tmp_path: Path) -> None:
    saved(tmp_path / "s.kv")
    other = replace(tiny(), lookup_layers=(0,))
    with resumed(tmp_path / "s.kv", model=other) as (engine, sequence):
        assert engine.probe_ways(sequence, DOCUMENT) == (SCAN,)
        assert engine.sketch_refusal is not None and "other layers" in engine.sketch_refusal


def test_a_sketch_without_room_is_refused_with_the_reason(tmp_path: Path) -> None:
    """The least still fits, so everything works as without a sketch."""
    model, tokens = tiny(), 1200
    config = replace(SMALL.config(model.geometry, tokens), sketch=True)
    file = new_file(tmp_path / "s.kv", model)
    least = config.ram_bytes
    engine = Engine(model, config, Telemetry(), num_tokens=tokens, file=file)
    assert engine.sketch_refusal is not None
    wanted = sketch_bytes(model.geometry, len(model.lookup_layers), tokens)
    assert f"{wanted:,} bytes" in engine.sketch_refusal
    sequence = read(engine, text(DOCUMENT))
    assert engine.probe_ways(sequence, DOCUMENT) == (SCAN,)
    engine.commit(sequence)
    engine.close()
    more = replace(config, ram_bytes=least + wanted)
    file = SessionFile.open(tmp_path / "s.kv", writable=True)
    roomy = Engine(model, more, Telemetry(), num_tokens=tokens, file=file)
    assert roomy.sketch_refusal is None
    assert roomy.memory_plan.sketch_bytes == wanted
    assert roomy.memory_plan.host_pages >= engine.memory_plan.host_pages - 1
    roomy.close()


def test_the_bytes_of_the_sketch_come_out_of_the_tiers() -> None:
    model = tiny()
    config = EngineConfig(ram_bytes=8 << 20)
    budget: dict[str, Any] = {
        "num_tokens": 1 << 20, "ram_bytes": 8 << 20, "device_bytes": None, "shared_memory": True,
        "has_file": True, "part_tokens": config.part_tokens, "stream_depth": 1,
    }  # fmt: skip
    without = plan_memory(model.geometry, **budget)
    with_one = plan_memory(model.geometry, **budget, sketch_bytes=1 << 20)
    page = model.geometry.page_bytes
    taken = (without.device_pages + without.host_pages) * page + without.fixed_bytes
    taken_with_one = (with_one.device_pages + with_one.host_pages) * page + with_one.fixed_bytes
    assert with_one.sketch_bytes == 1 << 20
    assert taken_with_one <= (7 << 20) < taken <= 8 << 20
