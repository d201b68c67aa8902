"""Small engines for tests: tiny models, pages of 16 tokens, budgets counted in pages."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest
import torch
from tiny_models import make_tiny_model
from torch import Tensor

from engine.assembly import identity_of
from engine.config import EngineConfig, KVCodecs
from engine.engine import Engine
from engine.errors import OverBudget
from engine.memory.budget import FORK_TOKENS, plan_memory
from engine.model.load import LoadedModel, load_model
from engine.sequence import Sequence
from engine.session import SessionFile
from engine.telemetry import Telemetry
from engine.tiers.coding import buffer_bytes
from engine.types import KVGeometry

PAGE, SEGMENT, PART, STEP = 16, 64, 128, 128
AMPLE = 1 << 30
UNCODED = KVCodecs()
LEAST_HOST = SEGMENT // PAGE + 1 + FORK_TOKENS // PAGE
"""Host slots that even the smallest engine has."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors are slower on two threads than on one, and far slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def tiny(architecture: str = "llama", dtype: str = "float32", device: str = "cpu") -> LoadedModel:
    """A loaded tiny model; the same object for all tests, which only read it."""
    with tempfile.TemporaryDirectory() as folder:
        path = make_tiny_model(Path(folder) / architecture, architecture, dtype=dtype)
        return load_model(
            path, device=device, page_tokens=PAGE, segment_tokens=SEGMENT, self_check=False
        )


def text(num_tokens: int, seed: int = 1) -> list[int]:
    """Random ids without control tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 290, (num_tokens,), generator=generator).tolist()


@dataclass(frozen=True)
class Budget:
    """Room for pages; None is as much as the longest sequence needs."""

    device: int | None = None
    host: int | None = None

    def config(
        self, geometry: KVGeometry, num_tokens: int, codecs: KVCodecs = UNCODED
    ) -> EngineConfig:
        """Settings whose plan has exactly this room."""
        config = EngineConfig(
            ram_bytes=AMPLE if self.host is None else 0,
            step_tokens=STEP,
            part_tokens=PART,
            kv_codecs=codecs,
        )
        if self.device is not None:
            config = replace(config, device_bytes=self.device * geometry.page_bytes)
        if self.host is not None:
            while (pages := _host_pages(config, geometry, num_tokens)) < self.host:
                config = replace(config, ram_bytes=config.ram_bytes + geometry.page_bytes)
            assert pages == self.host
        return config


RESIDENT = Budget()
SMALL_DEVICE = Budget(device=9)
SMALL = Budget(device=6, host=LEAST_HOST)
SMALLEST = Budget(device=1, host=LEAST_HOST)


def _host_pages(config: EngineConfig, geometry: KVGeometry, num_tokens: int) -> int:
    is_coded = config.kv_codecs.disk != "raw"
    try:
        plan = plan_memory(
            geometry,
            num_tokens=num_tokens,
            ram_bytes=config.ram_bytes,
            device_bytes=config.device_bytes,
            shared_memory=True,
            has_file=True,
            part_tokens=config.part_tokens,
            stream_depth=config.stream_depth,
            coding_bytes=buffer_bytes(geometry, config.io_threads, config.part_tokens)
            if is_coded
            else 0,
        )
    except OverBudget:
        return 0
    return plan.host_pages


@contextmanager
def open_engine(
    model: LoadedModel,
    budget: Budget = RESIDENT,
    *,
    num_tokens: int = 800,
    fork_tokens: int = FORK_TOKENS,
    file: SessionFile | None = None,
    kv_codecs: KVCodecs = UNCODED,
    **settings: object,
) -> Iterator[Engine]:
    """An engine, whole at its end: closed, and its books in order unless the test failed."""
    config = replace(budget.config(model.geometry, num_tokens, kv_codecs), **settings)
    engine = Engine(
        model, config, Telemetry(), num_tokens=num_tokens, file=file, fork_tokens=fork_tokens
    )
    try:
        yield engine
        engine.check_integrity()
    finally:
        engine.close()


def new_file(path: Path, model: LoadedModel) -> SessionFile:
    """A session file for this model, not committed yet."""
    return SessionFile.create(path, identity_of(model), model.geometry)


@dataclass
class Heard:
    """What an engine said: logits after each `compute`, greedy tokens chosen from them."""

    logits: list[Tensor] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def same_bits(self, other: Heard) -> bool:
        """Whether everything is equal, bit for bit."""
        return (
            self.tokens == other.tokens
            and len(self.logits) == len(other.logits)
            and all(map(torch.equal, self.logits, other.logits))
        )


def listen(engine: Engine, sequence: Sequence, ids: list[int], answer: int) -> Heard:
    """Append ids, compute, and decode greedily; the books are checked after every step."""
    heard = Heard()
    sequence.token_ids.extend(ids)

    def on_step() -> None:
        engine.check_integrity()
        sample = engine.telemetry.sample()
        assert sum(tier.pages for tier in sample.tiers) == sample.total_pages

    for _ in range(answer + 1):
        heard.logits.append(engine.compute(sequence, on_step=on_step).clone())
        if len(heard.tokens) < answer:
            heard.tokens.append(int(heard.logits[-1].argmax()))
            sequence.token_ids.append(heard.tokens[-1])
    return heard


def saved(path: Path, num_tokens: int) -> Path:
    """A closed session of the first tokens of the text, by the tiny Llama in bf16."""
    model = tiny("llama", "bfloat16")
    with open_engine(model, file=new_file(path, model)) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, text(num_tokens), 0)
        engine.commit(sequence)
    return path
