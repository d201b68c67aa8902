"""Copies between RAM and the device that compute reads: beside compute, where the device can.

Owns the order between copies and compute; which bytes go where is said by others. A call queues a
copy and returns; whoever then uses or overwrites either side waits at a `Point`. One stream a
direction, since a link carries both at once. Where the device is the CPU, a copy is done at once.
"""

from __future__ import annotations

from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor

from engine.tiers.cuda_runtime import copy_lines, find_runtime, lines_of


class Point(Protocol):
    """A place in a queue of work: everything that was queued before it."""

    def synchronize(self) -> None:
        """Wait on this thread until all of it is done; others may run meanwhile."""


class SharedMemory(Protocol):
    """Memory that both sides read where it lies; see `engine.tiers.managed`."""

    @property
    def in_ram(self) -> Tensor:
        """The bytes for the CPU, uint8."""

    @property
    def on_device(self) -> Tensor:
        """The same bytes for the device, uint8."""

    def send_up(self, address: int, num_bytes: int, stream: int) -> None:
        """Have bytes moved to the device, in the order of a stream given by its handle."""


class CopyStream(Protocol):
    """A queue of copies beside the queue of compute."""

    @property
    def has_own_memory(self) -> bool:
        """Whether pages must be copied before compute can read them."""

    def compute_point(self) -> Point:
        """Everything that compute has queued so far."""

    def after(self, point: Point) -> None:
        """Have the copies queued from now on wait for a point of compute."""

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Queue a copy; both sides of the same shape, any strides."""

    def send_up(self, memory: SharedMemory, part: Tensor) -> None:
        """Queue moving a contiguous part of shared memory, as the device sees it, to the device."""

    def point(self) -> Point:
        """Every copy queued so far."""

    def before_compute(self, point: Point) -> None:
        """Have what compute queues from now on wait for a point of the copies."""

    def drain(self) -> None:
        """Wait on this thread until every copy is done."""


class _Done:
    def synchronize(self) -> None:
        """Nothing to wait for."""


class InlineCopies:
    """Copies of a device that is the CPU: done at once."""

    has_own_memory = False

    def compute_point(self) -> Point:
        """Compute is done with everything."""
        return _Done()

    def after(self, point: Point) -> None:
        """Nothing to wait for."""

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Copy now."""
        target.copy_(source)

    def send_up(self, memory: SharedMemory, part: Tensor) -> None:
        """It is there."""

    def point(self) -> Point:
        """All copies are done."""
        return _Done()

    def before_compute(self, point: Point) -> None:
        """Nothing to wait for."""

    def drain(self) -> None:
        """Nothing to wait for."""


class CudaCopies:
    """Copies on a CUDA stream of their own.

    They run beside compute only if the side in RAM is page-locked. Pages of neighbouring slots are
    one copy of lines; without NVIDIA's bindings they are one copy each.

    Args:
        device: The CUDA device.
    """

    has_own_memory = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._runtime = find_runtime()

    def compute_point(self) -> Point:
        """An event on the stream that compute uses now."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def after(self, point: Point) -> None:
        """Make the stream wait, not the thread."""
        assert isinstance(point, torch.cuda.Event)
        self._stream.wait_event(point)

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Queue a copy; memory of either side on the device is kept until it is done."""
        for side in (target, source):
            if side.is_cuda:
                side.record_stream(self._stream)
        with torch.cuda.stream(self._stream):
            if source.is_cuda:
                source = source.contiguous()  # by a kernel: copies take whole lines
            queue_copy(self._runtime, target, source, self._stream.cuda_stream)

    def send_up(self, memory: SharedMemory, part: Tensor) -> None:
        """Queue it on the stream."""
        memory.send_up(part.data_ptr(), part.nbytes, self._stream.cuda_stream)

    def point(self) -> Point:
        """An event on the stream of copies."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def before_compute(self, point: Point) -> None:
        """Make the stream of compute wait, not the thread."""
        assert isinstance(point, torch.cuda.Event)
        torch.cuda.current_stream(self._device).wait_event(point)

    def drain(self) -> None:
        """Wait for the stream."""
        self._stream.synchronize()


def queue_copy(runtime: ModuleType | None, target: Tensor, source: Tensor, stream: int) -> None:
    """Queue a copy on the current stream in as few pieces as there is a call for.

    Args:
        runtime: NVIDIA's bindings, if there are any.
        target: On one side.
        source: On the other; the side on the device is contiguous.
        stream: Handle of the current stream.
    """
    in_ram = target if source.is_cuda else source
    lines = lines_of(in_ram)
    if lines is not None and lines.count == 1:
        target.copy_(source, non_blocking=True)
    elif lines is not None and runtime is not None:
        copy_lines(runtime, target, source, lines, stream)
    else:
        for into, piece in zip(target, source, strict=True):
            queue_copy(runtime, into, piece, stream)


def copy_streams(device: torch.device) -> tuple[CopyStream, CopyStream]:
    """Give the streams up to the device and down from it."""
    if device.type == "cuda":
        return CudaCopies(device), CudaCopies(device)
    return InlineCopies(), InlineCopies()
