"""Exact means exact: the same bits whatever the budgets, and the same tokens as stock transformers.

Every run is 600 tokens of prefill and 24 decoded ones; all are compared with everything resident.
"""

from __future__ import annotations

import threading
import time
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
from tiny_models import ARCHITECTURES, make_tiny_model
from transformers import AutoModelForCausalLM

from engine.telemetry import STALLS, Link, Phase, Sample
from engine.types import Tier

PROMPT, ANSWER = 600, 24

BUDGETS = {"resident": RESIDENT, "device": SMALL_DEVICE, "ram": SMALL, "one page": SMALLEST}


@cache
def expected(architecture: str, dtype: str) -> Heard:
    """What the engine says with everything in the device tier and no file."""
    with open_engine(tiny(architecture, dtype)) as engine:
        heard = listen(engine, engine.new_sequence(), text(PROMPT), ANSWER)
        hits = engine.telemetry.sample().hits
        assert hits[Tier.HOST] == hits[Tier.DISK] == 0 < hits[Tier.DEVICE]
    return heard


def run(
    architecture: str, dtype: str, budget: Budget, session: Path | None, **settings: object
) -> tuple[Heard, Sample]:
    model = tiny(architecture, dtype)
    file = new_file(session, model) if session else None
    with open_engine(model, budget, file=file, **settings) as engine:
        sequence = engine.new_sequence()
        heard = listen(engine, sequence, text(PROMPT), ANSWER)
        engine.commit(sequence)
        return heard, engine.telemetry.sample()


def moved(sample: Sample, budget: Budget, *, is_kept: bool) -> bool:
    """Whether pages really went where the budget sends them; else equality proves nothing."""
    hits, written, read = sample.hits, sample.written_bytes, sample.read_bytes
    if budget is RESIDENT:
        return not hits[Tier.HOST] and not hits[Tier.DISK] and not read and (written > 0) is is_kept
    if budget is SMALL_DEVICE:
        return hits[Tier.HOST] > 100 and (written > 0) is is_kept
    return hits[Tier.DISK] > 100 and read > written > 100_000


@pytest.mark.parametrize("kept", [False, True], ids=["no file", "session"])
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_pairing_of_tiers_gives_the_same_bits(
    dtype: str, budget: Budget, kept: bool, tmp_path: Path
) -> None:
    session = tmp_path / "s.kv" if kept else None
    heard, sample = run("llama", dtype, budget, session)
    assert heard.same_bits(expected("llama", dtype))
    assert moved(sample, budget, is_kept=kept)


@pytest.mark.parametrize("kept", [False, True], ids=["no file", "session"])
@pytest.mark.parametrize("budget", [SMALL, SMALLEST], ids=["ram", "one page"])
@pytest.mark.parametrize("architecture", ["llama", "gemma2", "phi3"])
def test_unified_memory_gives_the_same_bits(
    architecture: str, budget: Budget, kept: bool, tmp_path: Path
) -> None:
    session = tmp_path / "s.kv" if kept else None
    heard, sample = run(architecture, "bfloat16", budget, session, pager="unified")
    assert heard.same_bits(expected(architecture, "bfloat16"))
    assert sample.written_bytes > 100_000
    assert sample.hits[Tier.HOST] + sample.hits[Tier.DISK] > 100


@pytest.mark.parametrize(
    ("architecture", "dtype"),
    [
        ("gemma2", "float32"),
        ("gemma2", "bfloat16"),
        ("gemma3_text", "bfloat16"),
        ("mistral", "float32"),
        ("mistral", "bfloat16"),
        ("phi3", "bfloat16"),
        ("qwen2", "float32"),
        ("qwen3", "bfloat16"),
    ],
)
def test_every_architecture_gives_the_same_bits(
    architecture: str, dtype: str, tmp_path: Path
) -> None:
    """Soft caps, sliding windows, partial and per-layer rotation, biases: through the disk."""
    for budget, session in ((SMALL, None), (SMALLEST, tmp_path / "s.kv"), (SMALL_DEVICE, None)):
        heard, sample = run(architecture, dtype, budget, session)
        assert heard.same_bits(expected(architecture, dtype))
        if budget is not SMALL_DEVICE:
            assert sample.read_bytes > 0 and sample.hits[Tier.DISK] > 0


@pytest.mark.parametrize(
    ("threads", "depth", "extent"),
    [(1, 1, 1 << 20), (1, 8, 1), (3, 2, 4096), (8, 1, 1), (8, 5, 8192)],
)
def test_however_the_disk_is_read_the_bits_are_the_same(
    threads: int, depth: int, extent: int, tmp_path: Path
) -> None:
    """One read a page to one a segment; one reader to more than there are reads."""
    settings = {"io_threads": threads, "stream_depth": depth, "extent_bytes": extent}
    for budget, session in ((SMALL, None), (SMALLEST, tmp_path / "s.kv")):
        heard, sample = run("llama", "bfloat16", budget, session, **settings)
        assert heard.same_bits(expected("llama", "bfloat16"))
        assert moved(sample, budget, is_kept=session is not None)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_are_those_of_stock_transformers(architecture: str, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(make_tiny_model(tmp_path, architecture)).eval()
    ids = text(PROMPT)
    with torch.inference_mode():
        stock = model.generate(
            torch.tensor([ids]), max_new_tokens=ANSWER, do_sample=False, eos_token_id=None
        )
    heard = expected(architecture, "float32")
    assert heard.tokens == stock[0, PROMPT:].tolist()
    assert len(set(heard.tokens)) > 5, "a model that repeats itself would prove little"


def test_the_telemetry_is_true_while_pages_move(tmp_path: Path) -> None:
    """A watcher takes samples all the while; the pages add up and so do the seconds."""
    samples: list[Sample] = []
    done = threading.Event()
    model = tiny("llama", "bfloat16")
    with open_engine(model, SMALL, file=new_file(tmp_path / "s.kv", model)) as engine:

        def watch() -> None:
            while not done.wait(0.002):
                samples.append(engine.telemetry.sample())

        watcher = threading.Thread(target=watch)
        watcher.start()
        first, started = engine.telemetry.sample(), time.monotonic()
        try:
            sequence = engine.new_sequence()
            listen(engine, sequence, text(PROMPT), ANSWER)
            engine.commit(sequence)
            last, elapsed = engine.telemetry.sample(), time.monotonic() - started
        finally:
            done.set()
            watcher.join()
    assert last.total_pages == model.geometry.num_pages(PROMPT + ANSWER)
    assert len(samples) > 5
    for sample in (*samples, last):
        assert sum(tier.pages for tier in sample.tiers) == sample.total_pages
        assert abs(sum(sample.seconds.values()) - sample.wall_s) < 0.001
    booked = sum(last.seconds.values()) - sum(first.seconds.values())
    assert abs(booked - elapsed) < max(0.02 * elapsed, 0.02)
    for phase in (Phase.COMPUTE, Phase.COMMIT, Phase.DECODE):
        assert last.seconds[phase] > 0, phase
    for link, use in last.links.items():
        assert use.moved_bytes > 0 and use.moves > 0 and 0 < use.busy_s <= last.wall_s, link
    page_slices = last.links[Link.HOST_TO_DEVICE].moved_bytes / model.geometry.page_slice_bytes
    assert page_slices.is_integer()
    assert last.stall_s == sum(last.seconds[cause] for cause in STALLS)


def test_what_lies_on_the_device_is_not_brought_up() -> None:
    _, sample = run("llama", "bfloat16", RESIDENT, None)
    assert sample.seconds[Phase.DECODE] == 0
