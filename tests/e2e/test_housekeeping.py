"""Sessions as files to keep: listed, copied, compacted, taken elsewhere, removed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cli_kit import Kvcli, stored_ids, stored_kv
from session_faults import spoil

from engine.attention import sketch
from engine.session import SessionFile
from engine.types import Part
from kvcli import recent_sessions
from kvcli.sizes import format_ago


@pytest.fixture
def cache(tool: Kvcli, tmp_path: Path) -> Path:
    """Where `tool` keeps its list."""
    return tmp_path / "cache"


def damage(session: Path) -> None:
    spoil(session, 2, Part.VALUES)


# -- sessions ------------------------------------------------------------------------------


def test_what_was_used_is_listed_wherever_it_lies(
    kvcli: Kvcli, tool: Kvcli, session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (row,) = tool("sessions", "--json").json["sessions"]
    assert row["path"] == str(tmp_path / "s.kv")
    assert row["state"] == "finished" and row["tokens"] == len(stored_ids(tmp_path / "s.kv"))
    assert [Path(source).name for source in row["sources"]] == ["long.txt"]
    shown = tool("sessions").out
    assert "s.kv" in shown and "just now" in shown and "long.txt" in shown


def test_a_folder_shows_sessions_that_were_never_used_here(
    tool: Kvcli, session: Path, cache: Path
) -> None:
    (cache / "sessions.json").unlink()
    assert len(tool("sessions", "--json").json["sessions"]) == 1
    Path("empty").mkdir()
    assert tool("sessions", "--json", "empty").json["sessions"] == []
    ran = tool("sessions", "empty")
    assert ran.code == 0 and "no session was found" in ran.err
    assert tool("sessions", "missing").code == 2


def test_states_are_told(tool: Kvcli, session: Path) -> None:
    Path("foreign.kv").write_bytes(b"%PDF-1.7\n" * 2000)
    with SessionFile.open(session, writable=True):
        rows = {Path(r["path"]).name: r for r in tool("sessions", "--json").json["sessions"]}
    assert rows["s.kv"]["state"] == "in use"
    assert "not a session file" in rows["foreign.kv"]["state"]
    assert tool("sessions").code == 0


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"/a": "2020-01-01"}', "{" * 99999])
def test_a_damaged_list_is_no_matter(tool: Kvcli, session: Path, cache: Path, content: str) -> None:
    (cache / "sessions.json").write_text(content)
    assert len(tool("sessions", "--json").json["sessions"]) == 1
    recent_sessions.remember_session(session)
    assert list(recent_sessions.recent_sessions()) == [session.resolve()]
    assert stat.S_IMODE((cache / "sessions.json").stat().st_mode) == 0o600


def test_a_cache_that_cannot_be_written_is_no_matter(
    kvcli: Kvcli, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_sessions, "cache_dir", lambda: Path("/proc/nowhere"))
    assert kvcli("resume", "--dashboard", "off", session, "Who?", "--max-tokens", "2").code == 0


def test_how_long_ago() -> None:
    cases = {0: "just now", 59: "just now", 60: "1 min ago", 3599: "59 min ago", 3600: "1 h ago",
             86399: "23 h ago", 86400: "1 day ago", 9e6: "104 days ago"}  # fmt: skip
    assert {seconds: format_ago(seconds) for seconds in cases} == cases


# -- export, import ------------------------------------------------------------------------


def test_an_exported_session_holds_the_same_and_answers_the_same(
    kvcli: Kvcli, tool: Kvcli, session: Path
) -> None:
    ran = tool("export", session, "copy.kv")
    assert ran.code == 0 and "whoever can read this file" in ran.err
    assert stored_kv(Path("copy.kv")) == stored_kv(session)
    assert stored_ids(Path("copy.kv")) == stored_ids(session)
    assert stat.S_IMODE(Path("copy.kv").stat().st_mode) == 0o600
    with (
        SessionFile.open(session, writable=False) as old,
        SessionFile.open(Path("copy.kv"), writable=False) as new,
    ):
        assert (old.spans, old.notes, old.identity) == (new.spans, new.notes, new.identity)
        assert old.uuid != new.uuid
    asked = ("Who paid?", "--max-tokens", "8", "--dashboard", "off")
    assert kvcli("resume", "copy.kv", *asked).out == kvcli("resume", session, *asked).out


def test_the_key_sketch_goes_along(
    kvcli: Kvcli, tool: Kvcli, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sketch, "BASIS_TOKENS", 512)
    made = ("ingest", "--dashboard", "off", "--attention", "focus", "--lookup", "sketch")
    assert kvcli(*made, book, "-o", "s.kv").code == 0
    assert tool("export", "s.kv", "copy.kv").code == 0
    with (
        SessionFile.open(Path("s.kv"), writable=False) as old,
        SessionFile.open(Path("copy.kv"), writable=False) as new,
    ):
        assert old.attachments
        for one, other in zip(old.attachments, new.attachments, strict=True):
            assert (one.name, one.meta) == (other.name, other.meta)
            assert old.read_attachment(one) == new.read_attachment(other)


def test_an_imported_session_can_be_asked(kvcli: Kvcli, tool: Kvcli, session: Path) -> None:
    assert tool("export", session, "copy.kv").code == 0
    assert tool("import", "copy.kv", "-o", "mine.kv").code == 0
    assert kvcli("resume", "--dashboard", "off", "mine.kv", "Who?", "--max-tokens", "2").code == 0


def test_an_import_whose_model_is_not_at_hand_says_so(
    kvcli: Kvcli, tool: Kvcli, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SessionFile.open(session, writable=True) as file:
        notes = {**file.notes, "model": "somebody/else"}
        file.commit(kv_tokens=file.kv_tokens, notes=notes)
    ran = tool("import", session, "-o", "mine.kv")
    assert ran.code == 0 and "somebody/else, which is not at hand" in ran.err


def test_a_damaged_session_is_not_copied(tool: Kvcli, session: Path) -> None:
    damage(session)
    names = sorted(os.listdir())
    ran = tool("export", session, "copy.kv")
    assert ran.code == 5 and "page 2, layer 1, values: fails its checksum" in ran.error[0]
    assert sorted(os.listdir()) == names


def test_nothing_is_written_over(tool: Kvcli, session: Path) -> None:
    before = Path("long.txt").read_bytes()
    for target in (session, Path("long.txt")):
        ran = tool("export", session, target)
        assert ran.code == 2 and "already exists" in ran.error[0]
    assert Path("long.txt").read_bytes() == before


# -- compact -------------------------------------------------------------------------------


def test_a_compacted_session_is_smaller_and_the_same(
    kvcli: Kvcli, tool: Kvcli, session: Path
) -> None:
    for number in range(6):
        asked = ("--max-tokens", "4", "--dashboard", "off")
        assert kvcli("resume", session, f"Question {number}?", *asked).code == 0
    kv, ids, before = stored_kv(session), stored_ids(session), session.stat().st_size
    with SessionFile.open(session, writable=False) as file:
        spans, notes = file.spans, file.notes
    ran = tool("compact", "--json", session)
    assert ran.code == 0
    assert ran.json["bytes_after"] < ran.json["bytes_before"]
    assert session.stat().st_size < before
    assert (stored_kv(session), stored_ids(session)) == (kv, ids)
    with SessionFile.open(session, writable=False) as file:
        assert (file.spans, file.notes, file.generation) == (spans, notes, 1)
    assert kvcli("resume", session, "And now?", *asked).code == 0


def test_a_compaction_that_fails_leaves_the_session(tool: Kvcli, session: Path) -> None:
    damage(session)
    before, names = session.read_bytes(), sorted(os.listdir())
    ran = tool("compact", session)
    assert ran.code == 5 and "fails its checksum" in ran.error[0]
    assert session.read_bytes() == before and sorted(os.listdir()) == names


def test_a_session_in_use_is_not_compacted(tool: Kvcli, session: Path) -> None:
    with SessionFile.open(session, writable=False):
        ran = tool("compact", session)
    assert ran.code == 5 and "in use by another kvcli" in ran.error[0]


def test_compacting_through_a_link_keeps_the_link(tool: Kvcli, session: Path) -> None:
    Path("link.kv").symlink_to(session)
    kv = stored_kv(session)
    assert tool("compact", "link.kv").code == 0
    assert Path("link.kv").is_symlink() and stored_kv(session) == kv


# -- rm ------------------------------------------------------------------------------------


def test_removing_is_honest_and_forgets(tool: Kvcli, session: Path) -> None:
    ran = tool("rm", "--yes", session)
    assert ran.code == 0 and not session.exists()
    assert "removed s.kv" in ran.out and "not overwritten" in ran.err
    assert recent_sessions.recent_sessions() == {}


def test_nothing_is_removed_without_a_yes(tool: Kvcli, session: Path) -> None:
    ran = tool("rm", session)
    assert ran.code == 2 and "Add --yes" in ran.err
    assert session.exists()


def test_only_sessions_are_removed_and_all_or_none(tool: Kvcli, session: Path) -> None:
    ran = tool("rm", "--yes", session, "long.txt")
    assert ran.code == 5 and "not a session file" in ran.error[0]
    assert session.exists() and Path("long.txt").exists()


def test_a_session_in_use_is_not_removed(tool: Kvcli, session: Path) -> None:
    with SessionFile.open(session, writable=False):
        ran = tool("rm", "--yes", session)
    assert ran.code == 5 and "in use" in ran.error[0]
    assert session.exists()
