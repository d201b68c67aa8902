"""Damaged, cut, foreign and newer files: refused or repaired from a second copy, never served."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import session_kit as kit
from session_faults import flip, opened, overwrite

from engine.errors import NotASession, PageCorrupt, SessionError
from engine.session import SessionFile, describe, pages_bytes, verify
from engine.session.block_file import Access, BlockFile
from engine.session.format import (
    SUPERBLOCK_BYTES,
    SUPERBLOCK_COPIES,
)
from engine.session.record import decode
from engine.session.recovery import recover
from engine.types import CodedSizes, Part, SegmentId

COMMITS = (6, 21, 3, 1)
"""The last two share a page: both tail slots are in use and the last tail page holds 3 tokens."""


@pytest.fixture(params=[None, kit.CODED], ids=["raw", "coded"])
def coded(request: pytest.FixtureRequest) -> CodedSizes | None:
    found = request.param
    assert found is None or isinstance(found, CodedSizes)
    return found


@pytest.fixture
def path(tmp_path: Path, coded: CodedSizes | None) -> Path:
    return kit.make(tmp_path / "s.kv", *COMMITS, coded=coded)


def kill_superblock(path: Path, generation: int) -> None:
    """Damage both copies of the superblock that a commit has written."""
    for offset in SUPERBLOCK_COPIES[generation % 2]:
        flip(path, offset + 33)


def faults(path: Path) -> list[str]:
    return [fault.message for fault in verify(path, lambda done, total: None).faults]


def test_a_sound_file_has_no_faults(path: Path, coded: CodedSizes | None) -> None:
    progress: list[tuple[int, int]] = []
    assert verify(path, lambda done, total: progress.append((done, total))).faults == ()
    total = pages_bytes(kit.SMALL, coded, sum(COMMITS))
    assert coded is not None or total == kit.SMALL.num_pages(sum(COMMITS)) * kit.SMALL.page_bytes
    assert progress[0] == (0, total)
    assert progress[-1] == (total, total)
    assert progress == sorted(progress)


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("slot", [0, 1])
def test_one_bad_superblock_copy_costs_nothing(path: Path, slot: int, copy: int) -> None:
    flip(path, SUPERBLOCK_COPIES[slot][copy] + 40)
    with SessionFile.open(path, writable=False) as file:
        assert file.generation == len(COMMITS)
        assert file.recovered == f"superblock {slot} is damaged in copy {copy}; nothing is lost"
        kit.check(file)
    assert faults(path) == [f"{path}: superblock {slot} is damaged in copy {copy}"]


@pytest.mark.parametrize("copy", [0, 1])
def test_one_bad_record_copy_costs_nothing(path: Path, copy: int) -> None:
    head = opened(path).state.head
    assert head is not None
    flip(path, head.copy_offsets[copy] + 70)
    with SessionFile.open(path, writable=False) as file:
        kit.check(file)
        assert file.recovered == (
            "" if copy else "the record of generation 4 is damaged in copy 0; nothing is lost"
        )
    assert faults(path) == [f"{path}: the record of generation 4 is damaged in copy {copy}"]


def test_a_dead_newest_superblock_opens_the_commit_before_and_says_so(path: Path) -> None:
    kill_superblock(path, 4)
    with SessionFile.open(path, writable=False) as file:
        assert file.generation == 3
        assert file.recovered == (
            "superblock 0 is damaged, a later commit may be lost; opened at generation 3"
        )
        kit.check(file)


def test_a_dead_older_superblock_costs_nothing(path: Path) -> None:
    """The file ends with the newest commit, so the dead superblock named no later one."""
    kill_superblock(path, 3)
    with SessionFile.open(path, writable=True) as file:
        assert file.generation == 4
        assert file.recovered.endswith("nothing is lost")
        kit.advance(file, 1)
    assert describe(path).recovered == ""


def test_a_dead_newest_record_opens_the_commit_before_and_says_so(path: Path) -> None:
    head = opened(path).state.head
    assert head is not None
    for offset in head.copy_offsets:
        flip(path, offset + 70)
    with SessionFile.open(path, writable=False) as file:
        assert file.generation == 3
        assert "generation 4 is damaged: the record of generation 4: a record fails" in (
            file.recovered
        )
        kit.check(file)


def test_a_writer_goes_on_after_a_loss_without_touching_the_evidence(path: Path) -> None:
    lost = opened(path).root.record
    kill_superblock(path, 4)
    before = path.read_bytes()
    with SessionFile.open(path, writable=True) as file:
        kit.advance(file, 5)
    assert path.read_bytes()[lost.offset : lost.end] == before[lost.offset : lost.end]
    with SessionFile.open(path, writable=False) as file:
        assert (file.generation, file.recovered) == (4, "")
        kit.check(file)


def test_a_tail_lost_with_the_newest_commit_lowers_the_kv(path: Path) -> None:
    """Commit 5 had begun to write the slot that commit 3 uses when commit 4 was lost."""
    kill_superblock(path, 4)
    state = opened(path).state
    assert state.tail is not None
    flip(path, state.tail_slots[state.tail.slot])
    with SessionFile.open(path, writable=True) as file:
        assert "the KV of the last 2 tokens is lost" in file.recovered
        assert (file.kv_tokens, file.tail_tokens, len(file.token_ids)) == (28, 0, 30)
        kit.write_page(file, 7)
        file.commit(token_ids=[30, 31], kv_tokens=32, notes={"end": 32}, spans=[{"end": 32}])
    with SessionFile.open(path, writable=False) as file:
        kit.check(file)


def test_a_dead_first_record_is_refused_with_the_reason(path: Path) -> None:
    file = BlockFile.open(path, Access.PEEK)
    ref = recover(file).state.head
    while ref is not None and ref.offset:
        first = ref
        data = bytearray(ref.length)
        file.read(memoryview(data), ref.offset)
        ref = decode(bytes(data), ref.checksum).previous
    file.close()
    for offset in first.copy_offsets:
        flip(path, offset + 70)
    with pytest.raises(NotASession, match="the record of generation 1: a record fails its checks"):
        SessionFile.open(path, writable=False)


@pytest.mark.parametrize("part", list(Part))
def test_a_flipped_bit_in_a_page_names_page_layer_and_part(path: Path, part: Part) -> None:
    state = opened(path).state
    extent = state.segments.extent(1)
    assert extent is not None
    flip(path, extent + state.segments.layout(1).page_offset(part, 1, 2) + 5)
    where = f"{path}: page 6, layer 1, {part.name.lower()}: fails its checksum"
    with SessionFile.open(path, writable=False) as file, pytest.raises(PageCorrupt) as caught:
        kit.check(file)
    assert caught.value.message == where
    (fault,) = verify(path, lambda done, total: None).faults
    assert (fault.message, fault.page, fault.layer, fault.part) == (where, 6, 1, part)


def test_a_flipped_bit_in_the_tail_names_layer_and_part(path: Path) -> None:
    state = opened(path).state
    assert state.tail is not None
    slot = state.tail_slots[state.tail.slot]
    flip(path, slot + 3 * kit.SMALL.page_slice_bytes)
    where = f"{path}: tail page, layer 1, values: fails its checksum"
    with SessionFile.open(path, writable=False) as file, pytest.raises(PageCorrupt) as caught:
        kit.read_tail(file)
    assert caught.value.message == where
    assert faults(path) == [where]


def test_a_stale_tail_is_not_served(path: Path) -> None:
    """The older slot holds a page with the same place and a good checksum of its own."""
    state = opened(path).state
    assert state.tail is not None
    new, old = state.tail_slots[state.tail.slot], state.tail_slots[1 - state.tail.slot]
    data = path.read_bytes()
    overwrite(path, new, data[old : old + kit.SMALL.page_bytes])
    with SessionFile.open(path, writable=False) as file, pytest.raises(PageCorrupt):
        kit.read_tail(file)


def test_swapped_slices_are_not_served(tmp_path: Path) -> None:
    """Equal bytes in two places have different checksums, so a swap of checksums fails as well."""
    path = tmp_path / "s.kv"
    data = memoryview(bytearray(kit.SMALL.slice_bytes))
    with SessionFile.create(path, kit.IDENTITY, kit.SMALL) as file:
        for layer in range(2):
            for part in Part:
                file.write_pages(SegmentId(0), part, layer, 0, data)
        file.commit(token_ids=range(16), kv_tokens=16)
        table = file._state.segments
        every = [table.expected(0, part, layer, slice(0, 4)) for part in Part for layer in (0, 1)]
    assert len({checksum for row in every for checksum in row}) == 16


def test_a_file_of_another_session_is_not_mixed_in(
    tmp_path: Path, path: Path, coded: CodedSizes | None
) -> None:
    """Same tokens, same pages, another session: its bytes fail here."""
    other = kit.make(tmp_path / "other.kv", *COMMITS, coded=coded)
    extent = opened(path).state.segments.extent(0)
    assert extent is not None
    end = extent + opened(path).state.segments.layout(0).segment_stride
    assert path.read_bytes()[extent:end] == other.read_bytes()[extent:end]
    overwrite(path, 8192, other.read_bytes()[8192:])
    with pytest.raises(NotASession):
        SessionFile.open(path, writable=False)


def test_random_flips_are_survived_or_refused_never_served(tmp_path: Path, path: Path) -> None:
    """Of any single flipped byte, metadata survives and pages are refused by name."""
    rng, copy = random.Random(1), tmp_path / "copy.kv"
    original = path.read_bytes()
    offsets = [offset for offset, byte in enumerate(original) if byte]
    refused = 0
    for _ in range(300):
        offset = rng.choice(offsets)
        copy.write_bytes(original)
        overwrite(copy, offset, bytes([original[offset] ^ (1 << rng.randrange(8))]))
        with SessionFile.open(copy, writable=False) as file:
            assert file.generation == len(COMMITS)
            try:
                kit.check(file)
            except PageCorrupt:
                refused += 1
    assert 0 < refused < 300


def test_a_cut_file_is_never_served_wrong(tmp_path: Path, path: Path) -> None:
    """Cut at every half block: an older commit, a named page or a refusal."""
    copy, original = tmp_path / "copy.kv", path.read_bytes()
    outcomes: set[str] = set()
    for length in range(0, len(original), 2048):
        copy.write_bytes(original[:length])
        try:
            with SessionFile.open(copy, writable=False) as file:
                assert file.generation == 4 or file.recovered
                kit.check(file)
                outcomes.add(f"generation {file.generation}")
        except SessionError as error:
            outcomes.add(type(error).__name__)
    assert outcomes == {"NotASession", "generation 3", "generation 4"}


@pytest.mark.parametrize(
    "content",
    [b"", b"%PDF-1.7\n" * 2000, b"\x89kvcli\r\n", b"\x89kvcli\r\n" + bytes(20000), bytes(20000)],
    ids=["empty", "pdf", "magic only", "no checksum", "zeros"],
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.kv"
    path.write_bytes(content)
    for refused in (
        lambda: SessionFile.open(path, writable=True),
        lambda: describe(path),
        lambda: verify(path, lambda done, total: None),
    ):
        with pytest.raises(NotASession) as caught:
            refused()
        assert str(path) in caught.value.message
        assert caught.value.advice
    assert path.read_bytes() == content


def test_a_flipped_bit_in_the_version_is_damage_not_a_version(path: Path) -> None:
    flip(path, SUPERBLOCK_COPIES[0][0] + 8)
    with SessionFile.open(path, writable=False) as file:
        kit.check(file)


def test_describe_tells_what_is_stored(
    path: Path, tmp_path: Path, coded: CodedSizes | None
) -> None:
    summary = describe(path)
    assert (summary.tokens, summary.kv_tokens, summary.generation) == (31, 31, 4)
    assert (summary.segments, summary.spans, summary.notes) == (2, 4, {"end": 31})
    assert summary.identity == (kit.IDENTITY if coded is None else kit.CODED_IDENTITY)
    assert summary.geometry == kit.SMALL
    assert summary.file_bytes == path.stat().st_size
    assert summary.kv_bytes == pages_bytes(kit.SMALL, coded, 31)
    assert summary.recovered == ""
    copy = tmp_path / "copy.kv"
    shutil.copyfile(path, copy)
    assert describe(copy).uuid == summary.uuid


def test_a_superblock_fits_one_sector() -> None:
    """So that a disk writes it whole or not at all."""
    assert SUPERBLOCK_BYTES <= 512
    assert all(offset % 512 == 0 for copies in SUPERBLOCK_COPIES for offset in copies)
