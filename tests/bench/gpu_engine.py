"""The engine on a device: reading, answering, and answering with the KV in RAM.

Owns whole steps of two models: the default one, and a random one in the shape of one of 8 B
parameters whose steps are mostly KV. Compared with the same model without attention, with the
memory of the device, and with the link.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.model.load import LoadedModel, load_model
from engine.telemetry import Telemetry
from kvcli.models import resolve
from tests.bench.floor import forward_seconds
from tests.bench.gpu_clock import GB, Figure, GpuBench
from tests.tiny_models import make_tiny_model

WIDE = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 32_768,
}
"""KV as of a model of 8 B parameters, 131,072 bytes a token, and hardly any weights."""

DECODED = 24
RAM_LIMIT = 32 << 30


def figures(bench: GpuBench) -> Iterator[Figure]:
    """Whole steps of the default model, and of one with much KV."""
    with tempfile.TemporaryDirectory() as folder:
        if bench.is_tiny:
            path = make_tiny_model(Path(folder) / "small", "llama", dtype="bfloat16")
        else:
            path = Path(resolve("smollm2-135m"))
        yield from _resident("default model", _load(path, bench), bench, bench.size(6144, 256))
        shape = {} if bench.is_tiny else WIDE
        path = make_tiny_model(Path(folder) / "wide", "llama", dtype="bfloat16", **shape)
        model, count = _load(path, bench), bench.size(16_384, 1024)
        yield from _resident("wide KV", model, bench, count)
        yield _from_ram("wide KV", model, bench, count)


def _load(path: Path, bench: GpuBench) -> LoadedModel:
    return load_model(path, device=str(bench.device), self_check=False)


def _resident(name: str, model: LoadedModel, bench: GpuBench, num_tokens: int) -> Iterator[Figure]:
    """Reading and answering with every page in the device tier."""
    config = EngineConfig(ram_bytes=RAM_LIMIT if not bench.is_tiny else 1 << 30)
    read, answered, _ = _run(model, config, num_tokens)
    alone = num_tokens / forward_seconds(model, num_tokens, config.step_tokens)
    one = 16 / forward_seconds(model, 16, 1)
    yield Figure(f"read, {name}", read, "tok/s", alone, "no attention")
    yield Figure(f"answer, {name}", answered, "tok/s", one, "no attention")
    moved = answered * num_tokens * model.geometry.token_bytes / GB
    yield Figure(f"answer, {name}: KV", moved, "GB/s", bench.peaks.memory / GB, "device copy")


def _from_ram(name: str, model: LoadedModel, bench: GpuBench, num_tokens: int) -> Figure:
    """Answering exactly with nearly every page at rest in RAM."""
    pages = model.geometry.pages_per_segment
    config = EngineConfig(
        ram_bytes=RAM_LIMIT if not bench.is_tiny else 1 << 30,
        device_bytes=pages * model.geometry.page_bytes,
    )
    _, answered, device_pages = _run(model, config, num_tokens)
    at_rest = num_tokens - device_pages * model.geometry.page_tokens
    moved = answered * at_rest * model.geometry.token_bytes / GB
    what = f"exact answer, KV in RAM, {name}"
    return Figure(what, moved, "GB/s", bench.peaks.up / GB, "link up", 1 / 1.1)


def _run(model: LoadedModel, config: EngineConfig, num_tokens: int) -> tuple[float, float, int]:
    """Read random tokens and answer.

    Returns:
        Tokens per second read and answered, and the pages that the device tier has room for.
    """
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, model.vocab_size, (num_tokens,), generator=generator).tolist()
    telemetry = Telemetry()
    engine = Engine(model, config, telemetry, num_tokens=num_tokens + DECODED)
    try:
        sequence = engine.new_sequence()
        sequence.token_ids.extend(ids)
        started = time.perf_counter()
        best = int(engine.compute(sequence).argmax())  # waits for the device
        read = num_tokens / (time.perf_counter() - started)
        steps = []
        for _ in range(DECODED):
            started = time.perf_counter()
            sequence.token_ids.append(best)
            best = int(engine.compute(sequence).argmax())
            steps.append(time.perf_counter() - started)
        return read, 1 / sorted(steps)[len(steps) // 2], engine.memory_plan.device_pages
    finally:
        engine.close()
