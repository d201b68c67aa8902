"""The page accesses of a run, read back from its metrics.

Owns what makes a metrics file fit for comparing policies. What an access is, `engine.trace` says;
lines and runs are `kvcli.run_log`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import NothingReadable
from engine.trace import Access, AccessKind
from engine.types import Tier
from kvcli.run_log import ADVICE, read_runs


@dataclass(frozen=True, slots=True)
class AccessLog:
    """What one run did with its pages."""

    accesses: tuple[Access, ...]
    """In order; at least one reads pages."""
    page_bytes: int
    """Bytes of one page."""


def read_accesses(path: Path) -> AccessLog:
    """Read the accesses of a metrics file; of several runs in it, the last one's.

    Raises:
        NothingReadable: It cannot be read, is no metrics file, or no page was ever read in it.
    """
    runs = read_runs(path, with_accesses=True)
    if not runs:
        raise NothingReadable(f"{path} has no sample of a run", ADVICE)
    try:
        events = [event for sample in runs[-1] for event in sample.get("accesses", ())]
        accesses = tuple(Access.from_json(event) for event in events)
    except (TypeError, ValueError) as error:
        raise NothingReadable(f"{path} has page accesses that are none", ADVICE) from error
    if not any(access.kind is AccessKind.READ for access in accesses):
        raise NothingReadable(
            f"{path} has no page accesses: an older version wrote it, or no page was ever read",
            "Record a run that asks something by --metrics with this version.",
        )
    return AccessLog(accesses, _page_bytes(path, runs[-1]))


def _page_bytes(path: Path, samples: Sequence[dict[str, Any]]) -> int:
    """Bytes per page of the fastest tier: what lies there lies in no faster one, so that its pages
    are all that it holds.

    Raises:
        NothingReadable: No sample tells.
    """
    for sample in reversed(samples):
        for use in sample["tiers"]:
            used, pages = use.get("used_bytes"), int(use["pages"])
            if use["name"] == Tier.DEVICE.value and pages > 0 and isinstance(used, int):
                return used // pages
    raise NothingReadable(f"{path} does not tell how large a page is", ADVICE)
