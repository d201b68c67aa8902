"""A sequence: token ids and the page table that holds their KV.

Owns how many of the ids already have KV. Knows no tensors and no tiers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.memory.page_table import PageTable


@dataclass(slots=True, eq=False)
class Sequence:
    """Token ids `[0, len(token_ids))`, of which `[0, table.num_tokens)` have KV."""

    table: PageTable
    token_ids: list[int] = field(default_factory=list)
    on_disk: bool = False
    """Whether sealed segments of this sequence go to the session file. Forks stay in memory."""

    local_window: int | None = None
    """Tokens before a step that it attends to, beside the sinks (bounded); None: all (exact)."""

    @property
    def num_tokens(self) -> int:
        """Tokens that have KV."""
        return self.table.num_tokens
