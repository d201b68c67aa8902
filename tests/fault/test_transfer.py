"""The transfer threads over a disk that is slow or uneven: order, waiting, back-pressure."""

from __future__ import annotations

import threading
import time

import pytest
from fake_disk import (
    BUFFERS,
    GEOMETRY,
    SEGMENT_PAGES,
    Call,
    FakeDisk,
    Gate,
    check,
    in_background,
    jobs,
    transferring,
    value_of,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.telemetry import Link, Phase
from engine.tiers.disk import PageRun
from engine.tiers.transfer import ReadJob
from engine.types import Part, SegmentId


def test_what_is_written_is_read_back_part_by_part() -> None:
    with transferring(disk := FakeDisk()) as transfer:
        for segment in range(2):
            for half in Part:
                for layer in range(GEOMETRY.num_layers):
                    write(transfer, segment, half, layer)
        transfer.writes.drain()
        assert len(disk.calls) == 2 * 2 * GEOMETRY.num_layers
        for layer, buffer in enumerate(transfer.stream(jobs(0, 1))):
            check(buffer, layer, 0, 1)
        links = transfer._telemetry.sample().links
        size, calls = 2 * GEOMETRY.segment_bytes, 2 * 2 * GEOMETRY.num_layers
        for link in (Link.HOST_TO_DISK, Link.DISK_TO_HOST):
            assert (links[link].moved_bytes, links[link].moves) == (size, calls)
            assert links[link].busy_s > 0


def test_a_link_is_busy_only_during_calls() -> None:
    """A read that waits for its page to be written is none."""
    gate = Gate("write")
    with transferring(FakeDisk(before=gate)) as transfer:
        write(transfer, 0, Part.KEYS, 0)
        write(transfer, 0, Part.VALUES, 0)
        reader = in_background(lambda: list(transfer.stream(jobs(0)[:1])))
        assert gate.arrived.acquire(timeout=20)
        reader.join(0.05)
        assert transfer._telemetry.sample().links[Link.DISK_TO_HOST].busy_s == 0
        assert transfer._telemetry.sample().links[Link.HOST_TO_DISK].busy_s > 0
        gate.open.set()
        reader.join(20)
        assert transfer._telemetry.sample().links[Link.DISK_TO_HOST].busy_s > 0


def test_a_slow_writer_holds_the_producer_back() -> None:
    """Never more slices wait than there are buffers; nothing is dropped; the wait is booked."""
    gate = Gate("write")
    with transferring(disk := FakeDisk(before=gate)) as transfer:
        for layer in range(BUFFERS):
            write(transfer, 0, Part.KEYS, layer)
        blocked = in_background(lambda: write(transfer, 0, Part.VALUES, 0))
        assert gate.arrived.acquire(timeout=20)
        blocked.join(0.1)
        assert blocked.is_alive() and not disk.calls
        gate.open.set()
        blocked.join(20)
        transfer.writes.drain()
        assert len(disk.calls) == BUFFERS + 1
        assert transfer._telemetry.sample().seconds[Phase.WRITE] > 0.05


def test_reads_that_finish_out_of_order_are_given_in_order() -> None:
    """The second job's reads end first; keys of a job may end after its values."""
    late = threading.Event()

    def before(call: Call) -> None:
        if call == ("read", 0, Part.KEYS, 0):
            assert late.wait(20)
        elif call == ("read", 0, Part.VALUES, 1):
            late.set()

    disk = FakeDisk(before=before)
    disk.fill(1)
    with transferring(disk) as transfer:
        for layer, buffer in enumerate(transfer.stream(jobs(0))):
            check(buffer, layer, 0)
    finished = [call[2:] for call in disk.calls]
    assert finished.index((Part.VALUES, 1)) < finished.index((Part.KEYS, 0))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_reads_run_ahead_only_as_far_as_there_are_buffers(depth: int) -> None:
    disk = FakeDisk()
    disk.fill(1)
    with transferring(disk, depth=depth) as transfer:
        for layer, buffer in enumerate(transfer.stream(jobs(0))):
            assert max(call[3] for call in disk.calls) <= layer + depth - 1
            time.sleep(0.005)  # gives reads that run too far ahead the time to do harm
            check(buffer, layer, 0)


def test_what_was_read_ahead_is_counted_late_or_in_time_or_in_vain() -> None:
    """Two at a time: the first is asked for at once, the second is late, the third not taken."""
    gate = threading.Event()

    def before(call: Call) -> None:
        if call[0] == "read" and call[3] == 1:
            assert gate.wait(20)

    disk = FakeDisk(before=before)
    disk.fill(1)
    with transferring(disk, depth=2, threads=2) as transfer:
        counts = transfer._telemetry.read_ahead
        stream = transfer.stream(jobs(0))
        next(stream)
        assert (counts.issued, counts.useful) == (1, 0)
        threading.Timer(0.05, gate.set).start()
        next(stream)
        assert (counts.issued, counts.useful, counts.late) == (2, 1, 1)
        stream.close()
        assert (counts.issued, counts.useful, counts.late, counts.wasted) == (2, 1, 1, 1)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), threads=st.integers(1, 4), depth=st.integers(1, 3))
def test_however_runs_are_cut_every_page_is_read_once_and_to_its_place(
    data: st.DataObject, threads: int, depth: int
) -> None:
    """Two segments of a part, some pages of which lie elsewhere; extents of one page to all."""
    size = GEOMETRY.page_slice_bytes
    extent = data.draw(st.integers(1, (SEGMENT_PAGES + 1) * size), label="extent")
    on_disk = data.draw(st.lists(st.booleans(), min_size=8, max_size=8), label="on disk")
    runs, halves = runs_of(on_disk), tuple(Part)[: data.draw(st.integers(1, 2), label="halves")]
    disk = FakeDisk()
    disk.fill(2)
    todo = [ReadJob(layer, runs, halves) for layer in range(GEOMETRY.num_layers)]
    with transferring(disk, depth=depth, threads=threads, extent=extent) as transfer:
        for layer, buffer in enumerate(transfer.stream(todo)):
            for page in (page for page, is_there in enumerate(on_disk) if is_there):
                segment, index = divmod(page, SEGMENT_PAGES)
                for half in halves:
                    value = value_of(segment, half, layer, index)
                    assert buffer.halves[half].pages[page].eq(value).all()
        assert transfer._telemetry.sample().read_bytes == sum(on_disk) * size * len(halves) * 3
    read = sorted(
        (s, half, layer, page) for s, half, layer, pages in disk.extents for page in pages
    )
    assert read == sorted(
        (*divmod(page, SEGMENT_PAGES)[:1], half, layer, page % SEGMENT_PAGES)
        for page, is_there in enumerate(on_disk) if is_there
        for half in halves for layer in range(GEOMETRY.num_layers)
    )  # fmt: skip
    assert all(len(pages) * size <= max(extent, size) for *_, pages in disk.extents)


def runs_of(on_disk: list[bool]) -> tuple[tuple[int, PageRun], ...]:
    """Runs of neighbouring pages within a segment, each with its place in the part."""
    runs: list[tuple[int, PageRun]] = []
    for page, is_there in enumerate(on_disk):
        segment, index = divmod(page, SEGMENT_PAGES)
        if not is_there:
            continue
        first, last = runs[-1] if runs else (0, PageRun(SegmentId(-1), 0, 0))
        if last.segment == segment and last.first + last.num_pages == index:
            runs[-1] = (first, PageRun(last.segment, last.first, last.num_pages + 1))
        else:
            runs.append((page, PageRun(SegmentId(segment), index, 1)))
    return tuple(runs)


def test_the_pieces_of_one_run_are_read_by_several_threads() -> None:
    """Every page of the first half is held up until all of them have been asked for."""
    together = threading.Barrier(SEGMENT_PAGES)

    def before(call: Call) -> None:
        if call == ("read", 0, Part.KEYS, 0):
            together.wait(20)

    disk = FakeDisk(before=before)
    disk.fill(1)
    with transferring(disk, threads=SEGMENT_PAGES, extent=1) as transfer:
        (buffer,) = transfer.stream(jobs(0)[:1])
        check(buffer, 0, 0)


def test_a_page_that_is_still_being_written_is_waited_for() -> None:
    gate = Gate("write")
    with transferring(disk := FakeDisk(before=gate)) as transfer:
        write(transfer, 0, Part.KEYS, 0)
        write(transfer, 0, Part.VALUES, 0)
        found: list[object] = []
        reader = in_background(lambda: found.extend(transfer.stream(jobs(0)[:1])))
        assert gate.arrived.acquire(timeout=20)
        reader.join(0.1)
        assert reader.is_alive() and not disk.calls, "it was read before it was written"
        gate.open.set()
        reader.join(20)
        check(found[0], 0, 0)


def test_a_segment_written_twice_is_read_as_written_last() -> None:
    """As after a step that was aborted and run again."""
    with transferring(FakeDisk()) as transfer:
        for times in range(2):
            for half in Part:
                buffer = transfer.writes.take_buffer()
                buffer.pages.fill_(float(times))
                transfer.writes.write(buffer, PageRun(SegmentId(0), 0, SEGMENT_PAGES), half, 0)
        (buffer,) = transfer.stream(jobs(0)[:1])
        assert buffer.halves[Part.KEYS].pages[:SEGMENT_PAGES].eq(1.0).all()


def test_stopping_early_waits_for_the_reads_under_way() -> None:
    """Afterwards no thread writes into a buffer that the next stream uses."""
    gate = Gate("read")
    disk = FakeDisk(before=gate)
    disk.fill(2)
    with transferring(disk) as transfer:
        stream = transfer.stream(jobs(0))
        first = in_background(lambda: next(stream))
        assert gate.arrived.acquire(timeout=20)
        gate.open.set()
        first.join(20)
        gate.open.clear()
        closing = in_background(stream.close)
        closing.join(0.05)
        gate.open.set()
        closing.join(20)
        done = len(disk.calls)
        for layer, buffer in enumerate(transfer.stream(jobs(1))):
            check(buffer, layer, 1)
        assert {call[1] for call in disk.calls[done:]} == {1}


def test_finished_writes_are_forgotten() -> None:
    """A spill file is never drained; what waits must stay bounded over a million tokens."""
    with transferring(FakeDisk()) as transfer:
        for segment in range(50):
            write(transfer, segment, Part.KEYS, 0)
        assert len(transfer.writes._queued) <= BUFFERS + 1


def test_close_stops_every_thread() -> None:
    with transferring(disk := FakeDisk()) as transfer:
        disk.fill(1)
        write(transfer, 0, Part.KEYS, 0)
        list(transfer.stream(jobs(0)))
        assert _io_threads()
    assert not _io_threads()


def _io_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("kv-")]
