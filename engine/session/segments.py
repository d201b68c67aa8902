"""Which page slices lie in the file, where, and with which checksums.

Owns the index of segments and is safe from several threads. Knows no file: offsets are numbers
here. A page is *complete* when K and V of all its layers are in the file; only complete pages
become part of a commit.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import NotASession
from engine.session.layout import SegmentLayout, layout_of
from engine.session.record import PageRun, no_u64
from engine.types import CodedSizes, KVGeometry, Part


@dataclass(slots=True, eq=False)
class _Segment:
    offset: int
    checksums: NDArray[np.uint64]
    written: NDArray[np.bool_]
    """Both `[pages_per_segment, 2, num_layers]`."""
    is_whole: bool = False
    """Whether all of them are written; asked at every read, when most segments long are."""


class SegmentTable:
    """The segments of one session, by their index in the sequence."""

    def __init__(self, geometry: KVGeometry, coded: CodedSizes | None = None) -> None:
        self._geometry, self._coded = geometry, coded
        self._shape = (geometry.pages_per_segment, 2, geometry.num_layers)
        self._segments: dict[int, _Segment] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._segments)

    def layout(self, segment: int) -> SegmentLayout:
        """How the segment lies in its extent."""
        return layout_of(self._geometry, self._coded, segment)

    def extent(self, segment: int) -> int | None:
        """Where the segment's extent starts in the file, if it has one."""
        entry = self._segments.get(segment)
        return None if entry is None else entry.offset

    def place(self, segment: int, offset: int) -> None:
        """Give the segment the extent at `offset`."""
        with self._lock:
            assert segment not in self._segments
            self._segments[segment] = self._empty(offset)

    def _empty(self, offset: int) -> _Segment:
        return _Segment(offset, np.zeros(self._shape, np.uint64), np.zeros(self._shape, np.bool_))

    def drop_from(self, segment: int) -> None:
        """Forget this segment and all behind it; their bytes stay in the file, for nobody."""
        with self._lock:
            self._segments = {each: s for each, s in self._segments.items() if each < segment}

    def forget(self, segment: int, part: Part, layer: int, pages: slice) -> None:
        """The slices are about to be overwritten: whatever they held is gone."""
        with self._lock:
            entry = self._segments[segment]
            entry.written[pages, part, layer] = False
            entry.is_whole = False

    def remember(
        self, segment: int, part: Part, layer: int, pages: slice, checksums: Sequence[int]
    ) -> None:
        """The slices are in the file and must have these checksums when read."""
        with self._lock:
            entry = self._segments[segment]
            entry.checksums[pages, part, layer] = checksums
            entry.written[pages, part, layer] = True
            entry.is_whole = bool(entry.written.all())

    def expected(self, segment: int, part: Part, layer: int, pages: slice) -> list[int]:
        """Checksums of slices that are in the file; asking for others is a bug."""
        with self._lock:
            entry = self._segments.get(segment)
            assert entry is not None
            assert entry.is_whole or entry.written[pages, part, layer].all(), "page not written"
            checksums: list[int] = entry.checksums[pages, part, layer].tolist()
            return checksums

    def is_complete(self, page_index: int) -> bool:
        """Whether all slices of the page are in the file."""
        segment, page = divmod(page_index, self._shape[0])
        entry = self._segments.get(segment)
        return entry is not None and bool(entry.written[page].all())

    def runs(
        self, first_page: int, end_page: int
    ) -> tuple[tuple[PageRun, ...], NDArray[np.uint64]]:
        """Pages `[first_page, end_page)` as a record describes them; all must be complete."""
        per_segment = self._shape[0]
        runs, checksums = [], [no_u64()]
        with self._lock:
            while first_page < end_page:
                segment, start = divmod(first_page, per_segment)
                count = min(per_segment - start, end_page - first_page)
                entry = self._segments.get(segment)
                pages = slice(start, start + count)
                assert entry is not None and entry.written[pages].all(), "commit of unwritten pages"
                runs.append(PageRun(segment, entry.offset, start, count))
                checksums.append(entry.checksums[pages].ravel())
                first_page += count
        return tuple(runs), np.concatenate(checksums)

    def adopt(
        self, runs: Sequence[PageRun], checksums: NDArray[np.uint64], first_page: int, file_end: int
    ) -> int:
        """Take over the runs of a record that follow on page `first_page`.

        Args:
            runs: Of one record, in its order.
            checksums: Of all their pages, flattened.
            first_page: Pages that earlier records have committed.
            file_end: Offset that no extent may reach beyond.

        Returns:
            Pages committed so far.

        Raises:
            NotASession: The runs do not continue the sequence or lie outside the file.
        """
        per_segment = self._shape[0]
        per_page = self._shape[1] * self._shape[2]
        if sum(run.num_pages for run in runs) * per_page != len(checksums):
            raise NotASession("a record has too few or too many page checksums")
        start = 0
        with self._lock:
            for run in runs:
                sound = (
                    run.segment * per_segment + run.first_page == first_page
                    and 0 < run.num_pages <= per_segment - run.first_page
                    and run.extent_offset + self.layout(run.segment).segment_stride <= file_end
                    and self.extent(run.segment) in (None, run.extent_offset)
                )
                if not sound:
                    raise NotASession("a record places pages where they cannot be")
                entry = self._segments.get(run.segment) or self._empty(run.extent_offset)
                self._segments[run.segment] = entry
                pages = slice(run.first_page, run.first_page + run.num_pages)
                part = checksums[start : start + run.num_pages * per_page]
                entry.checksums[pages] = part.reshape(run.num_pages, *self._shape[1:])
                entry.written[pages] = True
                entry.is_whole = bool(entry.written.all())
                start += run.num_pages * per_page
                first_page += run.num_pages
        return first_page
