"""What the engine did: bytes, pages and seconds, each booked exactly once.

Owns counters and the clock. Knows nothing of screens or files; readers take a `Sample`.

Invariants: compute + stalls + idle is the wall clock, because the engine's thread is in exactly one
phase at any time; the pages of the tiers sum to the total, because the tier stack publishes them as
one value.

The one lock that the engine's thread can find taken by an I/O thread is the one in here, so the
wait for it is booked here too (`Phase.LOCK`). The session file has locks of its own: the engine's
thread meets them in a commit alone, when the writer has nothing left to do.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType

from engine.sample import (
    STALLS,
    Link,
    LinkUse,
    MapCell,
    Phase,
    PrefetchCounts,
    ResidencyMap,
    Sample,
    TierUse,
)
from engine.trace import AccessTrace
from engine.types import Tier

__all__ = [
    "STALLS",
    "Link",
    "LinkUse",
    "MapCell",
    "Phase",
    "PrefetchCounts",
    "ResidencyMap",
    "Sample",
    "Telemetry",
    "TierUse",
]

MAP_SECONDS = 0.25
"""Shortest time between two residency maps."""

MAP_SHARE = 0.01
"""Most of the engine's time that drawing them may take."""


def _major_faults() -> int:
    """Of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


@dataclass(slots=True)
class _LinkCount:
    """What one link has moved so far, and who is moving now."""

    moved_bytes: int = 0
    moves: int = 0
    busy_s: float = 0.0
    threads: int = 0
    since: float = 0.0
    """When the first of the threads began."""

    def use(self, now: float) -> LinkUse:
        running = now - self.since if self.threads else 0.0
        return LinkUse(self.moved_bytes, self.moves, self.busy_s + running)


@dataclass(slots=True)
class Telemetry:
    """Counters shared by the engine's thread, the I/O threads and whoever watches."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _start: float = field(default_factory=time.monotonic)
    _since: float = field(default_factory=time.monotonic)
    _phase: Phase = Phase.IDLE
    _seconds: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(Phase, 0.0))
    _residency: tuple[tuple[TierUse, ...], int, tuple[int, ...]] = ((), 0, ())
    _hits: dict[Tier, int] = field(default_factory=lambda: dict.fromkeys(Tier, 0))
    _links: dict[Link, _LinkCount] = field(
        default_factory=lambda: {link: _LinkCount() for link in Link}
    )
    _task: tuple[str, int, int] = ("", 0, 0)
    _decoded_tokens: int = 0
    _map: ResidencyMap | None = None
    _map_cells: int | None = None
    """Cells that somebody has asked for since the last map."""
    _map_begun: float = 0.0
    _map_due: float = 0.0
    prefetch: PrefetchCounts = field(default_factory=PrefetchCounts)
    """Pages, counted by whoever prefetches, on the engine's thread."""
    read_ahead: PrefetchCounts = field(default_factory=PrefetchCounts)
    """Parts of a layer, counted by whoever streams, on the engine's thread."""
    _faults_before: int = field(default_factory=_major_faults)
    trace: AccessTrace = field(default_factory=AccessTrace)
    """Which pages were read, for whoever compares policies."""

    def phase(self, phase: Phase) -> _Span:
        """Book the time inside a `with` to `phase`; the engine's thread only. The inner one counts.

        The outer phase goes on when the inner one ends, also by an error.
        """
        return _Span(self, phase)

    def bring_up(self, num_bytes: int) -> _Span:
        """As `phase` with DECODE: so many bytes at rest come up to the device in one go.

        They and the time count for the link, unless the work fails.
        """
        return _Span(self, Phase.DECODE, num_bytes)

    def switch(self, phase: Phase, brought_up: int | None = None) -> Phase:
        """Begin a phase and give the one that ends; `phase` and `bring_up` do this in pairs.

        Args:
            phase: What begins.
            brought_up: Bytes at rest that the phase which ends has brought up, if that was its
                work.
        """
        self._take_lock()
        try:
            now = time.monotonic()
            spent = now - self._since
            self._seconds[self._phase] += spent
            self._since = now
            outer, self._phase = self._phase, phase
            if brought_up is not None:
                link = self._links[Link.HOST_TO_DEVICE]
                link.moved_bytes += brought_up
                link.moves += 1
                link.busy_s += spent
        finally:
            self._lock.release()
        return outer

    def _take_lock(self) -> None:
        """Take the lock and book the wait for it, if there is any; the engine's thread only."""
        if self._lock.acquire(blocking=False):
            return
        asked = time.monotonic()
        self._lock.acquire()
        now = time.monotonic()
        self._seconds[self._phase] += asked - self._since
        self._seconds[Phase.LOCK] += now - asked
        self._since = now

    @contextmanager
    def busy(self, link: Link) -> Iterator[None]:
        """Book the time inside as time that the link is used, once for all threads; any thread."""
        count = self._links[link]
        with self._lock:
            if not count.threads:
                count.since = time.monotonic()
            count.threads += 1
        try:
            yield
        finally:
            with self._lock:
                count.threads -= 1
                if not count.threads:
                    count.busy_s += time.monotonic() - count.since

    def count_read(self, num_bytes: int, moves: int = 1) -> None:
        """Book so many reads from disk; any thread."""
        self._count(Link.DISK_TO_HOST, num_bytes, moves)

    def count_written(self, num_bytes: int) -> None:
        """Book one write to disk; any thread."""
        self._count(Link.HOST_TO_DISK, num_bytes)

    def _count(self, link: Link, num_bytes: int, moves: int = 1) -> None:
        with self._lock:
            self._links[link].moved_bytes += num_bytes
            self._links[link].moves += moves

    def count_hits(self, hits: Mapping[Tier, int]) -> None:
        """Book pages that were read together, by the tier that served them first.

        The engine's thread only.
        """
        self._take_lock()
        try:
            for tier, pages in hits.items():
                self._hits[tier] += pages
        finally:
            self._lock.release()

    def count_decoded(self) -> None:
        """Book one token of an answer."""
        self._decoded_tokens += 1

    def publish_tiers(
        self, tiers: tuple[TierUse, ...], total_pages: int, reuse: tuple[int, ...] = ()
    ) -> None:
        """Replace the residency; one assignment, so no reader sees half of it."""
        self._residency = (tiers, total_pages, reuse)

    # -- the residency map: drawn by the engine's thread, and only if somebody looks ------------

    def ask_map(self, num_cells: int) -> ResidencyMap | None:
        """Give the newest map, if there is any, and ask for a newer one of so many cells at most;
        any thread."""
        self._map_cells = num_cells
        return self._map

    def wanted_map(self) -> int | None:
        """Say of how many cells a map is wanted now; None: of none. The engine's thread only."""
        if self._map_cells is None:
            return None
        self._map_begun = time.monotonic()
        return self._map_cells if self._map_begun >= self._map_due else None

    def publish_map(self, drawn: ResidencyMap) -> None:
        """Give the map that `wanted_map` has asked for; the engine's thread only."""
        self._map, self._map_cells = drawn, None
        now = time.monotonic()
        self._map_due = now + max(MAP_SECONDS, (now - self._map_begun) / MAP_SHARE)

    def publish_task(self, task: str, done: int, total: int) -> None:
        """Say what is being worked on and how far it is, tokens."""
        self._task = (task, done, total)

    def sample(self) -> Sample:
        """Take everything at this moment; any thread."""
        with self._lock:
            now = time.monotonic()
            seconds = dict(self._seconds)
            seconds[self._phase] += now - self._since
            tiers, total_pages, reuse = self._residency
            task, done, total = self._task
            return Sample(
                wall_s=now - self._start,
                seconds=seconds,
                tiers=tiers,
                total_pages=total_pages,
                hits=dict(self._hits),
                reuse=reuse,
                links={link: count.use(now) for link, count in self._links.items()},
                prefetch=replace(self.prefetch),
                read_ahead=replace(self.read_ahead),
                major_faults=_major_faults() - self._faults_before,
                tokens_done=done,
                tokens_total=total,
                task=task,
                decoded_tokens=self._decoded_tokens,
            )


class _Span:
    """A stretch of time in one phase. No generator: it is entered thousands of times a second."""

    __slots__ = ("_brings_up", "_outer", "_phase", "_telemetry")

    def __init__(self, telemetry: Telemetry, phase: Phase, brings_up: int | None = None) -> None:
        self._telemetry, self._phase, self._brings_up = telemetry, phase, brings_up

    def __enter__(self) -> None:
        self._outer = self._telemetry.switch(self._phase)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._telemetry.switch(self._outer, self._brings_up if error is None else None)
