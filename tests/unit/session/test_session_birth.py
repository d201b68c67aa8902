"""How a session gets its name, what it may replace and who may hold it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
import session_kit as kit

from engine.errors import ConfigError, NotASession, SessionLocked, StorageError
from engine.session import SessionFile, describe


def test_the_file_is_private_and_appears_with_its_first_commit(tmp_path: Path) -> None:
    path = tmp_path / "s.kv"
    with SessionFile.create(path, kit.IDENTITY, kit.SMALL) as file:
        kit.write_page(file, 0)
        assert not path.exists()
        kit.advance(file, 4)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["s.kv"]


def test_a_failed_start_leaves_no_file(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError),
        SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file,
    ):
        kit.write_page(file, 0)
        raise RuntimeError
    assert [entry for entry in tmp_path.iterdir() if entry.is_file()] == []


def test_what_a_killed_start_left_is_swept_by_the_next(tmp_path: Path) -> None:
    dead, held = tmp_path / ".s.kv.dead.tmp", tmp_path / ".other.kv.x.tmp"
    dead.touch()
    held.touch()
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL):
        with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL):
            assert len(list(tmp_path.glob(".s.kv.*.tmp"))) == 2
        assert not dead.exists()
        assert held.exists()


def test_an_existing_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = kit.make(tmp_path / "s.kv", 4)
    with pytest.raises(ConfigError, match="already exists"):
        SessionFile.create(path, kit.IDENTITY, kit.SMALL)
    with SessionFile.create(path, kit.IDENTITY, kit.SMALL, overwrite=True) as file:
        assert describe(path).kv_tokens == 4
        kit.advance(file, 9)
    assert describe(path).kv_tokens == 9


def test_a_name_taken_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s.kv"
    with SessionFile.create(path, kit.IDENTITY, kit.SMALL) as file:
        path.write_text("precious")
        with pytest.raises(ConfigError, match="already exists"):
            kit.advance(file, 4)
    assert path.read_text() == "precious"
    assert list(tmp_path.glob(".s.kv.*")) == []


@pytest.mark.parametrize("kind", ["text", "folder"])
def test_only_a_session_is_ever_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "report.pdf"
    if kind == "text":
        path.write_text("precious")
    else:
        path.mkdir()
    with pytest.raises(ConfigError, match="not a session"):
        SessionFile.create(path, kit.IDENTITY, kit.SMALL, overwrite=True)


def test_a_session_in_use_is_not_replaced(tmp_path: Path) -> None:
    path = kit.make(tmp_path / "s.kv", 4)
    with SessionFile.open(path, writable=False), pytest.raises(SessionLocked):
        SessionFile.create(path, kit.IDENTITY, kit.SMALL, overwrite=True)


def test_a_missing_folder_is_a_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such folder") as caught:
        SessionFile.create(tmp_path / "no" / "s.kv", kit.IDENTITY, kit.SMALL)
    assert "Create the folder" in caught.value.advice


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_read_only_folder_is_a_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(StorageError, match=os.strerror(code)):
        SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL)
    with pytest.raises(StorageError, match=os.strerror(code)):
        SessionFile.spill(tmp_path, kit.SMALL)


def test_one_writer_or_many_readers(tmp_path: Path) -> None:
    path = kit.make(tmp_path / "s.kv", 4)
    with SessionFile.open(path, writable=True):
        for writable in (True, False):
            with pytest.raises(SessionLocked):
                SessionFile.open(path, writable=writable)
        assert describe(path).kv_tokens == 4
    with (
        SessionFile.open(path, writable=False),
        SessionFile.open(path, writable=False),
        pytest.raises(SessionLocked, match="in use"),
    ):
        SessionFile.open(path, writable=True)
    SessionFile.open(path, writable=True).close()


def test_the_creator_holds_the_lock_under_the_final_name(tmp_path: Path) -> None:
    with SessionFile.create(tmp_path / "s.kv", kit.IDENTITY, kit.SMALL) as file:
        kit.advance(file, 4)
        with pytest.raises(SessionLocked):
            SessionFile.open(tmp_path / "s.kv", writable=True)


@pytest.mark.parametrize("content", ["missing", "folder"])
def test_no_file_is_no_session(tmp_path: Path, content: str) -> None:
    path = tmp_path / "s.kv"
    if content == "folder":
        path.mkdir()
    with pytest.raises(NotASession):
        SessionFile.open(path, writable=False)
