"""Managed memory of CUDA: one address for RAM and the device; pages come on fault, or when told.

Owns one stretch of it, made by NVIDIA's own bindings, and the advice that goes with it. Knows
nothing of pages: whoever asks gives addresses. The driver moves what compute touches; told ahead,
it does so beside compute. More managed memory than the device can hold would be moved to and fro
forever, so `assembly` never plans more than it has free.
"""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from engine.errors import ConfigError
from engine.tiers.cuda_runtime import find_runtime


class ManagedMemory:
    """A stretch of managed memory; freed with the object.

    Args:
        num_bytes: How long.
        device: The CUDA device that reads it.

    Raises:
        ConfigError: No bindings, no driver, or a device that cannot fault.
    """

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        self._runtime = _bindings()
        self._device = device
        self._pointer = 0
        index = device.index or 0
        attribute = self._runtime.cudaDeviceAttr.cudaDevAttrConcurrentManagedAccess
        if not self._call("cudaDeviceGetAttribute", attribute, index):
            raise ConfigError(
                f"{device} cannot share memory with the CPU while both work",
                "Leave --pager at explicit.",
            )
        self._num_bytes = max(num_bytes, 1)
        whole = self._runtime.cudaMemAttachGlobal
        self._pointer = int(self._call("cudaMallocManaged", self._num_bytes, whole))
        self._place = self._runtime.cudaMemLocation()
        self._place.type = self._runtime.cudaMemLocationType.cudaMemLocationTypeDevice
        self._place.id = index
        # It stays mapped for the device wherever it lies: what is not moved is read over the link.
        advice = self._runtime.cudaMemoryAdvise.cudaMemAdviseSetAccessedBy
        self._call("cudaMemAdvise", self._pointer, self._num_bytes, advice, self._place)

    @property
    def in_ram(self) -> Tensor:
        """The bytes for the CPU, `[num_bytes]` uint8."""
        array = (ctypes.c_ubyte * self._num_bytes).from_address(self._pointer)
        array.owner = self  # type: ignore[attr-defined]
        return torch.frombuffer(array, dtype=torch.uint8)

    @property
    def on_device(self) -> Tensor:
        """The same bytes for the device, `[num_bytes]` uint8."""
        return torch.as_tensor(_DeviceBytes(self, self._pointer, self._num_bytes), device="cuda")

    def send_up(self, address: int, num_bytes: int, stream: int) -> None:
        """Have bytes moved to the device, in the order of a stream given by its handle."""
        self._call("cudaMemPrefetchAsync", address, num_bytes, self._place, 0, stream)

    def _call(self, name: str, *arguments: Any) -> Any:
        error, *found = getattr(self._runtime, name)(*arguments)
        if error != self._runtime.cudaError_t.cudaSuccess:
            raise ConfigError(
                f"unified memory is not to be had: {name} says {error.name}",
                "Leave --pager at explicit, or give a smaller --ram.",
            )
        return found[0] if found else None

    def __del__(self) -> None:
        if getattr(self, "_pointer", 0):
            self._runtime.cudaFree(self._pointer)


class _DeviceBytes:
    """Says by the CUDA array interface (version 3) where bytes lie, and keeps them."""

    def __init__(self, owner: ManagedMemory, pointer: int, num_bytes: int) -> None:
        self._owner = owner
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,), "typestr": "|u1", "data": (pointer, False), "version": 3,
        }  # fmt: skip


def _bindings() -> ModuleType:
    """NVIDIA's bindings of the CUDA runtime, of CUDA 13 or newer.

    Raises:
        ConfigError: They are not installed, or too old.
    """
    runtime = find_runtime()
    if runtime is None:
        raise ConfigError(
            "unified memory on CUDA needs the package cuda-bindings, version 13",
            "Run pip install 'cuda-bindings>=13', or leave --pager at explicit.",
        )
    return runtime
