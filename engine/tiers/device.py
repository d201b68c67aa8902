"""The device tier: rotated pages, laid out so that attention reads a run of pages as one view.

Owns one arena a device, `[its layers, 2, num_kv_heads, capacity * page_tokens, head_dim]`: page
slots are neighbours along the token axis, so pages in neighbouring slots are one view
`[num_kv_heads, N, head_dim]`. A page has the same slot in every arena. Does not know which page
lies in a slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.types import KVGeometry, Part, SlotId


class DeviceTier:
    """The arenas that attention reads.

    Args:
        geometry: Shape of the KV.
        capacity: Page slots.
        devices: Where the pages of each layer lie, `num_layers` of them.
    """

    def __init__(
        self, geometry: KVGeometry, capacity: int, devices: Sequence[torch.device]
    ) -> None:
        assert len(devices) == geometry.num_layers
        self._page_tokens = geometry.page_tokens
        # Left uninitialised: the system gives memory only to slots that are used.
        self.arenas = {
            device: torch.empty(
                num_layers,
                2,
                geometry.num_kv_heads,
                capacity * geometry.page_tokens,
                geometry.head_dim,
                dtype=getattr(torch, geometry.dtype),
                device=device,
            )
            for device, num_layers in Counter(devices).items()
        }
        """By device."""
        rest = {device: iter(arena) for device, arena in self.arenas.items()}
        # Indexing by layer and half takes longer than all the rest of making a view.
        self._halves: list[tuple[Tensor, ...]] = [next(rest[one]).unbind() for one in devices]

    def view(self, layer: int, part: Part, slot: SlotId, offset: int, num_tokens: int) -> Tensor:
        """Give `[num_kv_heads, num_tokens, head_dim]` from token `offset` of `slot` on; a view.

        The tokens may run on into the slots that follow.
        """
        begin = slot * self._page_tokens + offset
        return self._halves[layer][part].narrow(1, begin, num_tokens)

    def halves(self, layer: int) -> tuple[Tensor, Tensor]:
        """Give keys and values of all slots, `[num_kv_heads, capacity * page_tokens, head_dim]`."""
        return self._halves[layer][Part.KEYS], self._halves[layer][Part.VALUES]

    def copy(self, source: SlotId, target: SlotId) -> None:
        """Copy one page to another slot, every layer."""
        size = self._page_tokens
        begin, end = source * size, target * size
        for arena in self.arenas.values():
            arena[:, :, :, end : end + size] = arena[:, :, :, begin : begin + size]
