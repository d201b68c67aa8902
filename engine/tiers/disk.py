"""The disk tier: slices of a session file, through aligned buffers.

Owns the buffers between tensors and the file. Checksums, offsets and commits are the session's; who
reads and writes when is `transfer`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.session import SessionFile, aligned_buffer
from engine.tiers.coding import CodedReads, SliceCoder, is_coded
from engine.tiers.finite import place, require_finite_to_keep, require_finite_to_serve
from engine.tiers.host import block_aligned
from engine.types import KVGeometry, Part, SegmentId


@dataclass(frozen=True, slots=True)
class PageRun:
    """Neighbouring pages of one segment, read or written at once."""

    segment: SegmentId
    first: int
    """Index of the first page within the segment."""
    num_pages: int


class PageRoom:
    """Room for page slices: the same bytes as memory for the file and as a tensor for the engine.

    Args:
        memory: The bytes.
        geometry: Shape of the KV.

    Attributes:
        pages: `[num_pages, num_kv_heads, page_tokens, head_dim]`.
    """

    def __init__(self, memory: memoryview, geometry: KVGeometry) -> None:
        self._page_bytes = geometry.page_slice_bytes
        self._memory = memory
        flat = torch.frombuffer(memory, dtype=getattr(torch, geometry.dtype))
        shape = (geometry.num_kv_heads, geometry.page_tokens, geometry.head_dim)
        self.pages: Tensor = flat.view(-1, *shape)

    def bytes_of(self, first: int, num_pages: int) -> memoryview:
        """The memory of neighbouring page slices."""
        begin = first * self._page_bytes
        return self._memory[begin : begin + num_pages * self._page_bytes]


class PageBuffer(PageRoom):
    """Room of its own.

    Args:
        geometry: Shape of the KV.
        num_pages: Page slices it holds.
        pinned: Page-lock the memory, for copies from and to a CUDA device that do not block.
    """

    def __init__(self, geometry: KVGeometry, num_pages: int, *, pinned: bool = False) -> None:
        num_bytes = num_pages * geometry.page_slice_bytes
        if pinned:
            memory = memoryview(block_aligned(num_bytes, pinned=True).numpy().data)
        else:
            memory = aligned_buffer(num_bytes)
        super().__init__(memory, geometry)


def read_run(
    file: SessionFile,
    run: PageRun,
    half: Part,
    layer: int,
    memory: memoryview,
    pages: Tensor,
    coded: CodedReads | None = None,
) -> int:
    """Read and verify a run of pages of one layer.

    Args:
        file: Where it lies.
        run: The pages.
        half: Keys or values.
        layer: Layer index.
        memory: Takes them; those of a coded segment only when `coded` decodes.
        pages: The same memory, `[num_pages, num_kv_heads, page_tokens, head_dim]`.
        coded: Of a file whose pages are coded.

    Returns:
        Bytes read.

    Raises:
        PageCorrupt: The bytes fail their checksum.
        StorageError: The device failed.
    """
    if coded is not None and is_coded(run.segment):
        return coded.read(run, half, layer, pages)
    file.read_pages(run.segment, half, layer, run.first, run.num_pages, memory)
    return len(memory)


def require_numbers(
    file: SessionFile,
    run: PageRun,
    half: Part,
    layer: int,
    memory: memoryview,
    numbers: set[tuple[PageRun, Part, int]],
) -> None:
    """Refuse pages that were read and decoded and are not numbers.

    Args:
        file: Where they lie.
        run: The pages.
        half: Keys or values.
        layer: Layer index.
        memory: The pages.
        numbers: Runs that were found to be numbers before; with the same checksum they still are.

    Raises:
        PageCorrupt: They are not.
    """
    if (run, half, layer) in numbers:  # looking again at each step cost a third of its time
        return
    page = run.segment * file.geometry.pages_per_segment + run.first
    require_finite_to_serve(memory, file.geometry.dtype, place(file.path, page, half, layer))
    numbers.add((run, half, layer))


def write_run(
    file: SessionFile,
    run: PageRun,
    half: Part,
    layer: int,
    source: PageBuffer,
    coder: SliceCoder | None = None,
) -> int:
    """Write a run of pages of one layer from the front of a buffer.

    Args:
        file: Where they go.
        run: The pages.
        half: Keys or values.
        layer: Layer index.
        source: The buffer.
        coder: Of a file whose pages are coded.

    Returns:
        Bytes written.

    Raises:
        NonFiniteKV: They are not numbers, or beyond what the codec can give back.
        StorageError: The device failed or is full.
    """
    memory, geometry = source.bytes_of(0, run.num_pages), file.geometry
    first = run.segment * geometry.segment_tokens + run.first * geometry.page_tokens
    last = first + run.num_pages * geometry.page_tokens - 1
    where = f"{half.name.lower()} of layer {layer}, tokens {first:,} to {last:,},"
    require_finite_to_keep(memory, geometry.dtype, where)
    if coder is not None and is_coded(run.segment):
        return coder.write(run, half, layer, source.pages[: run.num_pages], where)
    file.write_pages(run.segment, half, layer, run.first, memory)
    return len(memory)
