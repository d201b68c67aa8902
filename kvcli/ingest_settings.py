"""How tokens are read: what beside the model decides the bits of their KV.

Owns the settings that a session remembers and the check that this kvcli still reads that way. They
are constants of a version, not options: a session of one that read otherwise is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.config import STEP_TOKENS, EngineConfig
from engine.errors import IdentityMismatch
from engine.sequence import TURN
from engine.tiers.past import SINK_TOKENS

LOCAL_WINDOW = 1024
"""Tokens before a step that documents are read with in focus, beside the sinks."""


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """Numbers of tokens. The defaults are those of the first sessions, which do not tell them."""

    step: int = 1024
    """Computed at once; what a token attends to begins with its step."""
    part: int = 2048
    """Attended to at once: decides the order of sums."""
    sinks: int = 128
    """At the beginning, that every step sees."""
    local_window: int = 1024
    """Before a step that it sees in focus."""
    turn: int = 1 << 15
    """After which positions begin anew in focus."""

    @classmethod
    def of_now(cls) -> IngestSettings:
        """How this kvcli reads."""
        part = EngineConfig(ram_bytes=0).part_tokens
        return cls(STEP_TOKENS, part, SINK_TOKENS, LOCAL_WINDOW, TURN)

    def require_same(self, session: object) -> None:
        """Refuse a session that was read with other settings.

        Args:
            session: Its name.

        Raises:
            IdentityMismatch: Names the first that differs, with both values.
        """
        now = self.of_now()
        for field in fields(self):
            stored, wanted = getattr(self, field.name), getattr(now, field.name)
            if stored != wanted:
                raise IdentityMismatch(
                    f"{session}: it was read with a {field.name.replace('_', ' ')} of {stored:,} "
                    f"tokens, this kvcli reads with {wanted:,}",
                    "Compute it again from its token ids: kvcli resume --rebuild",
                )

    def to_json(self) -> dict[str, int]:
        """A dict, all of it JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, numbers: Mapping[str, Any]) -> IngestSettings:
        """The inverse of `to_json`; raises what a wrong shape raises."""
        return cls(**{str(name): int(number) for name, number in numbers.items()})
