"""Which pages are in use: when each was last read, and how long pages wait for the next read.

Owns the count of steps. A page is *hot* while one of the last `HOT_STEPS` steps has read it. Every
call costs as much as pages are named in it, however many there are. Ids only; the tier of a page is
the caller's knowledge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.sample import HOT_STEPS
from engine.types import PageId, Tier


@dataclass(slots=True)
class Heat:
    """Last reads of all pages, and the hot ones counted by tier."""

    _step: int = 0
    """The step at hand."""
    _last: dict[PageId, int] = field(default_factory=dict)
    """The step that last read each page that was ever read."""
    _read: deque[set[PageId]] = field(default_factory=lambda: deque([set()]))
    """What the last steps have read, the one at hand at the end."""
    _hot: dict[Tier | None, int] = field(default_factory=lambda: dict.fromkeys([None, *Tier], 0))
    _reuse: list[int] = field(default_factory=list)

    def is_hot(self, page: PageId) -> bool:
        """Whether one of the last steps has read the page."""
        last = self._last.get(page)
        return last is not None and last >= self._step - HOT_STEPS

    def hot(self, tier: Tier | None) -> int:
        """Hot pages whose fastest copy lies in a tier."""
        return self._hot[tier]

    @property
    def reuse(self) -> tuple[int, ...]:
        """Reads by how many steps the last one lay back, see `Sample.reuse`."""
        return tuple(self._reuse)

    def read(self, page: PageId, tier: Tier | None) -> None:
        """Take note that the step at hand reads a page, which lies in `tier` now."""
        last = self._last.get(page)
        if last == self._step:
            return
        if last is not None:
            octave = (self._step - last).bit_length()
            self._reuse += [0] * (octave - len(self._reuse))
            self._reuse[octave - 1] += 1
        if last is None or last < self._step - HOT_STEPS:
            self._hot[tier] += 1
        self._last[page] = self._step
        self._read[-1].add(page)

    def move(self, page: PageId, before: Tier | None, after: Tier | None) -> None:
        """Take note that the fastest copy of a page lies in another tier."""
        if before is not after and self.is_hot(page):
            self._hot[before] -= 1
            self._hot[after] += 1

    def forget(self, page: PageId, tier: Tier | None) -> None:
        """Take note that a page is no more."""
        if self.is_hot(page):
            self._hot[tier] -= 1
        self._last.pop(page, None)

    def end_step(self, tier_of: Callable[[PageId], Tier | None]) -> None:
        """End the step at hand; pages that no step has read for long enough go cold.

        Args:
            tier_of: Tells the tier of a page's fastest copy.
        """
        self._step += 1
        self._read.append(set())
        if len(self._read) > HOT_STEPS + 1:
            for page in self._read.popleft():
                if self._last.get(page) == self._step - HOT_STEPS - 1:
                    self._hot[tier_of(page)] -= 1
