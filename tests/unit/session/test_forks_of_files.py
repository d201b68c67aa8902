"""Files that share segments: what a fork holds, what it costs, and who needs whom."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import session_kit as kit
from session_faults import flip, opened, spoil

from engine.errors import (
    BaseMissing,
    BaseNeeded,
    ConfigError,
    NotASession,
    PageCorrupt,
    SessionLocked,
    UnsupportedVersion,
)
from engine.session import (
    SessionFile,
    compact_session,
    copy_session,
    describe,
    fork_session,
    remove_session,
    verify,
)
from engine.session import format as session_format
from engine.session.lineage import BaseRef
from engine.types import Part

COMMITS = (6, 21, 8)
"""Thirty-five tokens: two sealed segments of sixteen, and three tokens more."""
SHARED = 32


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return kit.make(tmp_path / "base.kv", *COMMITS)


@pytest.fixture
def fork(base: Path) -> Path:
    return make_fork(base, base.with_name("fork.kv"))


def make_fork(base: Path, path: Path) -> Path:
    with SessionFile.open(base, writable=True) as file:
        fork_session(file, path, num_segments=file.kv_tokens // 16)
    return path


def advance(path: Path, tokens: int) -> None:
    with SessionFile.open(path, writable=True) as file:
        grow(file, tokens)


def grow(file: SessionFile, tokens: int) -> None:
    """As `kit.advance`, but the ids of a fork run ahead of its KV already."""
    size, end = file.geometry.page_tokens, file.kv_tokens + tokens
    for page in range(file.kv_tokens // size, end // size):
        kit.write_page(file, page)
    page, rest = divmod(end, size)
    tail = kit.page(file.geometry, page, salt=rest).data if rest else None
    ids = np.arange(len(file.token_ids), end)
    file.commit(token_ids=ids, kv_tokens=end, notes={"end": end}, tail=tail,
                spans=[{"start": 0, "end": end}])  # fmt: skip


def no_progress(done: int, total: int) -> None:
    return


def test_a_fork_holds_what_its_base_does_but_for_the_unsealed_kv(base: Path, fork: Path) -> None:
    with (
        SessionFile.open(base, writable=False) as old,
        SessionFile.open(fork, writable=False) as new,
    ):
        assert new.kv_tokens == SHARED and new.tail_tokens == 0
        assert new.token_ids.tolist() == old.token_ids.tolist()
        assert (new.spans, new.notes, new.identity) == (old.spans, old.notes, old.identity)
        assert (new.geometry, new.generation) == (old.geometry, 1)
        assert new.uuid != old.uuid and new.base is not None and new.base.uuid.hex() == old.uuid
        for page in range(SHARED // 4):
            assert new.has_page(page)
            assert np.array_equal(kit.read_page(new, page), kit.page(kit.SMALL, page))


def test_it_costs_a_few_kilobytes(base: Path, fork: Path) -> None:
    before = base.stat().st_blocks
    second = make_fork(base, base.with_name("second.kv"))
    assert second.stat().st_blocks * 512 <= 20 << 10
    assert (base.stat().st_blocks - before) * 512 <= 12 << 10


def test_both_go_their_own_way(base: Path, fork: Path) -> None:
    advance(fork, 20)
    advance(base, 30)
    advance(fork, 9)
    with SessionFile.open(fork, writable=False) as file:
        assert file.token_ids.tolist() == list(range(SHARED + 29))
        assert (file.kv_tokens, file.notes) == (SHARED + 29, {"end": SHARED + 29})
        for page in range((SHARED + 29) // 4):
            assert np.array_equal(kit.read_page(file, page), kit.page(kit.SMALL, page))
        assert np.array_equal(kit.read_tail(file), kit.page(kit.SMALL, 15, salt=1))
    with SessionFile.open(base, writable=False) as file:
        kit.check(file)
    for path in (base, fork):
        assert verify(path, no_progress).faults == ()


def test_forks_are_used_while_their_base_is_written(base: Path, fork: Path) -> None:
    second = make_fork(base, base.with_name("second.kv"))
    with (
        SessionFile.open(base, writable=True) as first,
        SessionFile.open(fork, writable=True) as file,
        SessionFile.open(second, writable=True) as other,
    ):
        kit.advance(first, 20)
        grow(file, 5)
        grow(other, 9)
        assert np.array_equal(kit.read_page(file, 3), kit.page(kit.SMALL, 3))
        with pytest.raises(SessionLocked):
            SessionFile.open(fork, writable=True)


def test_a_fork_of_a_fork_reads_through_both(base: Path, fork: Path) -> None:
    advance(fork, 20)
    second = make_fork(fork, fork.with_name("second.kv"))
    with SessionFile.open(second, writable=False) as file:
        assert file.kv_tokens == 48
        for page in range(12):
            assert np.array_equal(kit.read_page(file, page), kit.page(kit.SMALL, page))
    advance(second, 3)
    assert verify(second, no_progress).pages == 13


def test_attachments_of_the_base_are_there_and_new_ones_follow(base: Path) -> None:
    with SessionFile.open(base, writable=True) as file:
        file.attach("sketch", memoryview(b"one"), {"first": 0})
        file.commit(kv_tokens=file.kv_tokens)
        path = base.with_name("fork.kv")
        fork_session(file, path, num_segments=2)
    with SessionFile.open(path, writable=True) as file:
        file.attach("sketch", memoryview(b"two"), {"first": 32})
        file.commit(kv_tokens=file.kv_tokens)
        found = [(a.meta["first"], bytes(file.read_attachment(a))) for a in file.attachments]
        assert found == [(0, b"one"), (32, b"two")]
    with SessionFile.open(path, writable=False) as file:
        found = [(a.meta["first"], bytes(file.read_attachment(a))) for a in file.attachments]
        assert found == [(0, b"one"), (32, b"two")]
    assert verify(path, no_progress).faults == ()


def test_a_missing_base_is_named(base: Path, fork: Path) -> None:
    base.rename(base.with_name("elsewhere.kv"))
    for use in (
        lambda: SessionFile.open(fork, writable=True),
        lambda: describe(fork),
        lambda: verify(fork, no_progress),
    ):
        with pytest.raises(BaseMissing, match=r"base\.kv, which cannot be used: .*no such file"):
            use()
    base.with_name("elsewhere.kv").rename(base)
    assert describe(fork).base == base


def test_another_file_in_the_bases_place_is_not_taken_for_it(base: Path, fork: Path) -> None:
    base.rename(base.with_name("elsewhere.kv"))
    kit.make(base, *COMMITS)
    with pytest.raises(BaseMissing, match="cannot be used"):
        SessionFile.open(fork, writable=False)


def test_both_may_move_together_and_the_fork_alone(base: Path, fork: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    alone = Path(shutil.move(fork, away / "alone.kv"))
    assert describe(alone).base == base
    alone.rename(fork)
    together = tmp_path / "together"
    together.mkdir()
    for path in (base, fork):
        shutil.move(path, together / path.name)
    assert describe(together / "fork.kv").base == together / "base.kv"


def test_damage_in_a_shared_page_is_found_in_the_base(base: Path, fork: Path) -> None:
    spoil(base, 6)
    with (
        SessionFile.open(fork, writable=False) as file,
        pytest.raises(PageCorrupt, match=r"base\.kv: page 6, layer 1, keys"),
    ):
        kit.read_page(file, 6)
    (fault,) = verify(fork, no_progress).faults
    assert (fault.page, fault.part, fault.layer) == (6, Part.KEYS, 1)


def test_a_base_whose_newest_commits_are_lost_still_serves(base: Path, fork: Path) -> None:
    """A fork depends on the records up to the commit it was made from, and on no superblock."""
    advance(base, 20)
    head = opened(base).state.head
    assert head is not None
    for offset in head.copy_offsets:
        flip(base, offset + 50)
    for copies in session_format.SUPERBLOCK_COPIES:
        for offset in copies:
            flip(base, offset + 40)
    with pytest.raises(NotASession):
        SessionFile.open(base, writable=False)
    with SessionFile.open(fork, writable=False) as file:
        assert np.array_equal(kit.read_page(file, 7), kit.page(kit.SMALL, 7))


def test_a_base_is_neither_removed_nor_written_anew(base: Path, fork: Path) -> None:
    before = base.read_bytes()
    for end in (
        lambda: remove_session(base),
        lambda: compact_session(base, no_progress),
        lambda: SessionFile.create(base, kit.IDENTITY, kit.SMALL, overwrite=True),
    ):
        with pytest.raises(BaseNeeded, match=r"a fork has pages from it: .*fork\.kv"):
            end()
    assert base.read_bytes() == before
    remove_session(fork)
    assert compact_session(base, no_progress) == ()
    remove_session(base)
    assert not base.exists() and not fork.exists()


def test_a_fork_that_was_replaced_needs_nothing(base: Path, fork: Path) -> None:
    fork.unlink()
    kit.make(fork, 3)
    remove_session(base)


def test_a_damaged_fork_still_counts(base: Path, fork: Path) -> None:
    fork.write_bytes(fork.read_bytes()[:9000])
    with pytest.raises(BaseNeeded):
        remove_session(base)


def test_a_copied_fork_stands_alone(base: Path, fork: Path) -> None:
    advance(fork, 10)
    with SessionFile.open(fork, writable=False) as file:
        copy_session(file, fork.with_name("alone.kv"), no_progress)
    remove_session(fork)
    remove_session(base)
    with SessionFile.open(fork.with_name("alone.kv"), writable=False) as file:
        assert file.base is None and file.kv_tokens == SHARED + 10
        for page in range((SHARED + 10) // 4):
            assert np.array_equal(kit.read_page(file, page), kit.page(kit.SMALL, page))


def test_a_compacted_fork_stands_alone_too(base: Path, fork: Path) -> None:
    compact_session(fork, no_progress)
    remove_session(base)
    assert describe(fork).base is None


def test_a_taken_name_is_left_alone_and_the_base_notes_nothing(base: Path, fork: Path) -> None:
    before = base.read_bytes(), fork.read_bytes()
    with pytest.raises(ConfigError, match="already exists"):
        make_fork(base, fork)
    assert (base.read_bytes(), fork.read_bytes()) == before


def test_a_reader_of_version_1_refuses_a_fork_and_reads_its_base(
    base: Path, fork: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.session.recovery.FORMAT_VERSION", 1)
    with pytest.raises(UnsupportedVersion, match="session format 2; this kvcli reads format 1"):
        SessionFile.open(fork, writable=False)
    SessionFile.open(base, writable=False).close()


def test_no_descriptor_is_left_open(base: Path, fork: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    SessionFile.open(fork, writable=True).close()
    describe(fork)
    verify(fork, no_progress)
    with pytest.raises(ConfigError):
        make_fork(base, fork)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("key", "value"),
    [("uuid", "00"), ("generation", 0), ("record", [1, 2]), ("segments", -1), ("path", 3)],
)
def test_a_forged_base_is_refused(base: Path, fork: Path, key: str, value: object) -> None:
    entry = opened(fork).state.base
    assert entry is not None
    forged = {**entry.ref.to_json(), key: value}
    with pytest.raises(NotASession, match="names no usable base"):
        BaseRef.from_json(forged)
