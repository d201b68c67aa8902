"""A session is created, grown, closed and opened again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import session_kit as kit

from engine.errors import (
    IdentityMismatch,
    StorageError,
)
from engine.session import Identity, SessionFile, aligned_buffer, describe
from engine.session.block_file import BlockFile
from engine.types import KVGeometry, Part, SegmentId

GEOMETRIES = pytest.mark.parametrize("geometry", [kit.SMALL, kit.ALIGNED], ids=["small", "aligned"])


@GEOMETRIES
def test_everything_committed_is_read_back(tmp_path: Path, geometry: KVGeometry) -> None:
    """Commits that end inside a page, on its border and several segments on."""
    path = kit.make(tmp_path / "s.kv", 1, 15, 16, 150, 3, geometry=geometry)
    with SessionFile.open(path, writable=False) as file:
        assert (file.generation, file.kv_tokens, file.recovered) == (5, 185, "")
        kit.check(file)


@GEOMETRIES
def test_a_session_grows_over_many_sittings(tmp_path: Path, geometry: KVGeometry) -> None:
    path = kit.make(tmp_path / "s.kv", 5, geometry=geometry)
    for tokens in (1, 30, 7, 21):
        with SessionFile.open(path, writable=True) as file:
            kit.check(file)
            kit.advance(file, tokens)
            kit.check(file)
    with SessionFile.open(path, writable=False) as file:
        assert file.kv_tokens == 64
        kit.check(file)


def test_token_ids_may_run_ahead_of_their_kv(tmp_path: Path) -> None:
    """An interrupted ingest is finished from the file alone."""
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file:
        file.commit(token_ids=range(1000), kv_tokens=0)
    with SessionFile.open(tmp_path / "s.kv", writable=True) as file:
        assert (len(file.token_ids), file.kv_tokens, file.tail_tokens) == (1000, 0, 0)
        kit.write_page(file, 0)
        file.commit(kv_tokens=4)
    with SessionFile.open(tmp_path / "s.kv", writable=False) as file:
        assert (len(file.token_ids), file.kv_tokens) == (1000, 4)
        assert np.array_equal(kit.read_page(file, 0), kit.page(kit.SMALL, 0))


def test_a_written_page_can_be_read_before_its_commit(tmp_path: Path) -> None:
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file:
        assert not file.has_page(6)
        kit.write_page(file, 6)
        assert file.has_page(6)
        assert not file.has_page(5)
        assert np.array_equal(kit.read_page(file, 6), kit.page(kit.SMALL, 6))


def test_a_page_is_there_only_when_all_its_slices_are(tmp_path: Path) -> None:
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file:
        data = aligned_buffer(kit.SMALL.page_slice_bytes)
        for layer, part in [(0, Part.KEYS), (0, Part.VALUES), (1, Part.VALUES)]:
            file.write_pages(SegmentId(0), part, layer, 0, data)
        assert not file.has_page(0)
        with pytest.raises(AssertionError, match="unwritten"):
            file.commit(token_ids=range(4), kv_tokens=4)
        file.write_pages(SegmentId(0), Part.KEYS, 1, 0, data)
        assert file.has_page(0)


def test_uncommitted_pages_are_gone_after_reopening(tmp_path: Path) -> None:
    path = kit.make(tmp_path / "s.kv", 8)
    size = path.stat().st_size
    with SessionFile.open(path, writable=True) as file:
        kit.write_page(file, 2)
        kit.write_page(file, 9)
    assert path.stat().st_size > size
    with SessionFile.open(path, writable=True) as file:
        assert path.stat().st_size == size
        assert not file.has_page(2)
        kit.check(file)


def test_an_uncommitted_page_may_be_written_again_a_committed_one_not(tmp_path: Path) -> None:
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file:
        kit.write_page(file, 0, salt=7)
        kit.write_page(file, 0)
        assert np.array_equal(kit.read_page(file, 0), kit.page(kit.SMALL, 0))
        file.commit(token_ids=range(4), kv_tokens=4)
        with pytest.raises(AssertionError, match="never change"):
            kit.write_page(file, 0)


def test_a_commit_without_new_tokens_copies_none(tmp_path: Path) -> None:
    """The ids of a long document are all in its first commit, and hundreds follow while its pages
    are computed: an array of megabytes for each made the memory of an ingest grow by its holes."""
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file:
        kit.write_page(file, 0)
        file.commit(token_ids=range(12), kv_tokens=4)
        ids = file.token_ids
        kit.write_page(file, 1)
        file.commit(kv_tokens=8)
        assert file.token_ids is ids and file.kv_tokens == 8


def test_a_whole_slice_is_written_and_read_in_one_call(tmp_path: Path) -> None:
    geometry = kit.ALIGNED
    data, back = aligned_buffer(geometry.slice_bytes), aligned_buffer(geometry.slice_bytes)
    data[:] = np.random.default_rng(0).bytes(geometry.slice_bytes)
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, geometry) as file:
        file.write_pages(SegmentId(3), Part.VALUES, 1, 0, data)
        file.read_pages(SegmentId(3), Part.VALUES, 1, 0, geometry.pages_per_segment, back)
        assert back == data
        assert file.bytes_written == file.bytes_read == geometry.slice_bytes


def test_direct_and_buffered_calls_see_the_same_bytes(tmp_path: Path) -> None:
    """An unaligned buffer goes through the page cache, an aligned one around it."""
    geometry = kit.ALIGNED
    size = geometry.page_slice_bytes
    aligned, odd = aligned_buffer(size), aligned_buffer(size + 1)[1:]
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, geometry) as file:
        for step in range(4):
            source, target = (aligned, odd) if step % 2 else (odd, aligned)
            source[:] = bytes([step + 1]) * size
            file.write_pages(SegmentId(0), Part.KEYS, 0, 0, source)
            file.read_pages(SegmentId(0), Part.KEYS, 0, 0, 1, target)
            assert target == source


def test_threads_write_and_read_while_commits_run(tmp_path: Path) -> None:
    path, pages = tmp_path / "s.kv", 64
    with SessionFile.create(path, kit.IDENTITY, kit.ALIGNED) as file:

        def work(first: int) -> None:
            for index in range(first, pages, 4):
                kit.write_page(file, index)
                assert np.array_equal(kit.read_page(file, index), kit.page(kit.ALIGNED, index))

        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        committed = 0
        while committed < pages:
            ready = committed
            while ready < pages and file.has_page(ready):
                ready += 1
            ids = range(16 * committed, 16 * ready)
            file.commit(token_ids=ids, kv_tokens=16 * ready, notes={"end": 16 * ready})
            committed = ready
        for thread in threads:
            thread.join()
    with SessionFile.open(path, writable=False) as file:
        assert file.kv_tokens == 16 * pages
        for index in range(pages):
            assert np.array_equal(kit.read_page(file, index), kit.page(kit.ALIGNED, index))


def test_notes_are_replaced_whole_and_kept_when_not_given(tmp_path: Path) -> None:
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file:
        file.commit(kv_tokens=0, notes={"a": 1, "b": [1, None]})
        file.commit(kv_tokens=0)
        assert file.notes == {"a": 1, "b": [1, None]}
        file.commit(kv_tokens=0, notes={"c": 2})
    with SessionFile.open(tmp_path / "s.kv", writable=False) as file:
        assert file.notes == {"c": 2}


def test_file_names_that_are_no_text_survive_in_spans(tmp_path: Path) -> None:
    """Python carries undecodable bytes of a file name as lone surrogates."""
    name = os.fsdecode(b"\xe9 \xff.txt")
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file:
        file.commit(kv_tokens=0, spans=[{"path": name, "title": "Übersicht"}])
    with SessionFile.open(tmp_path / "s.kv", writable=False) as file:
        assert file.spans == [{"path": name, "title": "Übersicht"}]


def test_a_tail_is_kept_by_commits_that_do_not_touch_it(tmp_path: Path) -> None:
    """The slot in use must survive any number of commits that only change notes."""
    path = kit.make(tmp_path / "s.kv", 6)
    with SessionFile.open(path, writable=True) as file:
        for _ in range(3):
            file.commit(kv_tokens=6)
        kit.advance(file, 1)
        file.commit(kv_tokens=7)
    with SessionFile.open(path, writable=False) as file:
        kit.check(file)


def test_a_session_costs_little_more_than_its_kv(tmp_path: Path) -> None:
    """At the default model's page size: at most 2% over KV, ids and spans."""
    geometry = KVGeometry(30, 3, 64, "bfloat16")
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, geometry) as file:
        data = aligned_buffer(geometry.slice_bytes)
        for layer in range(geometry.num_layers):
            for part in Part:
                file.write_pages(SegmentId(0), part, layer, 0, data)
        file.commit(token_ids=range(512), kv_tokens=512)
    summary = describe(tmp_path / "s.kv")
    assert summary.kv_bytes == geometry.segment_bytes
    assert summary.file_bytes <= 1.02 * (summary.kv_bytes + 4 * 512)


def test_a_spill_file_has_no_name_and_reads_back(tmp_path: Path) -> None:
    with SessionFile.spill(tmp_path, kit.ALIGNED) as file:
        assert [entry for entry in tmp_path.iterdir() if entry.is_file()] == []
        for index in (0, 9, 3):
            kit.write_page(file, index)
            assert np.array_equal(kit.read_page(file, index), kit.page(kit.ALIGNED, index))
        with pytest.raises(AssertionError, match="spill"):
            file.commit(token_ids=range(16), kv_tokens=16)


def test_free_space_is_checked_before_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BlockFile, "free_space", lambda _: 999_999)
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file:
        file.free_space_check(999_999)
        with pytest.raises(StorageError, match=r"1,000,000 bytes needed, 999,999 free"):
            file.free_space_check(1_000_000)


def test_another_identity_is_refused_by_field() -> None:
    other = Identity("tiny", "w1", "t2", "c1", "r2", "float16")
    kit.IDENTITY.require_same(kit.IDENTITY)
    with pytest.raises(IdentityMismatch, match="tokenizer is 't1', this run's is 't2'"):
        kit.IDENTITY.require_same(other)


def test_close_twice_is_harmless(tmp_path: Path) -> None:
    file = SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL)
    file.close()
    file.close()


def test_a_stored_token_id_cannot_be_changed(tmp_path: Path) -> None:
    with SessionFile.open(kit.make(tmp_path / "s.kv", 4), writable=True) as file:
        with pytest.raises(ValueError, match="read-only"):
            file.token_ids[0] = 9
        kit.advance(file, 4)
        with pytest.raises(ValueError, match="read-only"):
            file.token_ids[0] = 9


def test_the_package_needs_no_torch() -> None:
    code = "import sys, engine.session; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
