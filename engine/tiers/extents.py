"""How large the reads of a part are, and how many parts keep the readers busy. Numbers only.

Owns the cut of a run of pages into reads and the depth of the stream that follows from it. Knows
neither files nor tensors, and measures nothing: the extent and the threads come from whoever knows
the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine.session.format import BLOCK
from engine.types import KVGeometry

MOST_STREAM_DEPTH = 8
READS_PER_THREAD = 2
"""Reads of later parts for each thread: one under way and one that waits for it to end."""
PARTS_ON_THE_WAY = 2
"""Parts behind the one in use: the threads share the reads of each, and the one that is done first
goes on with the next."""


def pages_per_read(geometry: KVGeometry, extent_bytes: int) -> int:
    """Most page slices that one read takes: what an extent holds, and at least one.

    Where whole slices are whole disk blocks, so are the reads they are cut into: a cut anywhere
    else would take both its sides off the direct path.
    """
    assert extent_bytes > 0
    unit = 1
    if geometry.slice_bytes % BLOCK == 0:
        unit = BLOCK // math.gcd(geometry.page_slice_bytes, BLOCK)
    fitting = extent_bytes // geometry.page_slice_bytes
    return max(unit, fitting // unit * unit)


def cut_run(num_pages: int, most: int) -> Iterator[tuple[int, int]]:
    """Cut a run of pages into reads: the first page of each within the run, and its pages."""
    for first in range(0, num_pages, most):
        yield first, min(most, num_pages - first)


def enough_depth(
    geometry: KVGeometry, *, part_tokens: int, io_threads: int, extent_bytes: int
) -> int:
    """Parts that a stream needs so that its readers are never idle while the device is the limit.

    One part is in use; of the others there must be `PARTS_ON_THE_WAY`, and they must hold
    `READS_PER_THREAD` reads for every thread. A part of which everything lies on disk is counted
    with its keys alone, all that a look-up reads:
    `segments per part * ceil(pages per segment / pages per read)` reads.

    Returns:
        Parts, at most `MOST_STREAM_DEPTH`.
    """
    per_segment = -(-geometry.pages_per_segment // pages_per_read(geometry, extent_bytes))
    reads = geometry.num_segments(part_tokens) * per_segment
    on_the_way = max(PARTS_ON_THE_WAY, -(-READS_PER_THREAD * io_threads // reads))
    return min(1 + on_the_way, MOST_STREAM_DEPTH)
