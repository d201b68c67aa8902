"""Kernels that move and code pages: bytes moved a second, beside the memory and the link.

Owns the rates of `kernels/pages.py` for pages of a model of 8 B parameters (8 KV heads of 128). A
byte that is read and one that is written count once each, as in the peak of the memory; what goes
over the link counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from engine.tiers.copies import CudaCopies, InlineCopies
from kernels import pages
from kernels.quantize import CODECS, KEYS, VALUES, coded_bytes
from tests.bench.gpu_clock import GB, Figure, GpuBench, in_ram

HEADS, DIM, PAGE = 8, 128, 64
SHAPE = (HEADS, PAGE, DIM)
PARTS = 8
"""Parts of a stream from RAM."""


@dataclass
class Room:
    """An arena of one layer, in the dtype of the KV, and where pages go in it."""

    bench: GpuBench
    num_pages: int
    arena: Tensor = field(init=False)
    slots: Tensor = field(init=False)
    turns: tuple[Tensor, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        device, count = self.bench.device, self.num_pages
        self.arena = torch.zeros(
            2, HEADS, 2 * count * PAGE, DIM, dtype=torch.bfloat16, device=device
        )
        self.slots = torch.randperm(2 * count, device=device)[:count]
        angles = torch.rand(count * PAGE, DIM // 2, device=device)
        self.turns = angles.cos(), angles.sin()

    @property
    def num_bytes(self) -> int:
        """Of the pages in the dtype of the KV, keys and values."""
        return self.num_pages * 2 * HEADS * PAGE * DIM * torch.bfloat16.itemsize

    def figure(self, what: str, num_bytes: int, call: Callable[[], object]) -> Figure:
        """Bytes a second beside the memory."""
        rate = num_bytes / self.bench.seconds(call) / GB
        return Figure(what, rate, "GB/s", self.bench.peaks.memory / GB, "memory")

    def promote(self, name: str, keys: Tensor, values: Tensor, slots: Tensor) -> None:
        """Promote coded rows `[N, bytes]`, raw ones included."""
        turns = tuple(table[: len(keys) * PAGE] for table in self.turns)
        if name != "raw":
            pages.gather_coded(
                name, keys, values, *self.arena, page_tokens=PAGE, rotation=turns, slots=slots
            )
            return
        raw = (x.view(torch.bfloat16).view(-1, *SHAPE) for x in (keys, values))
        ops = pages.page_ops(self.bench.device)
        ops.gather_pages(*raw, *self.arena, rotation=turns, slots=slots)


def figures(bench: GpuBench) -> Iterator[Figure]:
    """Rates within the device, and of promotion from RAM."""
    room = Room(bench, bench.size(1024, 4))
    slices = torch.randn(room.num_pages, *SHAPE, device=bench.device).bfloat16()
    for name in CODECS:
        coded = [pages.encode(name, part, slices) for part in (KEYS, VALUES)]
        moved = sum(x.nbytes for x in coded) + room.num_bytes
        promote = partial(room.promote, name, *coded, room.slots)
        yield room.figure(f"promotion, {name}", moved, promote)
        yield _from_ram(room, name, bench.size(32, 2))
    for name in ("fp8", "int8", "int4"):
        for part, half in ((KEYS, "keys"), (VALUES, "values")):
            yield _encoding(room, name, part, half, slices)
    yield from _tokens(room)


def _from_ram(room: Room, name: str, part_pages: int) -> Figure:
    """Parts go up by a stream of their own into two buffers, while others are promoted."""
    bench, device = room.bench, room.bench.device
    up = CudaCopies(device) if device.type == "cuda" else InlineCopies()
    sizes = [coded_bytes(name, part, SHAPE, torch.bfloat16) for part in (KEYS, VALUES)]
    num_bytes = part_pages * sum(sizes)
    here = in_ram(num_bytes, device).fill_(0)
    buffers = [torch.empty(num_bytes, dtype=torch.uint8, device=device) for _ in range(2)]
    border = part_pages * sizes[KEYS]

    def stream() -> None:
        free = [up.compute_point() for _ in buffers]
        for turn in range(PARTS):
            buffer = buffers[turn % 2]
            up.after(free[turn % 2])
            up.copy(buffer, here)
            up.before_compute(up.point())
            keys, values = buffer[:border], buffer[border:]
            rows = keys.view(part_pages, -1), values.view(part_pages, -1)
            room.promote(name, *rows, room.slots[:part_pages])
            free[turn % 2] = up.compute_point()

    rate = PARTS * num_bytes / bench.seconds(stream) / GB
    goal = 0.9 if name == "raw" else None  # parts of fewer bytes do not hide their launches
    return Figure(f"promotion from RAM, {name}", rate, "GB/s", bench.peaks.up / GB, "link up", goal)


def _encoding(room: Room, name: str, part: int, half: str, slices: Tensor) -> Figure:
    coded = pages.encode(name, part, slices)
    call: Callable[[], object] = partial(pages.encode, name, part, slices)
    if pages.by_triton(slices.device):
        from kernels.triton_encode import encode_into

        faults = torch.zeros(1, dtype=torch.int32, device=slices.device)
        call = partial(encode_into, name, part, slices, coded, faults)
    return room.figure(f"encoding, {name} {half}", slices.nbytes + coded.nbytes, call)


def _tokens(room: Room) -> Iterator[Figure]:
    """What a step writes, by one call and by one copy a half, and pages that are copied."""
    bench, ops = room.bench, pages.page_ops(room.bench.device)

    def append(num_tokens: int) -> Callable[[], object]:
        step = torch.zeros(
            2, num_tokens, HEADS, DIM, dtype=torch.bfloat16, device=bench.device
        ).transpose(1, 2)
        turns = tuple(table[:num_tokens] for table in room.turns)
        own = torch.empty_like(step[0])
        return lambda: ops.append(
            *step, *room.arena, rotation=turns, page_tokens=PAGE, slots=room.slots, own=own
        )

    count = bench.size(16_384, 64)
    num_bytes = count * HEADS * DIM * torch.bfloat16.itemsize
    yield room.figure(f"append, {count:,} tokens", 5 * num_bytes, append(count))
    one, into = torch.zeros_like(room.arena[:, :, :1]), room.arena[:, :, 77:78]
    plain = 1 / bench.seconds(lambda: [half.copy_(x) for half, x in zip(into, one, strict=True)])
    rate = 1 / bench.seconds(append(1))
    yield Figure("append, one token", rate, "calls/s", plain, "two copies without rotation")
    free = torch.ones(2 * room.num_pages, dtype=torch.bool, device=bench.device)
    free[room.slots] = False
    targets = free.nonzero()[:, 0]
    yield room.figure(
        "pages copied on write", 2 * room.num_bytes,
        lambda: ops.copy_pages(room.arena, room.slots, targets, page_tokens=PAGE),
    )  # fmt: skip
