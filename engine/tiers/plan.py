"""The plan of one step: ids only, made by `stack`, executed by `attention` and `transfer`.

Interval map of a step over the positions of its sequence: `[0, first_token)` is the past, cut into
parts at multiples of `part_tokens`; `[first_token, first_token + num_tokens)` is the step's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.types import PageId, SegmentId, SlotId, Tier


@dataclass(frozen=True, slots=True)
class DiskPlace:
    """Where a page lies in a session file."""

    segment: SegmentId
    index: int
    """Index of the page within its segment."""


@dataclass(frozen=True, slots=True)
class PageSource:
    """Where attention gets one page of the past in this step."""

    page: PageId
    tier: Tier
    slot: SlotId | None
    """Slot in the device or host tier; None for disk."""
    place: DiskPlace | None
    promote: SlotId | None
    """Device slot to fill on the way, if there was room."""
    keep: SlotId | None = None
    """Host slot to fill on the way from disk, if there was room."""


@dataclass(frozen=True, slots=True)
class PartPlan:
    """One part of the past, `[first_token, first_token + num_tokens)`."""

    first_token: int
    num_tokens: int
    """Tokens attended to, the step's own token included where `own` is set."""
    own: bool
    """Whether the single new token of a decode step is the last of this part."""
    sources: tuple[PageSource, ...]
    position: int
    """Where its first key stands, for RoPE; the same whenever the page is read."""
    query_position: int
    """Where the step's first query stands for this part: only the distance between the two counts,
    so a gap between the sinks and the local window can be left out."""

    @property
    def lifts(self) -> bool:
        """Whether any page enters the device or the host tier on the way."""
        return any(source.promote is not None or source.keep is not None for source in self.sources)


@dataclass(frozen=True, slots=True)
class PageTarget:
    """Where the step's own tokens of one page go: `[offset, offset + num_tokens)` of the page."""

    page: PageId
    offset: int
    num_tokens: int
    first_token: int
    """Position of the first of these tokens in the sequence."""
    device: SlotId | None
    host: SlotId | None


@dataclass(frozen=True, slots=True)
class SlotCopy:
    """A page to copy within a tier before the step (copy on write)."""

    tier: Tier
    source: SlotId
    target: SlotId


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Everything one step reads and writes."""

    first_token: int
    num_tokens: int
    parts: tuple[PartPlan, ...]
    targets: tuple[PageTarget, ...]
    copies: tuple[SlotCopy, ...]
    direct: tuple[SegmentId, ...]
    """Segments that this step fills whole: their slices go to the writer layer by layer."""
    stored: tuple[SegmentId, ...]
    """Segments that it fills whole and that lie in the file already."""
    position: int
    """Where the step's first token stands, for RoPE."""

    @property
    def end(self) -> int:
        """One past the last position of the step."""
        return self.first_token + self.num_tokens
