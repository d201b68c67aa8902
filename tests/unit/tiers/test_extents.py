"""Cutting runs into reads, and how deep a stream must be. Numbers only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.tiers.extents import (
    MOST_STREAM_DEPTH,
    PARTS_ON_THE_WAY,
    cut_run,
    enough_depth,
    pages_per_read,
)
from engine.types import KVGeometry

DEFAULT = KVGeometry(30, 3, 64, "bfloat16")
"""The default model's: page slices of 24 KiB, slices of 192 KiB."""
LARGE = KVGeometry(32, 8, 128, "bfloat16")
"""An 8B model's: page slices of 128 KiB, slices of 1 MiB."""

geometries = st.builds(
    KVGeometry,
    num_layers=st.just(1),
    num_kv_heads=st.integers(1, 16),
    head_dim=st.sampled_from([16, 64, 80, 96, 128, 256]),
    dtype=st.sampled_from(["bfloat16", "float32"]),
    page_tokens=st.sampled_from([16, 32, 64, 128]),
    segment_tokens=st.sampled_from([128, 512]),
)


@given(pages=st.integers(1, 300), most=st.integers(1, 300))
def test_a_cut_has_every_page_once_and_in_order(pages: int, most: int) -> None:
    pieces = list(cut_run(pages, most))
    covered = [page for first, count in pieces for page in range(first, first + count)]
    assert covered == list(range(pages))
    assert all(0 < count <= most for _, count in pieces)
    assert len(pieces) == -(-pages // most), "no more reads than there must be"


@given(geometry=geometries, extent=st.integers(1, 1 << 22))
def test_a_read_is_no_longer_than_an_extent_and_stays_on_the_direct_path(
    geometry: KVGeometry, extent: int
) -> None:
    most = pages_per_read(geometry, extent)
    size = geometry.page_slice_bytes
    assert most >= 1
    whole = most * size
    if geometry.slice_bytes % 4096 == 0:
        assert whole % 4096 == 0
        # the fewest pages that are whole blocks may be more than an extent holds, never by a block
        assert whole <= extent or whole < 4096 * size
    else:
        assert whole <= max(extent, size)


def test_extents_by_the_size_of_a_page() -> None:
    assert pages_per_read(DEFAULT, 64 << 10) == 2
    assert pages_per_read(DEFAULT, 1) == 1
    assert pages_per_read(LARGE, 64 << 10) == 1
    assert pages_per_read(LARGE, 256 << 10) == 2
    odd = KVGeometry(1, 3, 80, "bfloat16", page_tokens=16)
    assert odd.page_slice_bytes == 7680 and pages_per_read(odd, 64 << 10) == 8


@given(
    geometry=geometries,
    parts=st.sampled_from([512, 2048]),
    threads=st.integers(1, 64),
    extent=st.integers(1, 1 << 22),
)
def test_a_stream_holds_two_reads_a_thread_behind_the_part_in_use(
    geometry: KVGeometry, parts: int, threads: int, extent: int
) -> None:
    depth = enough_depth(geometry, part_tokens=parts, io_threads=threads, extent_bytes=extent)
    assert 1 + PARTS_ON_THE_WAY <= depth <= MOST_STREAM_DEPTH
    run = len(list(cut_run(geometry.pages_per_segment, pages_per_read(geometry, extent))))
    reads = run * geometry.num_segments(parts)
    if depth < MOST_STREAM_DEPTH:
        assert (depth - 1) * reads >= 2 * threads
    if depth > 1 + PARTS_ON_THE_WAY:
        assert (depth - 2) * reads < 2 * threads, "one part less would have done"


def test_more_threads_need_a_deeper_stream_and_smaller_reads_a_shallower_one() -> None:
    def depth(threads: int, extent: int) -> int:
        return enough_depth(DEFAULT, part_tokens=2048, io_threads=threads, extent_bytes=extent)

    assert [depth(threads, 1 << 20) for threads in (1, 2, 4, 8)] == [3, 3, 3, 5]
    assert [depth(8, extent) for extent in (1 << 20, 64 << 10, 1)] == [5, 3, 3]
