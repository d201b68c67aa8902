"""One line of a report of checks, and how it came out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Mark(Enum):
    """How a check came out."""

    GOOD = "ok"
    NOTE = "warning"
    BAD = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    mark: Mark
    found: str
    advice: str = ""
    figures: dict[str, Any] | None = None
    """What was measured, for `--json` alone."""
