"""Page-locking and copies in lines, with the CPU in place of the driver."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.errors import ConfigError
from engine.tiers.copies import queue_copy
from engine.tiers.cuda_runtime import Lines, lines_of, page_locked
from engine.tiers.disk import PageBuffer
from engine.tiers.host import HostTier
from engine.types import KVGeometry, Part, SlotId

GEOMETRY = KVGeometry(2, 3, 4, "float32", page_tokens=8, segment_tokens=32)


@dataclass
class Driver:
    """Remembers what is locked."""

    refuses: bool = False
    locked: dict[int, int] = field(default_factory=dict)

    def cudaHostRegister(self, address: int, num_bytes: int, flags: int) -> int:
        if self.refuses:
            return 2
        self.locked[address] = num_bytes
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        del self.locked[address]
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: made)
    return made


def test_exactly_what_is_asked_for_is_locked_until_nobody_holds_it(driver: Driver) -> None:
    """torch's own page-locked memory takes the next power of two, so that --ram would not hold."""
    memory = page_locked(3 * 4096 + 5)
    assert driver.locked == {memory.data_ptr(): 3 * 4096 + 5}
    assert memory.data_ptr() % 4096 == 0
    view = memory.view(torch.uint8)[7:]
    view.fill_(3)
    del memory
    gc.collect()
    assert driver.locked and view.eq(3).all()
    del view
    gc.collect()
    assert not driver.locked


def test_memory_that_cannot_be_locked_is_refused_with_its_size(driver: Driver) -> None:
    driver.refuses = True
    with pytest.raises(ConfigError, match="8,192 bytes") as refused:
        page_locked(8192)
    assert "--ram" in refused.value.advice


def test_the_host_tier_and_buffers_lock_what_they_count(driver: Driver) -> None:
    tier = HostTier(GEOMETRY, 5, pinned=True)
    buffer = PageBuffer(GEOMETRY, 4, pinned=True)
    sizes = sorted(driver.locked.values())
    assert sizes == sorted([5 * GEOMETRY.page_bytes, 4 * GEOMETRY.page_slice_bytes])
    buffer.pages.fill_(2.0)
    tier.view(1, Part.KEYS, SlotId(4), 0, 8).fill_(1.0)
    assert bytes(buffer.bytes_of(3, 1))[:4] == b"\0\0\0\x40"


def runtime(calls: list[tuple[int, int]]) -> Any:
    """The one call that is used, done by the CPU."""

    def memcpy2d(  # as `cuda.bindings.runtime.cudaMemcpy2DAsync`
        target: int, target_pitch: int, source: int, source_pitch: int, width: int, height: int,
        kind: str, stream: int,
    ) -> tuple[int]:  # fmt: skip
        assert width <= target_pitch and width <= source_pitch
        calls.append((height, width))
        for line in range(height):
            begin = source + line * source_pitch
            ctypes.memmove(target + line * target_pitch, begin, width)
        return (0,)

    kinds = SimpleNamespace(cudaMemcpyDeviceToHost="down", cudaMemcpyHostToDevice="up")
    return SimpleNamespace(cudaMemcpy2DAsync=memcpy2d, cudaMemcpyKind=kinds)


def test_pages_of_neighbouring_slots_are_one_copy() -> None:
    tier, calls = HostTier(GEOMETRY, 5, pinned=False), []
    tier._arena.normal_()
    pages = tier.pages(1, Part.VALUES, SlotId(1), 3)
    arrived = torch.empty(pages.shape)
    queue_copy(runtime(calls), arrived, pages, 0)
    assert torch.equal(arrived, pages)
    assert calls == [(3, GEOMETRY.page_slice_bytes)]
    queue_copy(runtime(calls), arrived[:1], pages[2:], 0)
    assert torch.equal(arrived[0], pages[2]) and len(calls) == 1, "one page lies in one piece"


def test_without_bindings_every_page_is_a_copy_of_its_own() -> None:
    tier = HostTier(GEOMETRY, 5, pinned=False)
    tier._arena.normal_()
    pages = tier.pages(0, Part.KEYS, SlotId(0), 4)
    arrived = torch.empty(pages.shape)
    queue_copy(None, arrived, pages, 0)
    assert torch.equal(arrived, pages)


def test_some_tokens_of_a_page_are_one_line_a_head() -> None:
    """As a decode step has them: never more lines than heads, whatever the page holds."""
    tier = HostTier(GEOMETRY, 5, pinned=False)
    assert lines_of(tier.view(1, Part.KEYS, SlotId(2), 3, 1)) == Lines(3, 4 * 4, 8 * 4 * 4)
    assert lines_of(tier.view(1, Part.KEYS, SlotId(2), 0, 8)) == Lines(1, 384, 384)


def addresses(tensor: Tensor) -> list[int]:
    """Where each element lies, in order."""
    places = torch.arange(tensor.untyped_storage().nbytes() // 4)
    seen = places.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return (seen.flatten() * 4).tolist()


@given(st.permutations(range(4)), st.lists(st.integers(1, 3), min_size=4, max_size=4), st.data())
def test_lines_are_the_tensor_in_its_order(order: list[int], sizes: list[int], data: Any) -> None:
    """Whatever view: if it is described as lines, they hold its elements in order."""
    whole = torch.empty([size + 1 for size in sizes])
    cut = [slice(begin := data.draw(st.integers(0, 1)), begin + size) for size in sizes]
    view = whole[tuple(cut)].permute(order)
    lines = lines_of(view)
    if lines is None:
        return
    first = addresses(view)[0]
    found = [
        first + line * lines.pitch + byte
        for line in range(lines.count)
        for byte in range(0, lines.width, 4)
    ]
    assert found == addresses(view)
