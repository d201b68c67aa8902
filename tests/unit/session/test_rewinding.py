"""Other contents in place of the old ones: what is kept, and that nothing of it is lost by it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import session_kit as kit
from session_faults import Device, crash_image, flip, opened

from engine.errors import NotASession, UnsupportedVersion
from engine.session import (
    SessionFile,
    compact_session,
    describe,
    fork_session,
    replace_contents,
    verify,
)
from engine.session.record import Rewind

COMMITS = (20, 30, 13)
"""Sixty-three tokens: three sealed segments of sixteen, three pages and a tail."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return kit.make(tmp_path / "s.kv", *COMMITS)


def put(file: SessionFile, same: int, more: int, step_tokens: int = 16) -> list[int]:
    """Contents that share `same` ids and then go on otherwise."""
    ids = [*range(same), *range(500, 500 + more)]
    replace_contents(file, ids, [*file.spans[:1], {"new": same}], {"end": 0},
                     step_tokens=step_tokens)  # fmt: skip
    return ids


@pytest.mark.parametrize(
    ("same", "step_tokens", "kept"),
    [(0, 16, 0), (15, 16, 0), (16, 16, 16), (40, 16, 32), (40, 32, 32), (63, 32, 32), (63, 16, 48)],
)
def test_whole_steps_of_kv_are_kept(path: Path, same: int, step_tokens: int, kept: int) -> None:
    with SessionFile.open(path, writable=True) as file:
        ids = put(file, same, 9, step_tokens)
        check(file, ids, kept)
    with SessionFile.open(path, writable=False) as file:
        check(file, ids, kept)
        assert file.spans == [{"start": 0, "end": 20}, {"new": same}]
    assert verify(path, lambda done, total: None).faults == ()


def check(file: SessionFile, ids: list[int], kept: int) -> None:
    assert file.token_ids.tolist() == ids
    assert (file.kv_tokens, file.tail_tokens) == (kept, 0)
    for page in range(16):
        assert file.has_page(page) == (page < kept // 4)
        if page < kept // 4:
            assert np.array_equal(kit.read_page(file, page), kit.page(kit.SMALL, page))


def test_it_goes_on_from_there(path: Path) -> None:
    with SessionFile.open(path, writable=True) as file:
        ids = put(file, 40, 20)
        for page in range(8, 15):
            kit.write_page(file, page, salt=7)
        file.commit(kv_tokens=60)
    with SessionFile.open(path, writable=False) as file:
        assert file.kv_tokens == 60 and file.token_ids.tolist() == ids
        for page in range(15):
            salt = 7 if page >= 8 else 0
            assert np.array_equal(kit.read_page(file, page), kit.page(kit.SMALL, page, salt))


def test_the_kv_that_nobody_needs_goes_with_the_next_compaction(path: Path) -> None:
    with SessionFile.open(path, writable=True) as file:
        put(file, 16, 4)
    before = path.stat().st_size
    compact_session(path, lambda done, total: None)
    assert path.stat().st_size < before
    with SessionFile.open(path, writable=False) as file:
        check(file, [*range(16), *range(500, 504)], 16)


def test_a_fork_keeps_what_its_base_gives_up(path: Path) -> None:
    fork = path.with_name("fork.kv")
    with SessionFile.open(path, writable=True) as file:
        fork_session(file, fork, num_segments=3)
        put(file, 16, 4)
        for page in range(4, 5):
            kit.write_page(file, page, salt=9)
        file.commit(kv_tokens=20)
    with SessionFile.open(fork, writable=False) as file:
        assert file.kv_tokens == 48
        for page in range(12):
            assert np.array_equal(kit.read_page(file, page), kit.page(kit.SMALL, page))


def test_a_fork_that_goes_back_needs_less_of_its_base(path: Path) -> None:
    fork = path.with_name("fork.kv")
    with SessionFile.open(path, writable=True) as file:
        fork_session(file, fork, num_segments=3)
    with SessionFile.open(fork, writable=True) as file:
        put(file, 20, 9)
        kit.write_page(file, 4, salt=3)
        file.commit(kv_tokens=20)
    with SessionFile.open(fork, writable=False) as file:
        assert file.kv_tokens == 20
        assert np.array_equal(kit.read_page(file, 3), kit.page(kit.SMALL, 3))
        assert np.array_equal(kit.read_page(file, 4), kit.page(kit.SMALL, 4, 3))
    assert describe(fork).base_tokens == 16


def test_power_loss_at_any_write_leaves_the_old_or_the_new_contents(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, device, before = path.read_bytes(), Device([len(COMMITS)]), len(COMMITS)
    with monkeypatch.context() as patch, SessionFile.open(path, writable=True) as file:
        device.install(patch)
        put(file, 40, 9)
        device.log.append(file.generation)
    rng, image_path, seen = random.Random(4), path.with_name("image.kv"), set()
    for length in range(len(device.log) + 1):
        image, promised = crash_image(base, device.log[:length], rng, garbage=True)
        image_path.write_bytes(image)
        with SessionFile.open(image_path, writable=False) as file:
            assert promised <= file.generation
            seen.add(file.generation)
            if file.generation == before:
                kit.check(file)
            else:
                check(file, [*range(40), *range(500, 509)], 32)
    assert seen == {before, before + 1}


def test_a_lost_commit_of_that_kind_opens_what_was_before(path: Path) -> None:
    with SessionFile.open(path, writable=True) as file:
        put(file, 40, 9)
    head = opened(path).state.head
    assert head is not None
    for offset in head.copy_offsets:
        flip(path, offset + 60)
    with SessionFile.open(path, writable=False) as file:
        assert "opened at generation 3" in file.recovered
        kit.check(file)


def test_a_reader_of_version_1_refuses_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SessionFile.open(path, writable=True) as file:
        put(file, 40, 9)
    with SessionFile.open(path, writable=True) as file:
        file.commit(kv_tokens=file.kv_tokens, notes={"later": 1})
    monkeypatch.setattr("engine.session.recovery.FORMAT_VERSION", 1)
    with pytest.raises(UnsupportedVersion):
        SessionFile.open(path, writable=False)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {},
        {"token_ids": 1},
        {"token_ids": -1, "spans": 0, "kv_tokens": 0},
        {"token_ids": 1, "spans": "0", "kv_tokens": 0},
        {"token_ids": True, "spans": 0, "kv_tokens": 0},
    ],
)
def test_a_forged_entry_is_refused(entry: object) -> None:
    with pytest.raises(NotASession, match="goes back to nowhere"):
        Rewind.from_json(entry)


@pytest.mark.parametrize("kv_tokens", [8, 64])
def test_a_record_that_goes_back_to_no_segment_is_refused(path: Path, kv_tokens: int) -> None:
    state = opened(path).state
    with pytest.raises(NotASession, match="no segment ends"):
        state._drop_kv(kv_tokens)
