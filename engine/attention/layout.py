"""How one part of a step is gathered, worked out once for all layers. Ids only.

Owns the grouping of neighbouring pages that are treated alike into pieces, so that a piece is one
rotation or one copy however many pages it has and wherever on disk they lie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.tiers.disk import PageRun
from engine.tiers.plan import DiskPlace, PageSource, PartPlan, StepPlan
from engine.types import SlotId, Tier


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring pages of a part that come from one place and go to one place."""

    tier: Tier
    first_page: int
    """Index of the first page within the part."""
    num_pages: int
    slot: SlotId | None
    """First of the neighbouring slots in the device or host tier; None for disk."""
    runs: tuple[PageRun, ...]
    """The pages in the session file, each run one read, for disk."""
    promote: SlotId | None
    """First of the neighbouring device slots to fill, if there was room."""
    keep: SlotId | None
    """First of the neighbouring host slots to fill, if there was room."""

    def takes(self, source: PageSource) -> bool:
        """Whether the page that follows the piece can join it."""
        count = self.num_pages
        if source.tier is not self.tier or not _follows(self.promote, source.promote, count):
            return False
        if not _follows(self.keep, source.keep, count):
            return False
        return self.tier is Tier.DISK or _follows(self.slot, source.slot, count)


def _follows(first: SlotId | None, slot: SlotId | None, count: int) -> bool:
    return slot is None if first is None else slot == first + count


@dataclass(frozen=True, slots=True)
class PartLayout:
    """The pieces of a part, and whether they end up side by side."""

    pieces: tuple[Piece, ...]
    first_slot: SlotId | None
    """First device slot if the part is one run of slots once promotions are done, else None."""
    slots: tuple[SlotId, ...] | None
    """Device slot of each of its pages once promotions are done; None if a page has none."""

    @property
    def runs(self) -> tuple[tuple[int, PageRun], ...]:
        """What is read from disk, each with the index within the part of its first page."""
        found = []
        for piece in self.pieces:
            page = piece.first_page
            for run in piece.runs:
                found.append((page, run))
                page += run.num_pages
        return tuple(found)

    @property
    def pieces_at_rest(self) -> tuple[Piece, ...]:
        """The pieces that lie below the device tier."""
        return tuple(piece for piece in self.pieces if piece.tier is not Tier.DEVICE)

    @property
    def pages_at_rest(self) -> int:
        """How many pages lie below the device tier."""
        return sum(piece.num_pages for piece in self.pieces_at_rest)


def layout_part(plan: StepPlan | None, part: PartPlan) -> PartLayout:
    """Work out how a part is gathered.

    Args:
        plan: The step that gathers it; None for a scan, which has no tokens of its own.
        part: The part.
    """
    slots = [s.slot if s.tier is Tier.DEVICE else s.promote for s in part.sources]
    if plan is not None and part.own and plan.targets[0].offset == 0:
        slots.append(plan.targets[0].device)
    first = slots[0]
    in_one_run = first is not None and slots == list(range(first, first + len(slots)))
    known = tuple(slot for slot in slots if slot is not None)
    return PartLayout(
        _pieces(part.sources),
        first if in_one_run else None,
        known if len(known) == len(slots) else None,
    )


def _pieces(sources: tuple[PageSource, ...]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for number, source in enumerate(sources):
        last = pieces[-1] if pieces else None
        if last is not None and last.takes(source):
            runs = _with_place(last.runs, source.place) if last.runs else ()
            pieces[-1] = replace(last, num_pages=last.num_pages + 1, runs=runs)
        else:
            pieces.append(_piece(number, source))
    return tuple(pieces)


def _piece(number: int, source: PageSource) -> Piece:
    if source.tier is not Tier.DISK:
        return Piece(source.tier, number, 1, source.slot, (), source.promote, None)
    return Piece(
        Tier.DISK, number, 1, None, _with_place((), source.place), source.promote, source.keep
    )


def _with_place(runs: tuple[PageRun, ...], place: DiskPlace | None) -> tuple[PageRun, ...]:
    """Add a page to the last run if it lies behind it, else as a run of its own."""
    assert place is not None
    if runs:
        last = runs[-1]
        if (place.segment, place.index) == (last.segment, last.first + last.num_pages):
            return (*runs[:-1], replace(last, num_pages=last.num_pages + 1))
    return (*runs, PageRun(place.segment, place.index, 1))
