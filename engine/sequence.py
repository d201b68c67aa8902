"""A sequence: token ids and the page table that holds their KV.

Owns how many of the ids already have KV. Knows no tensors and no tiers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from engine.memory.page_table import PageTable

TURN = 1 << 15
"""Positions of a bounded sequence start anew after so many tokens. Nothing attends that far, so
only distances within a local window count, and rotation tables stay small at any length."""


@dataclass(slots=True, eq=False)
class Sequence:
    """Token ids `[0, len(token_ids))`, of which `[0, table.num_tokens)` have KV."""

    table: PageTable
    token_ids: list[int] = field(default_factory=list)
    on_disk: bool = False
    """Whether sealed segments of this sequence go to the session file. Forks stay in memory."""

    local_window: int | None = None
    """Tokens before a step that it attends to, beside the sinks (bounded); None: all (exact)."""

    stored_tokens: int = 0
    """Leading tokens whose KV lies in the session file whether or not it is computed again."""

    @property
    def num_tokens(self) -> int:
        """Tokens that have KV."""
        return self.table.num_tokens

    def position(self, token: int) -> int:
        """Where a token stands, for RoPE."""
        return token if self.local_window is None else token % TURN

    def turn_end(self, token: int) -> int:
        """One past the last token whose position follows on from that of `token`."""
        assert self.local_window is None or self.local_window < TURN
        return sys.maxsize if self.local_window is None else (token // TURN + 1) * TURN
