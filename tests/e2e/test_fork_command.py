"""`kvcli fork`: several chats on one document, for the price of one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_kit import Kvcli, stored_ids, stored_kv

from engine.session import SessionFile

ASKED = ("--max-tokens", "6", "--dashboard", "off")


def test_a_fork_answers_as_its_base_does(kvcli: Kvcli, tool: Kvcli, session: Path) -> None:
    """Bit for bit: what was not sealed is computed again in the same steps."""
    assert tool("fork", session, "new.kv").code == 0
    told = kvcli("resume", session, "Who paid?", *ASKED)
    forked = kvcli("resume", "new.kv", "Who paid?", *ASKED)
    assert (forked.code, forked.out) == (0, told.out)
    assert stored_kv(Path("new.kv")) == stored_kv(session)
    assert stored_ids(Path("new.kv")) == stored_ids(session)


def test_chats_on_one_document_cost_little_more_than_one(
    kvcli: Kvcli, tool: Kvcli, session: Path
) -> None:
    with SessionFile.open(session, writable=False) as file:
        sealed = file.kv_tokens // file.geometry.segment_tokens
        one_segment = file.geometry.segment_bytes
    assert sealed >= 1
    for name in ("a.kv", "b.kv"):
        assert tool("fork", session, name).code == 0
        own = os.stat(name).st_blocks * 512
        assert own <= 32 << 10
        assert kvcli("resume", name, f"What does {name} say?", *ASKED).code == 0
        assert os.stat(name).st_blocks * 512 < 2.5 * one_segment


def test_it_says_what_is_shared_and_what_must_stay(tool: Kvcli, session: Path) -> None:
    ran = tool("fork", session, "new.kv")
    assert "tokens are read from s.kv" in ran.out and "s.kv must stay where it is" in ran.err
    assert "s.kv has the KV of the first" in " ".join(tool("inspect", "new.kv").out.split())
    rows = tool("sessions", "--json").json["sessions"]
    assert {Path(row["path"]).name for row in rows} == {"s.kv", "new.kv"}


def test_the_base_is_not_removed_under_it(tool: Kvcli, session: Path) -> None:
    assert tool("fork", session, "new.kv").code == 0
    for command in (("rm", "--yes", session), ("compact", session)):
        ran = tool(*command)
        assert ran.code == 5 and "new.kv" in ran.error[0] and "kvcli export" in ran.error[1]
    assert tool("rm", "--yes", "new.kv").code == 0
    assert tool("rm", "--yes", session).code == 0


def test_the_base_is_not_ingested_over(
    kvcli: Kvcli, tool: Kvcli, session: Path, long_notes: Path
) -> None:
    assert tool("fork", session, "new.kv").code == 0
    ran = kvcli("ingest", "--force", "--dashboard", "off", long_notes, "-o", session)
    assert ran.code == 5 and "new.kv" in ran.error[0]


def test_a_missing_base_is_one_clear_line(kvcli: Kvcli, tool: Kvcli, session: Path) -> None:
    assert tool("fork", session, "new.kv").code == 0
    session.rename("other.kv")
    for ran in (kvcli("resume", "new.kv", "Who?", *ASKED), tool("verify", "new.kv")):
        assert ran.code == 5
        assert "new.kv: most of it lies in" in ran.error[0] and "s.kv" in ran.error[0]
    (row,) = [row for row in tool("sessions", "--json").json["sessions"] if "new" in row["path"]]
    assert "cannot be used" in row["state"]


def test_a_fork_without_a_base_can_be_removed(tool: Kvcli, session: Path) -> None:
    assert tool("fork", session, "new.kv").code == 0
    session.unlink()
    ran = tool("rm", "--yes", "new.kv")
    assert ran.code == 0 and not Path("new.kv").exists()


def test_a_session_in_use_is_not_forked(tool: Kvcli, session: Path) -> None:
    with SessionFile.open(session, writable=True):
        ran = tool("fork", session, "new.kv")
    assert ran.code == 5 and "in use" in ran.error[0]
    assert not Path("new.kv").exists()


@pytest.mark.parametrize("pager", ["explicit", "unified"])
def test_a_fork_in_focus_mode_reads_its_base_by_either_pager(
    kvcli: Kvcli, tool: Kvcli, book: Path, pager: str
) -> None:
    ingest = ("ingest", "--dashboard", "off", "--attention", "focus", book, "-o", "s.kv")
    assert kvcli(*ingest).code == 0
    assert tool("fork", "s.kv", "new.kv").code == 0
    asked = ("Who paid for the pier?", *ASKED, "--attention", "stored", "--pager", pager)
    forked = kvcli("resume", "new.kv", *asked)
    assert (forked.code, forked.out) == (0, kvcli("resume", "s.kv", *asked).out)
