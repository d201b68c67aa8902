"""Where page slices lie inside a segment extent.

Owns offsets and sizes as numbers: what the bytes of a coded slice mean is a codec's. Knows no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.session.format import BLOCK, align_up
from engine.types import CodedSizes, KVGeometry, Part

RAW_SEGMENTS: Final = 1
"""Leading segments that are stored raw in any file: attention sinks lie there, and every token
attends to them."""


@dataclass(frozen=True, slots=True)
class SegmentLayout:
    """Offsets inside a segment extent: `[2 parts][num_layers][pages_per_segment][page slice]`.

    Each `[pages_per_segment][page slice]` of a raw extent is padded to whole 4,096-byte blocks.
    Those of a coded one lie one behind another, for its slices are no whole blocks and padding
    would cost what coding saves.

    Args:
        geometry: The shape of the KV.
        coded: Bytes of a coded page slice; None: they are raw.
    """

    geometry: KVGeometry
    coded: CodedSizes | None = None

    def page_bytes(self, part: Part) -> int:
        """Bytes of a page slice."""
        return self.geometry.page_slice_bytes if self.coded is None else self.coded.of(part)

    def slice_stride(self, part: Part) -> int:
        """Bytes from one layer's slice to the next layer's."""
        if self.coded is None:
            return align_up(self.geometry.slice_bytes)
        return self.coded.of(part) * self.geometry.pages_per_segment

    @property
    def segment_stride(self) -> int:
        """Bytes a segment extent takes, whole blocks."""
        return align_up(self.geometry.num_layers * sum(self.slice_stride(part) for part in Part))

    def page_offset(self, part: Part, layer: int, page: int) -> int:
        """Where a page slice starts; `page` counts from the start of the segment."""
        before = 0
        if part == Part.VALUES:
            before = self.geometry.num_layers * self.slice_stride(Part.KEYS)
        return before + layer * self.slice_stride(part) + page * self.page_bytes(part)


def layout_of(geometry: KVGeometry, coded: CodedSizes | None, segment: int) -> SegmentLayout:
    """How a segment lies in its extent."""
    return SegmentLayout(geometry, coded if segment >= RAW_SEGMENTS else None)


def extents_bytes(geometry: KVGeometry, coded: CodedSizes | None, num_tokens: int) -> int:
    """Bytes that the extents of so many tokens take in a file."""
    segments = geometry.num_segments(num_tokens)
    raw = segments if coded is None else min(segments, RAW_SEGMENTS)
    return (
        raw * SegmentLayout(geometry).segment_stride
        + (segments - raw) * SegmentLayout(geometry, coded).segment_stride
    )


def pages_bytes(geometry: KVGeometry, coded: CodedSizes | None, num_tokens: int) -> int:
    """Bytes of the pages of so many tokens in a file; the last, if it is not full, is raw."""
    pages, full = geometry.num_pages(num_tokens), num_tokens // geometry.page_tokens
    raw = min(full, RAW_SEGMENTS * geometry.pages_per_segment) if coded is not None else full
    raw += pages - full
    if coded is None:
        return raw * geometry.page_bytes
    coded_page = geometry.num_layers * (coded.keys + coded.values)
    return raw * geometry.page_bytes + (pages - raw) * coded_page


def room_bytes(num_bytes: int) -> int:
    """Bytes of the whole blocks that a run of so many bytes touches at most."""
    return align_up(num_bytes) + BLOCK
