"""Page slices as memory: what was read, what is missing, what is not believed."""

from __future__ import annotations

import gc
import mmap
import os
from pathlib import Path

import pytest
import session_kit as kit
from session_faults import flip

from engine.errors import ConfigError, PageCorrupt, StorageError
from engine.session import PageSlices, SessionFile
from engine.types import KVGeometry, Part, SegmentId

GEOMETRIES = pytest.mark.parametrize("geometry", [kit.SMALL, kit.ALIGNED], ids=["small", "aligned"])


def slices(page: int, geometry: KVGeometry, part: Part, layer: int, count: int = 1) -> PageSlices:
    segment, first = divmod(page, geometry.pages_per_segment)
    return PageSlices(SegmentId(segment), part, layer, first, count)


def offset_of(file: SessionFile, wanted: PageSlices) -> int:
    extent = file._state.segments.extent(wanted.segment)
    assert extent is not None
    layout = file._state.segments.layout(wanted.segment)
    return extent + layout.page_offset(wanted.part, wanted.layer, wanted.first_page)


@GEOMETRIES
def test_every_slice_is_what_was_written(tmp_path: Path, geometry: KVGeometry) -> None:
    path = kit.make(tmp_path / "s.kv", 9 * geometry.page_tokens, geometry=geometry)
    with SessionFile.open(path, writable=False) as file:
        mapped = file.page_map()
        for index in range(9):
            content = kit.page(geometry, index)
            for layer in range(geometry.num_layers):
                for part in Part:
                    wanted = slices(index, geometry, part, layer)
                    for is_present in (False, True):
                        read = mapped.read(wanted, is_present=is_present)
                        assert read == content[layer, part].data
                    assert mapped.missing_bytes(wanted) == 0
                    mapped.advise(wanted)


@GEOMETRIES
def test_neighbours_are_one_stretch_of_memory(tmp_path: Path, geometry: KVGeometry) -> None:
    path = kit.make(tmp_path / "s.kv", 4 * geometry.page_tokens, geometry=geometry)
    with SessionFile.open(path, writable=False) as file:
        read = file.page_map().read(slices(1, geometry, Part.VALUES, 1, 3), is_present=False)
        pages = [kit.page(geometry, index)[1, Part.VALUES].tobytes() for index in (1, 2, 3)]
        assert read == b"".join(pages)


def test_what_the_kernel_dropped_is_missing_until_it_is_read_again(tmp_path: Path) -> None:
    path = kit.make(tmp_path / "s.kv", 4 * kit.ALIGNED.page_tokens, geometry=kit.ALIGNED)
    os.sync()
    with SessionFile.open(path, writable=False) as file:
        mapped, wanted = file.page_map(), slices(2, kit.ALIGNED, Part.KEYS, 0)
        os.posix_fadvise(file._file._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if not mapped.missing_bytes(wanted):
            pytest.skip("this file system keeps files in memory")
        assert mapped.missing_bytes(wanted) == kit.ALIGNED.page_slice_bytes
        assert mapped.read(wanted, is_present=False) == kit.page(kit.ALIGNED, 2)[0, 0].data
        assert mapped.missing_bytes(wanted) == 0


@GEOMETRIES
def test_bytes_that_fail_their_checksum_are_not_given(tmp_path: Path, geometry: KVGeometry) -> None:
    path = kit.make(tmp_path / "s.kv", 6 * geometry.page_tokens, geometry=geometry)
    wanted = slices(5, geometry, Part.VALUES, 1)
    with SessionFile.open(path, writable=False) as file:
        flip(path, offset_of(file, wanted) + 7)
        mapped = file.page_map()
        for is_present in (False, True):
            with pytest.raises(PageCorrupt, match="page 5, layer 1, values"):
                mapped.read(wanted, is_present=is_present)
        mapped.read(slices(5, geometry, Part.KEYS, 1), is_present=False)


def test_what_was_let_go_is_checked_again(tmp_path: Path) -> None:
    """Right when it was read first, and changed on the device since."""
    path = kit.make(tmp_path / "s.kv", 6 * kit.ALIGNED.page_tokens, geometry=kit.ALIGNED)
    wanted = slices(4, kit.ALIGNED, Part.KEYS, 0)
    with SessionFile.open(path, writable=False) as file:
        mapped = file.page_map()
        mapped.read(wanted, is_present=False)
        flip(path, offset_of(file, wanted))
        mapped.release(wanted.segment, wanted.part, wanted.layer)
        with pytest.raises(PageCorrupt):
            mapped.read(wanted, is_present=True)


def test_a_file_that_was_cut_off_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    """To touch a page behind the end of a file kills a process."""
    path = kit.make(tmp_path / "s.kv", 6 * kit.ALIGNED.page_tokens, geometry=kit.ALIGNED)
    wanted = slices(5, kit.ALIGNED, Part.VALUES, 1)
    with SessionFile.open(path, writable=False) as file:
        mapped, offset = file.page_map(), offset_of(file, wanted)
        os.truncate(path, offset - offset % mmap.PAGESIZE)
        with pytest.raises(StorageError, match=r"s\.kv"):
            mapped.read(wanted, is_present=False)


def test_memory_outlives_the_map_and_the_file(tmp_path: Path) -> None:
    path = kit.make(tmp_path / "s.kv", 2 * kit.ALIGNED.page_tokens, geometry=kit.ALIGNED)
    with SessionFile.open(path, writable=False) as file:
        read = file.page_map().read(slices(1, kit.ALIGNED, Part.KEYS, 1), is_present=False)
    gc.collect()
    assert read == kit.page(kit.ALIGNED, 1)[1, 0].data


def test_other_systems_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kit.make(tmp_path / "s.kv", 64)
    monkeypatch.setattr("engine.session.page_map.sys.platform", "darwin")
    with SessionFile.open(path, writable=False) as file, pytest.raises(ConfigError) as refused:
        file.page_map()
    assert "explicit" in refused.value.advice
