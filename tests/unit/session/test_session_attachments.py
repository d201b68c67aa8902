"""Bytes beside the KV: kept with a commit, checked when read, done without when damaged."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import session_kit as kit
from session_faults import flip, opened, overwrite

from engine.errors import AttachmentCorrupt
from engine.session import Attachment, SessionFile, verify


def attach(file: SessionFile, name: str, size: int, seed: int = 0) -> bytes:
    data = np.random.default_rng(seed).bytes(size)
    file.attach(name, memoryview(data), {"size": size})
    return data


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two commits; the first has an attachment of 100 bytes, the second two of 5,000."""
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file:
        attach(file, "a", 100)
        kit.advance(file, 18)
        attach(file, "b", 5000, seed=1)
        attach(file, "a", 5000, seed=2)
        kit.advance(file, 7)
    return tmp_path / "s.kv"


def faults(path: Path) -> list[str]:
    return [fault.message for fault in verify(path, lambda done, total: None).faults]


def attachments(path: Path) -> list[Attachment]:
    return opened(path).state.attachments


def test_attachments_come_back_in_order_with_what_was_said_of_them(path: Path) -> None:
    with SessionFile.open(path, writable=False) as file:
        kit.check(file)
        assert [(a.name, a.meta) for a in file.attachments] == [
            ("a", {"size": 100}),
            ("b", {"size": 5000}),
            ("a", {"size": 5000}),
        ]
        for seed, attachment in enumerate(file.attachments):
            expected = np.random.default_rng(seed).bytes(attachment.num_bytes)
            assert file.read_attachment(attachment) == expected
    assert faults(path) == []


def test_a_commit_names_only_what_was_attached_since_the_one_before(path: Path) -> None:
    with SessionFile.open(path, writable=True) as file:
        kit.advance(file, 3)
        assert len(file.attachments) == 3
        attach(file, "c", 1)
        assert len(file.attachments) == 3
        kit.advance(file, 1)
        assert len(file.attachments) == 4
    assert len(attachments(path)) == 4


def test_what_no_commit_has_named_is_gone(path: Path) -> None:
    before = path.stat().st_size
    with SessionFile.open(path, writable=True) as file:
        attach(file, "c", 20_000)
    assert path.stat().st_size > before
    with SessionFile.open(path, writable=True) as file:
        assert len(file.attachments) == 3
        assert file.recovered == ""
        kit.check(file)
    assert path.stat().st_size == before


@pytest.mark.parametrize("place", [0, 4096, 4999])
def test_a_flipped_bit_costs_the_attachment_and_nothing_else(path: Path, place: int) -> None:
    damaged = attachments(path)[1]
    flip(path, damaged.offset + place)
    with SessionFile.open(path, writable=False) as file:
        assert file.recovered == ""
        kit.check(file)
        with pytest.raises(AttachmentCorrupt, match="'b': fails its checksum"):
            file.read_attachment(damaged)
        for sound in (file.attachments[0], file.attachments[2]):
            assert len(file.read_attachment(sound)) == sound.num_bytes
    assert faults(path) == [f"{path}: attachment 'b': fails its checksum"]


def test_swapped_attachments_are_not_served(path: Path) -> None:
    """Right bytes in the wrong place, with checksums that match what is there."""
    _, one, other = attachments(path)
    content = path.read_bytes()
    overwrite(path, one.offset, content[other.offset : other.offset + other.num_bytes])
    overwrite(path, other.offset, content[one.offset : one.offset + one.num_bytes])
    with SessionFile.open(path, writable=False) as file:
        for attachment in (one, other):
            with pytest.raises(AttachmentCorrupt):
                file.read_attachment(attachment)


def test_an_attachment_behind_the_end_of_the_file_is_damaged(path: Path) -> None:
    with SessionFile.open(path, writable=False) as file:
        last = file.attachments[-1]
        os.truncate(path, last.offset + 100)
        with pytest.raises(AttachmentCorrupt, match="behind the end"):
            file.read_attachment(last)


def test_a_session_without_attachments_does_not_mention_them(tmp_path: Path) -> None:
    path = kit.make(tmp_path / "s.kv", 5)
    assert b"attachments" not in path.read_bytes()
    assert attachments(path) == []
