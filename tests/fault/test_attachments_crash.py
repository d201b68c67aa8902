"""Attachments over a device that loses power or fills up: named only when they are there."""

from __future__ import annotations

import errno
import random
from functools import partial
from pathlib import Path

import pytest
import session_kit as kit
from session_faults import Device, losing_power

from engine.errors import StorageError
from engine.session import SessionFile


def content(number: int) -> bytes:
    return random.Random(number).randbytes(700 * number + 1)


def advance(file: SessionFile, tokens: int) -> None:
    """Commit tokens and one attachment that depends on how many there are already."""
    number = len(file.attachments)
    file.attach("numbers", memoryview(content(number)), {"number": number})
    kit.advance(file, tokens)


def check(file: SessionFile) -> None:
    """Assert that every commit but the first has its attachment."""
    assert len(file.attachments) == file.generation - 1
    for number, attachment in enumerate(file.attachments):
        assert attachment.meta == {"number": number}
        assert file.read_attachment(attachment) == content(number)


@pytest.mark.parametrize("garbage", [False, True], ids=["torn", "garbage"])
@pytest.mark.parametrize("seed", range(3))
def test_power_loss_at_any_write_leaves_no_name_without_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, garbage: bool
) -> None:
    """An attachment is durable before the record that names it."""
    rng = random.Random(seed)
    path = kit.make(tmp_path / "s.kv", 5)
    steps = [rng.choice((1, 2, 4, 9)) for _ in range(5)]
    commits = [partial(advance, tokens=tokens) for tokens in steps]
    for file in losing_power(path, monkeypatch, rng, commits, garbage=garbage):
        check(file)


def test_an_attachment_that_did_not_fit_is_not_named_and_can_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kit.make(tmp_path / "s.kv", 8)
    with SessionFile.open(path, writable=True) as file:
        with monkeypatch.context() as patch:
            Device(fail_write=(0, errno.ENOSPC)).install(patch)
            with pytest.raises(StorageError, match="full"):
                file.attach("numbers", memoryview(content(0)), {"number": 0})
        kit.advance(file, 1)
        assert file.attachments == ()
        advance(file, 1)
        assert file.read_attachment(file.attachments[0]) == content(0)
        kit.check(file)


def test_what_was_attached_before_a_commit_that_failed_is_named_by_its_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record does not fit; then there is room again, and meanwhile more was attached."""
    path = kit.make(tmp_path / "s.kv", 8)
    with SessionFile.open(path, writable=True) as file:
        file.attach("numbers", memoryview(content(0)), {"number": 0})
        with monkeypatch.context() as patch:
            Device(fail_write=(0, errno.ENOSPC)).install(patch)
            with pytest.raises(StorageError, match="full"):
                file.commit(kv_tokens=8)
        assert (file.generation, file.attachments) == (1, ())
        file.attach("numbers", memoryview(content(1)), {"number": 1})
        file.commit(kv_tokens=8)
    with SessionFile.open(path, writable=False) as file:
        kit.check(file)
        assert [a.meta["number"] for a in file.attachments] == [0, 1]
        for number, attachment in enumerate(file.attachments):
            assert file.read_attachment(attachment) == content(number)
