"""What can be known of a run at one moment: plain values, sums since the start.

Owns the names and meanings of the figures. Who counts them is `engine.telemetry`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.types import Tier


class Phase(Enum):
    """What the engine's thread is doing. Everything but COMPUTE and IDLE is a stall."""

    IDLE = "idle"
    COMPUTE = "compute"
    READ = "read"
    """Waiting for pages from disk."""
    WRITE = "write"
    """Back-pressure: waiting for a free write buffer."""
    COMMIT = "commit"
    """Making a checkpoint durable: queued writes, then the commit itself."""
    DECODE = "decode"
    """Bringing up pages at rest: rotating, decoding and copying them. On CUDA, starting that."""
    LOCK = "lock"
    """Waiting for a lock that another thread holds."""


STALLS = tuple(phase for phase in Phase if phase not in (Phase.IDLE, Phase.COMPUTE))
"""The causes of a stall."""


class Link(Enum):
    """A way that pages take between two tiers."""

    HOST_TO_DEVICE = "host_to_device"
    """Pages at rest in RAM, rotated into the device tier or into scratch there."""
    DISK_TO_HOST = "disk_to_host"
    HOST_TO_DISK = "host_to_disk"


@dataclass(frozen=True, slots=True)
class LinkUse:
    """One link; sums since the start."""

    moved_bytes: int = 0
    moves: int = 0
    """Pieces of I/O, or attention parts brought up."""
    busy_s: float = 0.0
    """Seconds that at least one thread was moving: checksums count, waiting for a turn does not."""


@dataclass(frozen=True, slots=True)
class TierUse:
    """One tier at one moment."""

    name: str
    capacity_bytes: int | None
    """None: bounded by the disk alone."""
    used_bytes: int
    """Bytes of every copy that lies here."""
    pages: int
    """Pages whose fastest copy lies here."""
    evictions: int
    hot_pages: int = 0
    """Those of `pages` that one of the last `HOT_STEPS` steps has read."""
    hot_bytes: int = 0
    """Bytes of the hot pages' copies here."""


HOT_STEPS = 8
"""A page is hot while it was read within so many steps."""


@dataclass(frozen=True, slots=True)
class MapCell:
    """Neighbouring pages of the main sequence."""

    tier: Tier | None
    """The fastest tier that any of them lies in; None: nowhere yet."""
    is_hot: bool
    """Whether any of them is hot."""


@dataclass(frozen=True, slots=True)
class ResidencyMap:
    """The main sequence from its first page to its last, cut evenly into cells."""

    cells: tuple[MapCell, ...]
    num_pages: int


@dataclass(slots=True)
class PrefetchCounts:
    """What became of pages, or of parts of a layer, that were read before they were asked for."""

    issued: int = 0
    useful: int = 0
    """Used after they had come; of these,"""
    late: int = 0
    """asked for while they were still on their way."""
    wasted: int = 0
    """Gone before anybody used them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything at one moment; sums since the start."""

    wall_s: float
    seconds: dict[Phase, float]
    tiers: tuple[TierUse, ...]
    total_pages: int
    hits: dict[Tier, int]
    """Pages read by steps and for answers, by the tier that served them."""
    reuse: tuple[int, ...]
    """Reads of pages that had been read before: item i counts those whose last read lay
    `[2**i, 2**(i + 1))` steps back. The last item that is not 0 ends it."""
    links: dict[Link, LinkUse]
    prefetch: PrefetchCounts
    """Pages that may be asked for, brought into the host tier."""
    read_ahead: PrefetchCounts
    """Parts of a layer that will be asked for next, streamed ahead of compute."""
    major_faults: int
    """Times that the process waited because memory it touched was not there: unified memory."""
    tokens_done: int
    """Tokens of the current task that have KV."""
    tokens_total: int
    """Tokens of the current task."""
    task: str
    decoded_tokens: int

    @property
    def read_bytes(self) -> int:
        """Bytes read from the disk tier."""
        return self.links[Link.DISK_TO_HOST].moved_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes written to the disk tier."""
        return self.links[Link.HOST_TO_DISK].moved_bytes

    @property
    def stall_s(self) -> float:
        """Seconds the engine's thread did not compute although it had to, for whatever cause."""
        return sum(self.seconds[cause] for cause in STALLS)
