"""What torch does not offer of the CUDA runtime: page-locking, strided copies, and the bindings.

Owns the calls and what becomes of their errors. NVIDIA's bindings (package cuda-bindings) are
optional; whoever needs them says what is done without. Everything that is decided here is a
function of numbers, so that it can be tried without a device.
"""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from engine.errors import ConfigError
from engine.session import aligned_buffer

PORTABLE = 1
"""`cudaHostRegisterPortable`: page-locked for every device, not only the current one."""


def find_runtime() -> ModuleType | None:
    """Give NVIDIA's bindings of the CUDA runtime, of CUDA 13 or newer; None without them."""
    try:
        runtime = import_module("cuda.bindings.runtime")
    except ImportError:
        return None
    return runtime if hasattr(runtime, "cudaMemLocation") else None


def page_locked(num_bytes: int) -> Tensor:
    """Give uninitialised bytes `[num_bytes]` that a CUDA device copies from and to beside compute.

    torch's own page-locked memory takes the next power of two: 33 GB would be 64.

    Raises:
        ConfigError: The system does not lock so much.
    """
    memory = (ctypes.c_ubyte * num_bytes).from_buffer(aligned_buffer(num_bytes))
    address = ctypes.addressof(memory)
    driver: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    error = driver.cudaHostRegister(address, num_bytes, PORTABLE)
    if int(error):
        raise ConfigError(
            f"{num_bytes:,} bytes of RAM cannot be page-locked for the GPU (CUDA error "
            f"{int(error)})",
            "Give a smaller --ram, or raise what the system lets a process lock (ulimit -l).",
        )
    # Before the memory itself goes; at the end of the process the driver does it.
    weakref.finalize(memory, driver.cudaHostUnregister, address).atexit = False
    return torch.frombuffer(memory, dtype=torch.uint8)


@dataclass(frozen=True, slots=True)
class Lines:
    """Memory as lines of one length, one pitch apart, bytes."""

    count: int
    width: int
    pitch: int


def lines_of(tensor: Tensor) -> Lines | None:
    """Describe a tensor's memory as the fewest lines, in its order; None if it is not regular."""
    width, dims = tensor.element_size(), list(zip(tensor.shape, tensor.stride(), strict=True))
    dims = [(size, stride * width) for size, stride in dims if size != 1]
    while dims and dims[-1][1] == width:
        width *= dims.pop()[0]
    if not dims:
        return Lines(1, width, width)
    count, pitch = dims.pop()
    for size, stride in reversed(dims):
        if stride != count * pitch:
            return None
        count *= size
    return Lines(count, width, pitch)


def copy_lines(
    runtime: ModuleType, target: Tensor, source: Tensor, lines: Lines, stream: int
) -> None:
    """Queue one copy between RAM and a device where the side in RAM lies in lines.

    Args:
        runtime: The bindings.
        target: On one side.
        source: On the other, of the same shape; the side on the device is contiguous.
        lines: Of the side in RAM, which is page-locked.
        stream: Handle of the stream.

    Raises:
        RuntimeError: The device failed, as torch says it.
    """
    kinds = runtime.cudaMemcpyKind
    down = source.is_cuda
    kind = kinds.cudaMemcpyDeviceToHost if down else kinds.cudaMemcpyHostToDevice
    pitches = (lines.pitch, lines.width) if down else (lines.width, lines.pitch)
    (error,) = runtime.cudaMemcpy2DAsync(
        target.data_ptr(), pitches[0], source.data_ptr(), pitches[1], lines.width, lines.count,
        kind, stream,
    )  # fmt: skip
    if int(error):
        raise RuntimeError(f"CUDA error: copying {lines.count} lines failed ({error.name})")
