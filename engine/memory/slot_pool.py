"""Free places in one tier's arena.

Owns which slots are free. Does not know what lies in a slot. Neighbouring pages of a sequence are
given neighbouring slots where possible, so that attention can read a run of pages as one view.
"""

from __future__ import annotations

import heapq

from engine.types import SlotId


class SlotPool:
    """`capacity` slots, numbered from 0.

    Args:
        capacity: Slots in the arena.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._free = set(range(capacity))
        self._lowest = list(range(capacity))

    @property
    def num_free(self) -> int:
        """Slots not in use."""
        return len(self._free)

    def allocate(self, after: SlotId | None = None) -> SlotId | None:
        """Take a free slot: the one following `after` if it is free, else the lowest.

        Returns:
            The slot, or None when every slot is in use.
        """
        if after is not None and after + 1 in self._free:
            self._free.remove(after + 1)
            return SlotId(after + 1)
        while self._lowest:
            slot = heapq.heappop(self._lowest)
            if slot in self._free:
                self._free.remove(slot)
                return SlotId(slot)
        return None

    def free(self, slot: SlotId) -> None:
        """Give a slot back."""
        assert slot not in self._free and 0 <= slot < self.capacity
        self._free.add(slot)
        heapq.heappush(self._lowest, slot)
