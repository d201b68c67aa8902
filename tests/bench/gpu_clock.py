"""How figures of a device are taken, and what one figure is.

Owns the clock and the peaks. A peak is what this device does in the same run with one large copy,
never a number from a list. On a CPU everything runs with tiny tensors: that proves the scripts, and
says nothing about speed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

REPEATS = 7
GB = 1e9


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; more is better."""

    what: str
    value: float
    unit: str
    peak: float
    """What the hardware, or what it is compared with, gave in the same run, in the same unit."""
    peak_of: str
    """What the peak is of."""
    goal: float | None = None
    """Least share of the peak; None: shown only."""
    least: float | None = None
    """Least value, whatever the peak."""

    @property
    def share(self) -> float:
        """Value over peak."""
        return self.value / self.peak

    @property
    def passes(self) -> bool | None:
        """Whether its goals are met; None if there are none."""
        if self.goal is None and self.least is None:
            return None
        return self.share >= (self.goal or 0.0) and self.value >= (self.least or 0.0)


@dataclass(frozen=True, slots=True)
class Peaks:
    """What one large copy does, bytes per second."""

    memory: float
    """Within the device; each byte counts twice, read and written."""
    up: float
    """From page-locked RAM to the device."""
    down: float
    """From the device to page-locked RAM."""


@dataclass(frozen=True, slots=True)
class GpuBench:
    """What every timing script is given."""

    device: torch.device
    peaks: Peaks
    is_tiny: bool
    """Whether to take the smallest sizes that run all code."""

    def size(self, full: int, tiny: int) -> int:
        """Choose a size."""
        return tiny if self.is_tiny else full

    def seconds(self, call: Callable[[], object]) -> float:
        """Time a call on the device; see `seconds`."""
        return seconds(call, self.device)


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Give the median time of a call, seconds, after two calls that do not count.

    On CUDA the time between two events on the current stream, so what the call queues elsewhere has
    to be waited for by that stream.
    """
    for _ in range(2):
        call()
    return statistics.median(_once(call, device) for _ in range(REPEATS))


def _once(call: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        started = time.perf_counter()
        call()
        return max(time.perf_counter() - started, 1e-9)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def in_ram(num_bytes: int, device: torch.device) -> Tensor:
    """Bytes in RAM, page-locked if the device is not the CPU."""
    return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")


def measure_peaks(device: torch.device, num_bytes: int) -> Peaks:
    """Time large copies within the device and over its link."""
    there, other = (torch.empty(num_bytes, dtype=torch.uint8, device=device) for _ in range(2))
    here = in_ram(num_bytes, device)
    within = seconds(lambda: other.copy_(there), device)
    up = seconds(lambda: there.copy_(here, non_blocking=True), device)
    down = seconds(lambda: here.copy_(there, non_blocking=True), device)
    return Peaks(2 * num_bytes / within, num_bytes / up, num_bytes / down)


def make_bench(device: torch.device) -> GpuBench:
    """Measure the peaks of a device; everything is tiny on a CPU."""
    is_tiny = device.type != "cuda"
    return GpuBench(device, measure_peaks(device, 1 << 16 if is_tiny else 1 << 30), is_tiny)
