"""Budgets hold: what a plan allows, and what an engine allocates by it, is never above them."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.assembly import Assembly, assemble
from engine.config import EngineConfig
from engine.errors import OverBudget
from engine.memory.budget import (
    FORK_TOKENS,
    LEAST_STREAM_DEPTH,
    MemoryPlan,
    least_host_pages,
    plan_memory,
    slice_buffer_bytes,
)
from engine.model.hook import LayerSpec
from engine.telemetry import Telemetry
from engine.types import KVGeometry

MIB = 1 << 20
DEFAULT = KVGeometry(30, 3, 64, "bfloat16")
"""The default model's: pages of 1.4 MiB, segments of 11.25 MiB."""


def plan(ram_mib: float, tokens: int = 8192, **changes: object) -> MemoryPlan:
    settings = {
        "device_bytes": None,
        "shared_memory": True,
        "has_file": False,
        "part_tokens": 2048,
        "stream_depth": 2,
    }
    ram = round(ram_mib * MIB)
    return plan_memory(DEFAULT, num_tokens=tokens, ram_bytes=ram, **(settings | changes))


def test_everything_fits_into_an_ample_budget() -> None:
    made = plan(2000)
    assert made.device_pages == made.host_pages == 8192 // 64 + 2
    assert not made.needs_disk


def test_a_file_takes_the_place_of_the_host_tier_where_the_device_holds_all() -> None:
    made = plan(2000, has_file=True)
    assert made.device_pages == 8192 // 64 + 2
    assert made.host_pages == least_host_pages(DEFAULT) == 10
    assert not made.needs_disk


def test_a_budget_below_the_sequence_needs_the_disk() -> None:
    assert plan(150).needs_disk
    assert not plan(150, has_file=True).needs_disk, "a session file serves as well"
    assert plan(150).host_pages >= least_host_pages(DEFAULT)


def test_a_device_budget_caps_the_device_tier_alone() -> None:
    made = plan(2000, device_bytes=20 * DEFAULT.page_bytes + 1)
    assert made.device_pages == 20
    assert made.host_pages == 8192 // 64 + 2 and not made.needs_disk


def test_a_device_with_memory_of_its_own_takes_none_of_the_ram() -> None:
    shared = plan(150)
    apart = plan(150, shared_memory=False, device_bytes=20 * DEFAULT.page_bytes)
    assert apart.device_pages == 20
    assert apart.host_pages > shared.host_pages


def test_less_than_one_segment_is_refused_with_both_numbers() -> None:
    with pytest.raises(OverBudget, match=r"10,485,760 bytes .* \d\d,\d{3},\d{3} bytes"):
        plan(10)


def test_less_than_one_page_of_device_memory_is_refused_with_both_numbers() -> None:
    with pytest.raises(OverBudget, match=r"1,000 bytes is below one page of 1,474,560"):
        plan(2000, device_bytes=1000)


def test_a_sketch_that_leaves_less_than_the_least_is_refused_with_the_numbers() -> None:
    least = next(ram for ram in range(1, 200) if _fits(ram))
    made = plan(least, sketch_bytes=2 * MIB)
    assert made.sketch_bytes == 0
    assert made.sketch_refusal is not None
    assert made.sketch_refusal.startswith("the key sketch would take 2,097,152 bytes")
    assert plan(least + 2, sketch_bytes=2 * MIB).sketch_bytes == 2 * MIB
    assert plan(least + 2).sketch_refusal is None


def test_a_deeper_stream_than_fits_is_made_shallower_and_never_refused() -> None:
    least = next(ram for ram in range(1, 200) if _fits(ram))
    assert plan(least, stream_depth=8).stream_depth == LEAST_STREAM_DEPTH == 2
    assert plan(least, stream_depth=1).stream_depth == 1, "what is asked for is the most"
    depths = [plan(ram, stream_depth=8).stream_depth for ram in range(least, 400, 10)]
    assert depths == sorted(depths) and set(depths) >= {3, 8}
    deep, plain = plan(400, stream_depth=8), plan(400)
    assert deep.fixed_bytes > plain.fixed_bytes and deep.host_pages < plain.host_pages


def test_a_run_streams_when_no_tier_in_memory_holds_every_page() -> None:
    assert plan(150).streams and plan(150, has_file=True).streams
    assert not plan(2000).streams and not plan(2000, has_file=True).streams
    assert not plan(2000, device_bytes=20 * DEFAULT.page_bytes).streams, "the host tier holds them"


def _fits(ram_mib: float) -> bool:
    try:
        plan(ram_mib)
    except OverBudget:
        return False
    return True


def test_unified_memory_maps_what_the_host_tier_would_have_taken() -> None:
    explicit = plan(500, device_bytes=20 * DEFAULT.page_bytes, tokens=100_000)
    unified = plan(500, device_bytes=20 * DEFAULT.page_bytes, tokens=100_000, is_mapped=True)
    assert unified.needs_disk and unified.host_pages == least_host_pages(DEFAULT)
    more = (explicit.host_pages - unified.host_pages) * DEFAULT.page_bytes
    assert more <= unified.mapped_bytes <= more + 2 * 2048 * DEFAULT.token_bytes // 30


def test_the_write_queue_is_bounded() -> None:
    made = plan(100_000, tokens=1_000_000)
    assert made.write_buffers * slice_buffer_bytes(DEFAULT) <= 65 * MIB


@pytest.mark.parametrize("page_tokens", [16, 32, 64, 128, 256, 512])
def test_the_smallest_host_tier_holds_a_segment_and_a_short_fork(page_tokens: int) -> None:
    geometry = KVGeometry(1, 1, 1, "float32", page_tokens=page_tokens)
    spare = least_host_pages(geometry) - geometry.pages_per_segment
    for used in range(1, page_tokens + 1):  # tokens in the last page of the parent
        copied = used < page_tokens
        new = geometry.num_pages(used % page_tokens + FORK_TOKENS) - copied
        assert copied + new <= spare


geometries = st.builds(
    KVGeometry,
    num_layers=st.integers(1, 40),
    num_kv_heads=st.integers(1, 8),
    head_dim=st.sampled_from([16, 64, 80, 128]),
    dtype=st.sampled_from(["bfloat16", "float32"]),
    page_tokens=st.sampled_from([16, 32, 64, 128]),
    segment_tokens=st.sampled_from([128, 512]),
)


@settings(max_examples=300, deadline=None)
@given(
    geometry=geometries,
    tokens=st.integers(1, 2_000_000),
    ram=st.integers(0, 1 << 36) | st.integers(1 << 20, 1 << 28),
    device=st.none() | st.integers(0, 1 << 34),
    shared=st.booleans(),
    has_file=st.booleans(),
    parts=st.sampled_from([512, 2048]),
    depth=st.integers(1, 8),
    sketch=st.just(0) | st.integers(1, 1 << 30),
    unified=st.booleans(),
)
def test_no_plan_exceeds_a_budget(
    geometry: KVGeometry,
    tokens: int,
    ram: int,
    device: int | None,
    shared: bool,
    has_file: bool,
    parts: int,
    depth: int,
    sketch: int,
    unified: bool,
) -> None:
    options = {
        "num_tokens": tokens,
        "device_bytes": device,
        "shared_memory": shared,
        "has_file": has_file,
        "part_tokens": parts,
        "stream_depth": depth,
        "sketch_bytes": sketch,
        "is_mapped": unified,
    }
    try:
        made = plan_memory(geometry, ram_bytes=ram, **options)
    except OverBudget as refused:
        if "RAM budget" in refused.message:
            least = int(re.findall(r"[\d,]{4,}", refused.message)[-1].replace(",", ""))
            assert ram < least
            with_least = {**options, "device_bytes": None}
            assert plan_memory(geometry, ram_bytes=least, **with_least), (
                "what it asked for is enough"
            )
        return
    page = geometry.page_bytes
    on_device = made.device_pages * page
    fixed = made.fixed_bytes + made.sketch_bytes
    held = fixed + made.host_pages * page + (on_device if shared else 0)
    assert held <= ram
    streams = made.stream_depth * parts * geometry.token_bytes // geometry.num_layers
    assert held - streams + made.mapped_bytes <= ram if unified else made.mapped_bytes == 0
    assert not unified or made.mapped_bytes >= streams
    assert made.sketch_bytes in (0, sketch)
    assert (made.sketch_refusal is not None) == (made.sketch_bytes < sketch)
    assert device is None or on_device <= device
    assert made.host_pages >= least_host_pages(geometry) and made.device_pages >= 1
    assert made.write_buffers >= 4
    assert min(depth, LEAST_STREAM_DEPTH) <= made.stream_depth <= depth
    fits = made.host_pages * geometry.page_tokens >= tokens
    assert has_file or made.needs_disk or fits


def allocated(assembly: Assembly) -> int:
    """Bytes of every tensor and buffer that an engine holds for pages."""
    memory = assembly.memory
    tensors = sum(arena.nbytes for arena in memory.device.arenas.values())
    tensors += memory.host._arena.nbytes + sum(each.scratch.nbytes for each in memory.devices)
    transfer = memory.transfer
    if transfer is None:
        return tensors
    queued = sum(
        transfer.writes._free.get().pages.nbytes for _ in range(assembly.plan.write_buffers)
    )
    assert transfer.writes._free.empty()
    streams = [half for stream in transfer._streams for half in stream.halves.values()]
    return tensors + queued + sum(half.pages.nbytes for half in streams)


@settings(max_examples=80, deadline=None)
@given(
    layers=st.integers(1, 4),
    heads=st.integers(1, 3),
    page_tokens=st.sampled_from([16, 32, 64]),
    tokens=st.integers(1, 4000),
    ram=st.integers(200_000, 4_000_000),
    device=st.none() | st.integers(10_000, 1_000_000),
    depth=st.integers(1, 8),
)
def test_no_engine_allocates_more_than_its_budget(
    layers: int, heads: int, page_tokens: int, tokens: int, ram: int, device: int | None, depth: int
) -> None:
    geometry = KVGeometry(layers, heads, 16, "bfloat16", page_tokens, 128)
    model = SimpleNamespace(
        geometry=geometry,
        device=torch.device("cpu"),
        layer_devices=(torch.device("cpu"),) * layers,
        layers=(LayerSpec(None, None, 1.0, 0),) * layers,
    )
    with TemporaryDirectory() as folder:
        config = EngineConfig(
            ram_bytes=ram,
            device_bytes=device,
            part_tokens=256,
            stream_depth=depth,
            spill_folder=Path(folder),
        )
        try:
            made = assemble(model, config, Telemetry(), num_tokens=tokens, file=None)  # type: ignore[arg-type]
        except OverBudget:
            return
        assert allocated(made) <= ram
        if made.file is not None:
            made.file.close()
