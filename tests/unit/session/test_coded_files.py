"""Session files whose pages are coded: where slices lie, and what goes with what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import session_kit as kit
from session_faults import opened, spoil

from engine.errors import IdentityMismatch, NotASession, PageCorrupt
from engine.session import (
    SessionFile,
    compact_session,
    copy_session,
    describe,
    drop_kv,
    extents_bytes,
    fork_session,
    pages_bytes,
    verify,
)
from engine.session.block_file import BlockFile
from engine.session.format import BLOCK, coded_from_json
from engine.session.layout import SegmentLayout, layout_of
from engine.types import CodedSizes, KVGeometry, Part, SegmentId

DEFAULT = KVGeometry(30, 3, 64, "bfloat16")
"""Of the default model: a segment's int4 slice of one layer is 13.5 blocks."""
INT4 = CodedSizes(6912, 6912)


def quiet(done: int, total: int) -> None:
    assert done <= total


def make(path: Path, *commits: int) -> Path:
    return kit.make(path, *commits, coded=kit.CODED)


def test_a_coded_segment_is_padded_once() -> None:
    raw, coded = SegmentLayout(DEFAULT), SegmentLayout(DEFAULT, INT4)
    assert raw.segment_stride == DEFAULT.segment_bytes
    assert coded.segment_stride == 60 * 8 * 6912
    ends = 0
    for part in Part:
        for layer in range(DEFAULT.num_layers):
            for page in range(DEFAULT.pages_per_segment):
                assert coded.page_offset(part, layer, page) == ends
                ends += INT4.of(part)
    assert coded.segment_stride == ends
    small = SegmentLayout(kit.SMALL, kit.CODED)
    assert small.segment_stride == BLOCK > 2 * 4 * (37 + 23)


def test_the_first_segment_is_raw_and_the_numbers_say_so() -> None:
    assert layout_of(DEFAULT, INT4, 0) == SegmentLayout(DEFAULT)
    assert layout_of(DEFAULT, INT4, 1) == SegmentLayout(DEFAULT, INT4)
    stride = SegmentLayout(DEFAULT, INT4).segment_stride
    assert extents_bytes(DEFAULT, INT4, 512) == DEFAULT.segment_bytes
    assert extents_bytes(DEFAULT, INT4, 513) == DEFAULT.segment_bytes + stride
    assert extents_bytes(DEFAULT, None, 513) == 2 * DEFAULT.segment_bytes
    page = 60 * 6912
    assert pages_bytes(DEFAULT, INT4, 512 + 2 * 64) == DEFAULT.segment_bytes + 2 * page
    assert pages_bytes(DEFAULT, INT4, 512 + 65) == DEFAULT.segment_bytes + page + DEFAULT.page_bytes
    assert pages_bytes(DEFAULT, None, 65) == 2 * DEFAULT.page_bytes


def test_version_3_is_of_coded_files_alone(tmp_path: Path) -> None:
    assert opened(make(tmp_path / "c.kv", 20)).root.read_version == 3
    assert opened(kit.make(tmp_path / "r.kv", 20)).root.read_version == 1
    for path in (tmp_path / "c.kv", tmp_path / "r.kv"):
        with SessionFile.open(path, writable=True) as file:
            drop_kv(file, 16)
    assert opened(tmp_path / "c.kv").root.write_version == 3
    assert opened(tmp_path / "r.kv").root.write_version == 2


def test_what_a_summary_says_of_its_bytes(tmp_path: Path) -> None:
    summary = describe(make(tmp_path / "s.kv", 50))
    assert (summary.coded, summary.identity.codec) == (kit.CODED, "int8")
    assert summary.kv_bytes == 4 * 256 + 8 * 2 * (37 + 23) + 256
    assert verify(tmp_path / "s.kv", quiet).num_bytes == summary.kv_bytes


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_run_is_read_by_whole_blocks_wherever_it_begins(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it can be read around the page cache, as what begins on a block is."""
    path = make(tmp_path / "s.kv", 48)
    real, asked = BlockFile.read, []

    def read(self: BlockFile, into: memoryview, offset: int) -> int:
        asked.append((offset % BLOCK, len(into) % BLOCK))
        return real(self, into, offset)

    with SessionFile.open(path, writable=False) as file:
        monkeypatch.setattr(BlockFile, "read", read)
        room = kit.aligned_buffer(3 * BLOCK)
        for part in Part:
            data = file.read_pages_within(SegmentId(1), part, 1, 4 - count, count, room)
            wanted = [kit.page(kit.SMALL, 8 - count + at)[1, part] for at in range(count)]
            size = kit.CODED.of(part)
            assert bytes(data) == b"".join(bytes(page[:size]) for page in wanted)
    assert set(asked) == {(0, 0)}


@pytest.mark.parametrize("copy", [copy_session, None], ids=["copied", "compacted"])
def test_a_copy_is_coded_as_its_original(tmp_path: Path, copy: Callable[..., Any] | None) -> None:
    path = make(tmp_path / "s.kv", 30, 20, 7)
    if copy is None:
        compact_session(path, quiet)
        target = path
    else:
        target = tmp_path / "t.kv"
        with SessionFile.open(path, writable=False) as source:
            copy(source, target, quiet)
    with SessionFile.open(target, writable=False) as file:
        assert file.coded == kit.CODED
        assert file.token_ids.tolist() == list(range(57))
        for page in range(14):
            assert np.array_equal(kit.read_page(file, page), kit.stored(file, page))
        assert np.array_equal(kit.read_tail(file), kit.page(kit.SMALL, 14, salt=1))
    assert verify(target, quiet).faults == ()


def test_a_fork_has_the_codec_of_its_base(tmp_path: Path) -> None:
    base_path, path = make(tmp_path / "base.kv", 48), tmp_path / "fork.kv"
    with SessionFile.open(base_path, writable=True) as base:
        fork_session(base, path, num_segments=2)
        ref = base.as_base(tmp_path / "other.kv", 2)
    with SessionFile.open(path, writable=True) as fork:
        assert (fork.coded, fork.identity.codec, fork.kv_tokens) == (kit.CODED, "int8", 32)
        for page in range(8):
            assert np.array_equal(kit.read_page(fork, page), kit.stored(fork, page))
        kit.write_page(fork, 8, salt=3)
        fork.commit(kv_tokens=36)
        assert np.array_equal(kit.read_page(fork, 8), kit.stored(fork, 8, salt=3))
    assert verify(path, quiet).faults == ()
    for identity, coded in ((kit.IDENTITY, None), (kit.CODED_IDENTITY, CodedSizes(40, 23))):
        with pytest.raises(IdentityMismatch, match="cannot be coded as"):
            SessionFile.create(tmp_path / "other.kv", identity, kit.SMALL, coded=coded, base=ref)
    assert not list(tmp_path.glob("*other.kv*"))


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        ("raw", {"keys": 1, "values": 1}),
        ("int8", None),
        ("int8", {"keys": 1}),
        ("int8", {"keys": 0, "values": 1}),
        ("int8", {"keys": True, "values": 1}),
        ("int8", {"keys": 1, "values": 1, "zeros": 1}),
        ("int8", {"keys": 1.5, "values": 1}),
        ("int8", {"keys": 1 << 40, "values": 1}),
        ("int8", [1, 1]),
    ],
)
def test_sizes_that_do_not_go_with_the_codec_are_refused(codec: str, value: object) -> None:
    with pytest.raises(NotASession, match="sizes of coded pages"):
        coded_from_json(value, replace(kit.IDENTITY, codec=codec))


def test_a_page_is_only_restored_from_its_own_bytes(tmp_path: Path) -> None:
    path = make(tmp_path / "s.kv", 48)
    spoil(path, 6, Part.VALUES)
    good = kit.page(kit.SMALL, 6)
    coded = b"".join(
        bytes(good[layer, part, : kit.CODED.of(part)]) for layer in range(2) for part in Part
    )
    with SessionFile.open(path, writable=True) as file:
        with pytest.raises(PageCorrupt, match="page 6, layer 1, values"):
            kit.read_page(file, 6)
        assert not file.restore_page(6, memoryview(coded[:-1] + b"?"))
        assert file.restore_page(6, memoryview(coded))
        assert np.array_equal(kit.read_page(file, 6), kit.stored(file, 6))
    assert verify(path, quiet).faults == ()


def test_a_spill_file_may_be_coded(tmp_path: Path) -> None:
    with SessionFile.spill(tmp_path, kit.SMALL, kit.CODED, "int8") as file:
        for page in (0, 5):
            kit.write_page(file, page)
            assert np.array_equal(kit.read_page(file, page), kit.stored(file, page))
