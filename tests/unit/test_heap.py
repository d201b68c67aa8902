"""Free memory goes back to the system now and then."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from engine import heap


def resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def test_holes_in_the_heap_are_given_back() -> None:
    """Blocks below the size that is mapped, every second one freed: nothing at the end is free."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.argtypes = (ctypes.c_void_p,)
    size, count = 100_000, 2000
    blocks = [libc.malloc(size) for _ in range(count)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in blocks[::2]:
        libc.free(block)
    before = resident()
    heap.trim_heap()
    given_back = before - resident()
    for block in blocks[1::2]:
        libc.free(block)
    assert given_back > 0.7 * size * count / 2


def test_it_is_done_every_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(heap, "trim_heap", lambda: calls.append(1))
    trimmer = heap.HeapTrimmer()
    for _ in range(3 * heap.TRIM_STEPS + 1):
        trimmer.after_step()
    assert len(calls) == 3


def test_other_allocators_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_malloc_trim", lambda: None)
    heap.trim_heap()
