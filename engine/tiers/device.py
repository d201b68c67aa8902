"""The device tier: rotated pages, laid out so that attention reads a run of pages as one view.

Owns one arena `[num_layers, 2, num_kv_heads, capacity * page_tokens, head_dim]`: page slots are
neighbours along the token axis, so pages in neighbouring slots are one view `[num_kv_heads, N,
head_dim]`. Does not know which page lies in a slot.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.types import KVGeometry, Part, SlotId


class DeviceTier:
    """The arena that attention reads.

    Args:
        geometry: Shape of the KV.
        capacity: Page slots.
        device: Where it lies.
    """

    def __init__(self, geometry: KVGeometry, capacity: int, device: torch.device) -> None:
        self._page_tokens = geometry.page_tokens
        # Left uninitialised: the system gives memory only to slots that are used.
        self._arena = torch.empty(
            geometry.num_layers,
            2,
            geometry.num_kv_heads,
            capacity * geometry.page_tokens,
            geometry.head_dim,
            dtype=getattr(torch, geometry.dtype),
            device=device,
        )

    def view(self, layer: int, part: Part, slot: SlotId, offset: int, num_tokens: int) -> Tensor:
        """Give `[num_kv_heads, num_tokens, head_dim]` from token `offset` of `slot` on; a view.

        The tokens may run on into the slots that follow.
        """
        begin = slot * self._page_tokens + offset
        return self._arena[layer, part, :, begin : begin + num_tokens]

    def copy(self, source: SlotId, target: SlotId) -> None:
        """Copy one page to another slot, every layer."""
        size = self._page_tokens
        begin, end = source * size, target * size
        self._arena[:, :, :, end : end + size] = self._arena[:, :, :, begin : begin + size]
