"""The disk tier: slices of a session file, through aligned buffers.

Owns the buffers between tensors and the file. Checksums, offsets and commits are the session's; who
reads and writes when is `transfer`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.session import SessionFile, aligned_buffer
from engine.tiers.host import block_aligned
from engine.types import KVGeometry, Part, SegmentId


@dataclass(frozen=True, slots=True)
class PageRun:
    """Neighbouring pages of one segment, read or written at once."""

    segment: SegmentId
    first: int
    """Index of the first page within the segment."""
    num_pages: int


class PageBuffer:
    """Room for page slices: the same bytes as memory for the file and as a tensor for the engine.

    Args:
        geometry: Shape of the KV.
        num_pages: Page slices it holds.
        pinned: Page-lock the memory, for copies from and to a CUDA device that do not block.

    Attributes:
        pages: `[num_pages, num_kv_heads, page_tokens, head_dim]`.
    """

    def __init__(self, geometry: KVGeometry, num_pages: int, *, pinned: bool = False) -> None:
        self._page_bytes = geometry.page_slice_bytes
        num_bytes = num_pages * self._page_bytes
        if pinned:
            self._memory = memoryview(block_aligned(num_bytes, pinned=True).numpy().data)
        else:
            self._memory = aligned_buffer(num_bytes)
        flat = torch.frombuffer(self._memory, dtype=getattr(torch, geometry.dtype))
        page_shape = (geometry.num_kv_heads, geometry.page_tokens, geometry.head_dim)
        self.pages: Tensor = flat.view(num_pages, *page_shape)

    def bytes_of(self, first: int, num_pages: int) -> memoryview:
        """The memory of neighbouring page slices."""
        begin = first * self._page_bytes
        return self._memory[begin : begin + num_pages * self._page_bytes]


def read_run(
    file: SessionFile, run: PageRun, half: Part, layer: int, into: PageBuffer, first: int
) -> int:
    """Read and verify a run of pages of one layer into a buffer, from its page `first` on.

    Returns:
        Bytes read.

    Raises:
        PageCorrupt: The bytes fail their checksum.
        StorageError: The device failed.
    """
    memory = into.bytes_of(first, run.num_pages)
    file.read_pages(run.segment, half, layer, run.first, run.num_pages, memory)
    return len(memory)


def write_run(file: SessionFile, run: PageRun, half: Part, layer: int, source: PageBuffer) -> int:
    """Write a run of pages of one layer from the front of a buffer.

    Returns:
        Bytes written.

    Raises:
        StorageError: The device failed or is full.
    """
    memory = source.bytes_of(0, run.num_pages)
    file.write_pages(run.segment, half, layer, run.first, memory)
    return len(memory)
