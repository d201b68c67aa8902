"""What the engine did: bytes, pages and seconds, each booked exactly once.

Owns counters and the clock. Knows nothing of screens or files; readers take a `Sample`.

Invariants: compute + stall + idle is the wall clock, because the engine's thread is in exactly one
phase at any time; the pages of the tiers sum to the total, because the tier stack publishes them as
one value.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from engine.trace import AccessTrace
from engine.types import Tier


class Phase(Enum):
    """What the engine's thread is doing. Everything but COMPUTE and IDLE is a stall."""

    IDLE = "idle"
    COMPUTE = "compute"
    READ = "read"
    """Waiting for pages from disk."""
    WRITE = "write"
    """Waiting for the writer: back-pressure or a commit."""


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


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything at one moment; sums since the start."""

    wall_s: float
    seconds: dict[Phase, float]
    tiers: tuple[TierUse, ...]
    total_pages: int
    hits: dict[Tier, int]
    """Pages read by steps and for answers, by the tier that served them."""
    read_bytes: int
    written_bytes: int
    tokens_done: int
    """Tokens of the current task that have KV."""
    tokens_total: int
    """Tokens of the current task."""
    task: str
    decoded_tokens: int

    @property
    def stall_s(self) -> float:
        """Seconds the engine's thread waited for I/O."""
        return self.seconds[Phase.READ] + self.seconds[Phase.WRITE]


@dataclass(slots=True)
class Telemetry:
    """Counters shared by the engine's thread, the I/O threads and whoever watches."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _start: float = field(default_factory=time.monotonic)
    _since: float = field(default_factory=time.monotonic)
    _phase: Phase = Phase.IDLE
    _seconds: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(Phase, 0.0))
    _tiers: tuple[tuple[TierUse, ...], int] = ((), 0)
    _hits: dict[Tier, int] = field(default_factory=lambda: dict.fromkeys(Tier, 0))
    _read_bytes: int = 0
    _written_bytes: int = 0
    _task: tuple[str, int, int] = ("", 0, 0)
    _decoded_tokens: int = 0
    trace: AccessTrace = field(default_factory=AccessTrace)
    """Which pages were read, for whoever compares policies."""

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Book the time inside to `phase`; the engine's thread only. The inner one counts."""
        outer = self._switch(phase)
        try:
            yield
        finally:
            self._switch(outer)

    def _switch(self, phase: Phase) -> Phase:
        with self._lock:
            now = time.monotonic()
            self._seconds[self._phase] += now - self._since
            self._since = now
            outer, self._phase = self._phase, phase
        return outer

    def count_read(self, num_bytes: int) -> None:
        """Book bytes read from disk; any thread."""
        with self._lock:
            self._read_bytes += num_bytes

    def count_written(self, num_bytes: int) -> None:
        """Book bytes written to disk; any thread."""
        with self._lock:
            self._written_bytes += num_bytes

    def count_hits(self, hits: Mapping[Tier, int]) -> None:
        """Book pages that were read together, by the tier that served them first."""
        with self._lock:
            for tier, pages in hits.items():
                self._hits[tier] += pages

    def count_decoded(self) -> None:
        """Book one token of an answer."""
        self._decoded_tokens += 1

    def publish_tiers(self, tiers: tuple[TierUse, ...], total_pages: int) -> None:
        """Replace the residency; one assignment, so no reader sees half of it."""
        self._tiers = (tiers, total_pages)

    def publish_task(self, task: str, done: int, total: int) -> None:
        """Say what is being worked on and how far it is, tokens."""
        self._task = (task, done, total)

    def sample(self) -> Sample:
        """Take everything at this moment; any thread."""
        with self._lock:
            now = time.monotonic()
            seconds = dict(self._seconds)
            seconds[self._phase] += now - self._since
            tiers, total_pages = self._tiers
            task, done, total = self._task
            return Sample(
                wall_s=now - self._start,
                seconds=seconds,
                tiers=tiers,
                total_pages=total_pages,
                hits=dict(self._hits),
                read_bytes=self._read_bytes,
                written_bytes=self._written_bytes,
                tokens_done=done,
                tokens_total=total,
                task=task,
                decoded_tokens=self._decoded_tokens,
            )
