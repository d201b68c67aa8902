"""Reading a whole file: every damaged place is named, whatever stands beside it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import session_kit as kit
from session_faults import opened, spoil

from engine.errors import StorageError
from engine.session import Fault, verify
from engine.session.block_file import BlockFile
from engine.types import Part

COMMITS = (6, 21, 3, 31)
"""Sixty-one tokens: fifteen full pages in four segments, and a tail page of one token."""


@pytest.fixture(params=[None, kit.CODED], ids=["raw", "coded"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return kit.make(tmp_path / "s.kv", *COMMITS, coded=request.param)


def places(faults: tuple[Fault, ...]) -> list[tuple[int | None, Part | None, int | None]]:
    return [(fault.page, fault.part, fault.layer) for fault in faults]


def offset_of(path: Path, page: int, part: Part, layer: int) -> int:
    segments = opened(path).state.segments
    segment, position = divmod(page, kit.SMALL.pages_per_segment)
    extent = segments.extent(segment)
    assert extent is not None
    return extent + segments.layout(segment).page_offset(part, layer, position)


@pytest.mark.parametrize("read_bytes", [1, 4 << 20])
def test_every_damaged_slice_is_named_once(
    path: Path, read_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many slices are read at once."""
    monkeypatch.setattr("engine.session.verification.READ_BYTES", read_bytes)
    damaged = [(1, Part.KEYS, 0), (1, Part.VALUES, 1), (2, Part.VALUES, 1), (14, Part.KEYS, 1)]
    for place in damaged:
        spoil(path, *place)
    found = verify(path, lambda done, total: None)
    assert sorted(places(found.faults)) == damaged  # type: ignore[type-var]
    assert found.pages == 16
    assert all("fails its checksum" in fault.message for fault in found.faults)


def test_sectors_that_cannot_be_read_are_named_and_the_rest_is_checked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = range(offset_of(path, 5, Part.KEYS, 1), offset_of(path, 7, Part.KEYS, 1))
    spoil(path, 12, Part.VALUES, 0)
    read = BlockFile.read

    def fail(self: BlockFile, into: memoryview, offset: int) -> int:
        if offset < bad.stop and offset + len(into) > bad.start:
            raise StorageError(f"{self.path}: Input/output error", "Check the disk.")
        return read(self, into, offset)

    monkeypatch.setattr(BlockFile, "read", fail)
    found = verify(path, lambda done, total: None)
    assert places(found.faults) == [
        (5, Part.KEYS, 1),
        (6, Part.KEYS, 1),
        (12, Part.VALUES, 0),
    ]
    assert "Input/output error" in found.faults[0].message


def test_it_can_be_stopped_and_leaves_no_thread(path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done:
            raise Stop

    with pytest.raises(Stop):
        verify(path, stop)
    assert not [thread for thread in threading.enumerate() if "kv-verify" in thread.name]
    assert verify(path, lambda done, total: None).faults == ()
