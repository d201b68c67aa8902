"""A device beside the CPU that does every copy as late as it may, and checks that none is early.

Compute runs at once, as it does on a CPU; copies are done only when somebody waits for them. So
whatever is used before it has arrived, or overwritten before it has left, shows in the result. A
copy that compute alone waits for may end later than the thread goes on: its source must stay as it
is until the thread has waited, too.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.tiers.copies import SharedMemory


@dataclass(frozen=True)
class ComputePoint:
    """A moment of compute."""

    moment: int

    def synchronize(self) -> None:
        """Compute is done with everything."""


@dataclass(frozen=True)
class CopyPoint:
    """The first so many copies of a stream."""

    stream: LateCopies
    count: int

    def synchronize(self) -> None:
        """Do them; they have left."""
        self.stream.do(self.count)
        self.stream.have_left(self.count)


@dataclass
class LateCopies:
    """As `engine.tiers.copies.CopyStream`."""

    has_own_memory: bool = True
    queued: int = 0
    done: int = 0
    _waiting: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    _leaving: list[tuple[int, Tensor, bytes]] = field(default_factory=list)
    """Copies that the thread has not waited for: which, its source, and what that held."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _moment: int = 0
    _after: int = 0
    _arriving: set[int] = field(default_factory=set)
    _read_since: dict[int, int] = field(default_factory=dict)
    """When compute was allowed to read what was copied to some memory."""

    def compute_point(self) -> ComputePoint:
        """Now."""
        self._moment += 1
        return ComputePoint(self._moment)

    def after(self, point: ComputePoint) -> None:
        """Later copies may overwrite what compute had read by then."""
        self._after = max(self._after, point.moment)

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Remember it."""
        assert target.shape == source.shape and self._after > 0
        memory = target.untyped_storage().data_ptr()
        assert self._after > self._read_since.get(memory, 0), "compute may still be reading this"
        self._arriving.add(memory)
        with self._lock:
            self._waiting.append((target, source))
            self.queued += 1

    def send_up(self, memory: SharedMemory, part: Tensor) -> None:
        """Shared memory is on both sides at any time."""
        assert part.is_contiguous()
        memory.send_up(part.data_ptr(), part.nbytes, 0)

    def point(self) -> CopyPoint:
        """All copies so far."""
        return CopyPoint(self, self.queued)

    def before_compute(self, point: CopyPoint) -> None:
        """Compute reads at once, so they must be done now; the thread has not waited."""
        self.do(point.count)
        self._moment += 1
        self._read_since |= dict.fromkeys(self._arriving, self._moment)
        self._arriving.clear()

    def drain(self) -> None:
        """Do all; they have left."""
        self.point().synchronize()

    def do(self, count: int) -> None:
        """Do the first so many copies."""
        with self._lock:
            while self.done < count:
                target, source = self._waiting.pop(0)
                target.copy_(source)
                self._leaving.append((self.done, source, _bytes(source)))
                self.done += 1

    def have_left(self, count: int) -> None:
        """The thread knows that the first so many are done."""
        with self._lock:
            for number, source, held in self._leaving:
                if number < count:
                    assert _bytes(source) == held, "overwritten while it was being copied"
            self._leaving = [copy for copy in self._leaving if copy[0] >= count]


def _bytes(tensor: Tensor) -> bytes:
    """What it holds; rows of a page that no token has filled yet may be no numbers."""
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()
