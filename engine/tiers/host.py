"""The host tier: pages at rest in RAM, position-free.

Owns one arena `[capacity, num_layers, 2, num_kv_heads, page_tokens, head_dim]`, pinned where a CUDA
device will read it, or shared with the device as managed memory. Does not know which page lies in
which slot.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from engine.tiers.copies import CopyStream, SharedMemory
from engine.tiers.cuda_runtime import page_locked
from engine.types import KVGeometry, Part, SlotId

BLOCK: Final = 4096
"""Bytes of a disk block."""


class HostTier:
    """The arena of pages at rest.

    Args:
        geometry: Shape of the KV.
        capacity: Page slots.
        pinned: Page-lock the arena, for copies to a CUDA device that do not block.
        shared: Memory that a device reads where it lies, used instead; `capacity` pages.
    """

    def __init__(
        self,
        geometry: KVGeometry,
        capacity: int,
        *,
        pinned: bool,
        shared: SharedMemory | None = None,
    ) -> None:
        shape = (
            capacity,
            geometry.num_layers,
            2,
            geometry.num_kv_heads,
            geometry.page_tokens,
            geometry.head_dim,
        )

        def shaped(memory: Tensor) -> Tensor:
            return memory.view(getattr(torch, geometry.dtype)).view(shape)

        # Pages can be read into it around the page cache.
        num_bytes = capacity * geometry.page_bytes
        own = block_aligned(num_bytes, pinned=pinned) if shared is None else shared.in_ram
        self._arena = shaped(own)
        self._shared = shared
        self._on_device = None if shared is None else shaped(shared.on_device)

    def bytes_of(self, slot: SlotId) -> memoryview:
        """The memory of one page, `page_bytes` bytes in the order of the session file's tail."""
        return memoryview(self._arena[slot].view(torch.uint8).numpy().reshape(-1).data)

    def slices_of(self, slot: SlotId) -> list[list[memoryview]]:
        """The memory of one page by layer and half, `page_slice_bytes` bytes each."""
        return [
            [memoryview(half.view(torch.uint8).numpy().reshape(-1).data) for half in layer]
            for layer in self._arena[slot]
        ]

    def view(self, layer: int, part: Part, slot: SlotId, offset: int, num_tokens: int) -> Tensor:
        """Give `[num_kv_heads, num_tokens, head_dim]` of one page; a view."""
        return self._arena[slot, layer, part, :, offset : offset + num_tokens]

    def pages(self, layer: int, part: Part, first: SlotId, num_pages: int) -> Tensor:
        """Give `[num_pages, num_kv_heads, page_tokens, head_dim]` of neighbouring slots; a view."""
        return self._arena[first : first + num_pages, layer, part]

    @property
    def is_shared(self) -> bool:
        """Whether a device reads pages where they lie."""
        return self._shared is not None

    def pages_on_device(self, layer: int, part: Part, first: SlotId, num_pages: int) -> Tensor:
        """As `pages`, the same memory for the device; only if it is shared."""
        assert self._on_device is not None
        return self._on_device[first : first + num_pages, layer, part]

    def send_up(
        self, layer: int, part: Part, first: SlotId, num_pages: int, stream: CopyStream
    ) -> None:
        """Have the driver move pages to the device; only if they are shared."""
        assert self._shared is not None
        for page in self.pages_on_device(layer, part, first, num_pages):
            stream.send_up(self._shared, page)

    def copy(self, source: SlotId, target: SlotId) -> None:
        """Copy one page to another slot."""
        self._arena[target] = self._arena[source]


def block_aligned(num_bytes: int, *, pinned: bool) -> Tensor:
    """Give uninitialised bytes that begin on a disk block, page-locked if asked for.

    Raises:
        ConfigError: The system does not lock so much.
    """
    if pinned:
        return page_locked(num_bytes)
    memory = torch.empty(num_bytes + BLOCK, dtype=torch.uint8)
    first = -memory.data_ptr() % BLOCK
    return memory[first : first + num_bytes]
