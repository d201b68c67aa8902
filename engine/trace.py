"""Which pages were made, read, weighed and dropped, in order: what a policy could have known.

Owns the order of events and their form as JSON. Knows neither tiers nor policies; costs nothing
until somebody asks for it. Only pages that may leave memory count: those of the main sequence.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

from engine.types import PageId


class AccessKind(Enum):
    """What happened to pages."""

    NEW = "new"
    """A step made them: they lie in the tier at first."""
    STORED = "stored"
    """They exist, and lie on disk alone: a session was resumed."""
    READ = "read"
    """One step, or one gathering for an answer, read all of them."""
    WEIGHED = "weighed"
    """A question's queries drew so much mass from each."""
    DROPPED = "dropped"
    """They are no more."""


@dataclass(frozen=True, slots=True)
class Access:
    """One event."""

    kind: AccessKind
    pages: tuple[PageId, ...]
    mass: tuple[float, ...] = ()
    """Of each page, for WEIGHED."""

    def to_json(self) -> dict[str, Any]:
        """The event as JSON: neighbouring pages as `[first, count]`."""
        runs: list[list[int]] = []
        for page in self.pages:
            if runs and page == sum(runs[-1]):
                runs[-1][1] += 1
            else:
                runs.append([page, 1])
        mass = {"mass": [round(value, 4) for value in self.mass]} if self.mass else {}
        return {"kind": self.kind.value, "pages": runs, **mass}

    @classmethod
    def from_json(cls, event: Mapping[str, Any]) -> Self:
        """Read what `to_json` has written.

        Raises:
            ValueError: It is nothing of the kind.
        """
        try:
            runs = [(int(first), int(count)) for first, count in event["pages"]]
            mass = tuple(float(value) for value in event.get("mass", ()))
            kind = AccessKind(event["kind"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("no event of a trace") from error
        if any(first < 0 or not 0 < count <= MOST_PAGES for first, count in runs):
            raise ValueError("a run of pages that cannot be")
        pages = tuple(PageId(page) for first, count in runs for page in range(first, first + count))
        if len(mass) != (len(pages) if kind is AccessKind.WEIGHED else 0):
            raise ValueError("mass for other pages than those named")
        if not all(math.isfinite(value) and value >= 0.0 for value in mass):
            raise ValueError("a mass that cannot be")
        return cls(kind, pages, mass)


MOST_PAGES = 1 << 24
"""Longest run believed when an event is read."""


@dataclass(slots=True)
class AccessTrace:
    """Takes events of the engine's thread until they are fetched; nothing unless it is on."""

    is_on: bool = False
    _known: set[PageId] = field(default_factory=set)
    _events: list[Access] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, kind: AccessKind, pages: Iterable[PageId]) -> None:
        """Record pages that come to be, NEW or STORED."""
        if self.is_on:
            named = tuple(pages)
            self._known.update(named)
            self._append(Access(kind, named))

    def read(self, pages: Iterable[PageId]) -> None:
        """Record what one step read; pages that never were recorded do not count."""
        if self.is_on:
            self._append(Access(AccessKind.READ, tuple(p for p in pages if p in self._known)))

    def weigh(self, mass: Mapping[PageId, float]) -> None:
        """Record the mass that pages drew."""
        if self.is_on:
            known = {page: value for page, value in mass.items() if page in self._known}
            self._append(Access(AccessKind.WEIGHED, tuple(known), tuple(known.values())))

    def drop(self, pages: Iterable[PageId]) -> None:
        """Record pages that are no more."""
        if self.is_on:
            gone = tuple(page for page in pages if page in self._known)
            self._known.difference_update(gone)
            self._append(Access(AccessKind.DROPPED, gone))

    def _append(self, event: Access) -> None:
        if event.pages:
            with self._lock:
                self._events.append(event)

    def take(self) -> list[Access]:
        """Give the events since the last call; any thread."""
        with self._lock:
            events, self._events = self._events, []
        return events
