"""Pages at rest of one part after another, where compute can read them.

Owns the stream from disk, what of it stays in the host tier, and on a device of its own the copies
that bring pages there: compute works on one part while the next is on its way, in two buffers
(double buffering). Knows nothing of positions; rotation is the reader's.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import nullcontext
from typing import Protocol

from torch import Tensor

from engine.attention.layout import PartLayout, Piece
from engine.attention.memory import DeviceMemory, TierMemory
from engine.telemetry import Phase
from engine.tiers.copies import Point
from engine.tiers.transfer import ReadJob, Staged
from engine.types import Part


class RestPart(Protocol):
    """The pages at rest of one part and layer."""

    def of(self, piece: Piece, half: Part) -> Tensor:
        """Give one half of a piece's pages, `[num_pages, num_kv_heads, page_tokens, head_dim]`.

        Args:
            piece: Pages in the host tier or on disk; those of the device tier are not at rest.
            half: Keys, before RoPE, or values.
        """


class _InRam:
    """Pages where they lie in RAM: in the host tier, or in what was read from disk."""

    def __init__(self, memory: TierMemory, layer: int, staged: Staged | None) -> None:
        self._memory, self._layer, self._staged = memory, layer, staged

    def of(self, piece: Piece, half: Part) -> Tensor:
        """As `RestPart.of`, in RAM."""
        if piece.slot is not None:
            return self._memory.host.pages(self._layer, half, piece.slot, piece.num_pages)
        assert self._staged is not None
        return self._staged.rest(half, piece.first_page, piece.num_pages)


class _OnDevice:
    """Pages that were copied to the device, where page i of the part lies at index i, or that it
    reads where they lie."""

    def __init__(self, memory: TierMemory, layer: int, buffer: Tensor) -> None:
        self._host, self._layer, self._buffer = memory.host, layer, buffer

    def of(self, piece: Piece, half: Part) -> Tensor:
        """As `RestPart.of`, on the device."""
        if piece.slot is not None and self._host.is_shared:
            return self._host.pages_on_device(self._layer, half, piece.slot, piece.num_pages)
        return self._buffer[half, piece.first_page : piece.first_page + piece.num_pages]


class _Staging:
    """The buffers of one device in which pages arrive, taken in turn."""

    def __init__(self, device: DeviceMemory) -> None:
        self.up, self._buffers, self._turn = device.up, device.staging, 0
        self._free = [device.up.compute_point() for _ in device.staging]

    def take(self) -> Tensor:
        """Give a buffer; copies queued from now on wait until compute is done with it."""
        self.up.after(self._free[self._turn])
        return self._buffers[self._turn]

    def let_go(self) -> None:
        """What was taken is done with as soon as what compute has queued by now is done."""
        self._free[self._turn] = self.up.compute_point()
        self._turn = (self._turn + 1) % len(self._buffers)


class RestReader:
    """Gives the pages at rest of parts in the order in which they will be read.

    Args:
        memory: The tiers.
        layouts: How parts are gathered.
        order: The `(layer, index of the part)` pairs that will be read, in that order.
        halves: Which halves are wanted.
        in_ram: Whether they are wanted in RAM even where compute has a device of its own.
    """

    def __init__(
        self,
        memory: TierMemory,
        layouts: Sequence[PartLayout],
        order: Sequence[tuple[int, int]],
        *,
        halves: tuple[Part, ...] = tuple(Part),
        in_ram: bool = False,
    ) -> None:
        self._memory, self._layouts, self._halves = memory, layouts, halves
        jobs = [
            ReadJob(layer, runs, halves) for layer, index in order if (runs := layouts[index].runs)
        ]
        self._stream: Generator[Staged] | None = None
        if jobs:
            assert memory.transfer is not None
            self._stream = memory.transfer.stream(jobs)
        devices = () if in_ram else memory.devices
        self._staging = {each: _Staging(each) for each in devices if each.staging}
        self._taken: _Staging | None = None
        """Whose buffer holds what was given last."""
        self._sent: Point | None = None
        """Where what was read last has left RAM."""
        self.slices_in_memory = 0
        """Page slices planned to come from disk for which the device was not asked."""

    def next(self, layer: int, index: int) -> RestPart:
        """Give the next part of the order; what was given before must not be used any more."""
        layout = self._layouts[index]
        self._let_go()
        staged = next(self._stream) if self._stream is not None and layout.runs else None
        self.slices_in_memory += staged.slices_in_memory if staged is not None else 0
        rest = _InRam(self._memory, layer, staged)
        self._keep(layer, layout, rest)
        staging = self._staging.get(self._memory.beside[layer])
        if staging is None or not layout.pages_at_rest:
            return rest
        return self._send_up(staging, layer, layout, rest)

    def close(self) -> None:
        """Stop reading ahead; waits for the reads and copies in flight."""
        if self._sent is not None:
            self._sent.synchronize()
        if self._stream is not None:
            self._stream.close()

    def _let_go(self) -> None:
        """What was given before is done with, as soon as what is queued by now is done."""
        if self._taken is not None:
            self._taken.let_go()
            self._taken = None
        if self._sent is not None:
            self._sent.synchronize()  # the next read may take the memory that it was sent from
            self._sent = None

    def _keep(self, layer: int, layout: PartLayout, rest: RestPart) -> None:
        """Copy what came from disk to the host slots that its pages were given, if any."""
        kept = [piece for piece in layout.pieces if piece.keep is not None]
        with self._memory.telemetry.phase(Phase.DECODE) if kept else nullcontext():
            for piece in kept:
                assert piece.keep is not None
                for half in self._halves:
                    slots = self._memory.host.pages(layer, half, piece.keep, piece.num_pages)
                    slots.copy_(rest.of(piece, half))

    def _send_up(
        self, staging: _Staging, layer: int, layout: PartLayout, rest: RestPart
    ) -> RestPart:
        up, host, self._taken = staging.up, self._memory.host, staging
        arriving = _OnDevice(self._memory, layer, staging.take())
        for piece in layout.pieces_at_rest:
            for half in self._halves:
                if piece.slot is not None and host.is_shared:
                    host.send_up(layer, half, piece.slot, piece.num_pages, up)
                else:
                    up.copy(arriving.of(piece, half), rest.of(piece, half))
        self._sent = up.point()
        up.before_compute(self._sent)
        return arriving
