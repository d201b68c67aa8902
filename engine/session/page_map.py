"""Page slices as memory: the session file mapped, read by touching it.

Owns the mappings of segments and the calls that steer them. The kernel brings bytes in when they
are touched and keeps them as long as it has room; nobody copies them. A slice is checked against
its checksum whenever it may have been read from the device since the last check. Knows neither
budgets nor tensors. Linux only.

`madvise(2)` and `mincore(2)` are called through ctypes, which releases the interpreter lock while
the device works; the methods of `mmap.mmap` do not. MADV_POPULATE_READ (Linux 5.14) reports a
device that fails as an error, where touching the memory would end the process by SIGBUS.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.errors import ConfigError
from engine.session.block_file import BlockFile, storage_error
from engine.session.format import BLOCK, align_up
from engine.session.lineage import home_of
from engine.session.page_io import check_pages
from engine.session.state import SessionState
from engine.types import Part, SegmentId

_POPULATE_READ: Final = 22
_WILLNEED: Final = 3
_DONTNEED: Final = 4
_RESIDENT: Final = 1


@dataclass(frozen=True, slots=True)
class PageSlices:
    """Neighbouring page slices of one part and layer of a segment."""

    segment: SegmentId
    part: Part
    layer: int
    first_page: int
    """Counted from the start of the segment."""
    num_pages: int


@dataclass(slots=True)
class _Mapping:
    file: BlockFile
    state: SessionState
    """Of the file that has the segment: a fork's base has some."""
    memory: mmap.mmap
    address: int
    checked: NDArray[np.bool_]
    """`[2, num_layers, pages_per_segment]`: slices whose bytes were right and have stayed since."""


class PageMap:
    """The pages of one session file as memory.

    Args:
        file: The open file.
        state: Says where pages lie and what their checksums are.

    Raises:
        ConfigError: The system has no such calls.
    """

    def __init__(self, file: BlockFile, state: SessionState) -> None:
        if sys.platform != "linux":
            raise ConfigError(
                "unified memory on a CPU needs Linux", "Leave --pager at explicit on this system."
            )
        self._file, self._state = file, state
        self._mappings: dict[SegmentId, _Mapping] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        for name in ("madvise", "mincore"):
            getattr(self._libc, name).argtypes = (ctypes.c_void_p, ctypes.c_size_t, _LAST[name])

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def advise(self, slices: PageSlices) -> None:
        """Have the kernel begin to read slices that will be wanted; returns at once."""
        mapping = self._mapping(slices.segment)
        self._madvise(*self._blocks(mapping, slices), _WILLNEED)

    def missing_bytes(self, slices: PageSlices) -> int:
        """How many bytes of slices would have to be read from the device now."""
        address, length = self._blocks(self._mapping(slices.segment), slices)
        present = np.empty(length // BLOCK, np.uint8)
        self._call("mincore", address, length, present.ctypes.data)
        return int(np.count_nonzero(present & _RESIDENT == 0)) * BLOCK

    def read(self, slices: PageSlices, *, is_present: bool) -> memoryview:
        """Give slices as memory; waits for the device, and checks what it has read.

        Args:
            slices: All must be in the file.
            is_present: Whether nothing of them was missing just now: those that were right before
                are not checked again.

        Returns:
            `num_pages * page_bytes` bytes that stay valid as long as they are referred to.

        Raises:
            PageCorrupt: A slice fails its checksum.
            StorageError: The device failed.
        """
        mapping = self._mapping(slices.segment)
        self._madvise(*self._blocks(mapping, slices), _POPULATE_READ)
        layout = self._state.segments.layout(slices.segment)
        begin = layout.page_offset(slices.part, slices.layer, slices.first_page)
        size = slices.num_pages * layout.page_bytes(slices.part)
        data = memoryview(mapping.memory)[begin : begin + size]
        pages = slice(slices.first_page, slices.first_page + slices.num_pages)
        checked = mapping.checked[slices.part, slices.layer, pages]
        if not (is_present and checked.all()):
            checked[:] = False
            check_pages(
                mapping.file.path, mapping.state, slices.segment, slices.part, slices.layer,
                slices.first_page, data, len(data),
            )  # fmt: skip
            checked[:] = True
        return data

    def release(self, segment: SegmentId, part: Part, layer: int) -> None:
        """Take a layer's slices out of the process's memory; the kernel may keep or drop them."""
        mapping = self._mapping(segment)
        whole = PageSlices(segment, part, layer, 0, self._state.geometry.pages_per_segment)
        self._madvise(*self._blocks(mapping, whole), _DONTNEED)
        mapping.checked[part, layer] = False

    def _mapping(self, segment: SegmentId) -> _Mapping:
        mapping = self._mappings.get(segment)
        if mapping is None:
            geometry = self._state.geometry
            file, state = home_of(self._file, self._state, segment)
            extent = state.segments.extent(segment)
            assert extent is not None
            memory = file.map(extent, state.segments.layout(segment).segment_stride)
            address = np.frombuffer(memory, np.uint8).ctypes.data
            shape = (len(Part), geometry.num_layers, geometry.pages_per_segment)
            mapping = _Mapping(file, state, memory, address, np.zeros(shape, np.bool_))
            self._mappings[segment] = mapping
        return mapping

    def _blocks(self, mapping: _Mapping, slices: PageSlices) -> tuple[int, int]:
        """Address and length of the whole blocks that slices lie in."""
        layout = self._state.segments.layout(slices.segment)
        size = layout.page_bytes(slices.part)
        begin = layout.page_offset(slices.part, slices.layer, slices.first_page)
        end = align_up(begin + slices.num_pages * size)
        begin -= begin % BLOCK
        return mapping.address + begin, end - begin

    def _madvise(self, address: int, length: int, advice: int) -> None:
        self._call("madvise", address, length, advice)

    def _call(self, name: str, address: int, length: int, last: int) -> None:
        while getattr(self._libc, name)(address, length, last) != 0:
            number = ctypes.get_errno()
            if number != errno.EINTR:
                # populating calls a block that cannot be read a bad address
                number = errno.EIO if number == errno.EFAULT else number
                raise storage_error(self.path, OSError(number, os.strerror(number)))


_LAST: Final = {"madvise": ctypes.c_int, "mincore": ctypes.c_void_p}
