"""The transfer threads over a disk that fails: every error is told, at its place and for good."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_disk import BUFFERS, Call, FakeDisk, Gate, check, in_background, jobs, transferring, write

from engine.errors import KVError, PageCorrupt, StorageError
from engine.types import Part

FULL = StorageError("fake.kv: the disk is full", "Free some space.")


def failing(call: Call, error: Exception) -> Callable[[Call], None]:
    def before(made: Call) -> None:
        if made == call:
            raise error

    return before


def test_a_read_error_comes_at_its_turn_and_not_before() -> None:
    corrupt = PageCorrupt("fake.kv: page 3 fails its checksum")
    disk = FakeDisk(before=failing(("read", 0, Part.VALUES, 1), corrupt))
    disk.fill(1)
    with transferring(disk) as transfer:
        stream = transfer.stream(jobs(0))
        check(next(stream), 0, 0)
        with pytest.raises(PageCorrupt, match="page 3"):
            next(stream)
        disk.before = lambda call: None
        for layer, buffer in enumerate(transfer.stream(jobs(0))):
            check(buffer, layer, 0)


def test_a_write_error_is_told_by_the_next_buffer_and_by_every_later_call() -> None:
    """A page believed to lie on disk does not: no later call may act as if nothing had been."""
    disk = FakeDisk(before=failing(("write", 0, Part.KEYS, 1), FULL))
    with transferring(disk) as transfer:
        for layer in range(2):
            write(transfer, 0, Part.KEYS, layer)
        with pytest.raises(StorageError, match="full"):
            transfer.writes.drain()
        for call in (
            transfer.writes.take_buffer,
            transfer.writes.drain,
            lambda: next(transfer.stream(jobs(0))),
        ):
            with pytest.raises(StorageError, match="full"):
                call()


def test_after_a_write_error_nothing_queued_counts_as_written() -> None:
    """The writes behind the failed one are not made, and whoever reads their pages is told.

    The pages have older contents, of an aborted step: these must not be served either.
    """
    gate = Gate("write")

    def before(call: Call) -> None:
        gate(call)
        if call == ("write", 0, Part.KEYS, 0):
            raise FULL

    disk = FakeDisk(before=before)
    disk.fill(2)
    with transferring(disk) as transfer:
        write(transfer, 0, Part.KEYS, 0)
        write(transfer, 1, Part.KEYS, 0)
        write(transfer, 1, Part.VALUES, 0)
        reading = transfer.stream(jobs(1)[:1])
        said: list[BaseException] = []

        def read() -> None:
            try:
                next(reading)
            except KVError as error:
                said.append(error)

        reader = in_background(read)
        gate.open.set()
        reader.join(20)
        assert said == [FULL]


@pytest.mark.parametrize("what", ["read", "write"])
def test_a_disk_that_does_not_answer_is_declared_dead_by_name(what: str) -> None:
    gate = Gate(what)
    disk = FakeDisk(before=gate)
    disk.fill(1)
    with transferring(disk, deadline=0.05) as transfer:
        try:
            with pytest.raises(StorageError, match=rf"fake\.kv: .* {what} within 0\.05 s"):
                if what == "read":
                    next(transfer.stream(jobs(0)))
                for layer in range(BUFFERS + 1):
                    write(transfer, 0, Part.KEYS, layer % 3)
        finally:
            gate.open.set()


def test_a_late_read_cannot_spoil_a_later_stream() -> None:
    """A read that was given up still owns its buffer; nobody may be handed that buffer again."""
    gate = Gate("read")
    disk = FakeDisk(before=gate)
    disk.fill(2)
    with transferring(disk, deadline=0.05) as transfer:
        try:
            with pytest.raises(StorageError, match="read"):
                next(transfer.stream(jobs(0)))
        finally:
            gate.open.set()
        with pytest.raises(StorageError, match="read"):
            next(transfer.stream(jobs(1)))


def test_drain_gives_up_on_a_writer_that_does_not_answer() -> None:
    gate = Gate("write")
    with transferring(FakeDisk(before=gate), deadline=0.05) as transfer:
        try:
            write(transfer, 0, Part.KEYS, 0)
            with pytest.raises(StorageError, match="write within"):
                transfer.writes.drain()
        finally:
            gate.open.set()
