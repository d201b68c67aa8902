"""`kvcli verify` on sessions that kvcli has made: what a user is told of sound and damaged ones."""

from __future__ import annotations

from pathlib import Path

from cli_kit import Kvcli
from session_faults import flip, spoil

from engine.session import SessionFile
from engine.session.format import SUPERBLOCK_COPIES
from engine.types import Part
from kvcli.corpus.source_map import SourceMap


def damage(session: Path, page: int, *places: tuple[Part, int]) -> None:
    for part, layer in places:
        spoil(session, page, part, layer)


def test_a_sound_session_is_said_to_be_sound(tool: Kvcli, session: Path) -> None:
    ran = tool("verify", session)
    assert ran.code == 0 and not ran.error
    assert "sound: every byte is what was committed" in ran.out
    with SessionFile.open(session, writable=False) as file:
        pages = file.geometry.num_pages(file.kv_tokens)
    assert f"{pages} pages" in ran.out


def test_damaged_pages_are_named_with_their_source_and_exit_5(tool: Kvcli, session: Path) -> None:
    damage(session, 3, (Part.KEYS, 0), (Part.VALUES, 2))
    damage(session, 7, (Part.KEYS, 1))
    with SessionFile.open(session, writable=False) as file:
        size, sources = file.geometry.page_tokens, SourceMap.from_json(file.spans)
    source = sources.locate(3 * size)
    assert source is not None
    ran = tool("verify", session)
    assert ran.code == 5
    named = f"page 3 (tokens {3 * size} to {4 * size - 1}, {source.cite()}): 2 of 6 slices"
    assert named in " ".join(ran.out.split())
    assert "page 7 " in ran.out
    assert "2 of" in ran.error[0] and "pages are damaged" in ran.error[0]
    assert "sound" not in ran.out


def test_json_has_every_damaged_page_and_only_one_object(tool: Kvcli, session: Path) -> None:
    assert tool("verify", "--json", session).json["sound"] is True
    damage(session, 3, (Part.KEYS, 0), (Part.VALUES, 2))
    ran = tool("verify", "--json", session)
    assert ran.code == 5 and ran.json["sound"] is False
    (page,) = ran.json["damaged_pages"]
    assert (page["page"], page["slices"]) == (3, 2)
    assert page["source"]


def test_damage_that_costs_nothing_is_told_as_such(
    kvcli: Kvcli, tool: Kvcli, session: Path
) -> None:
    flip(session, SUPERBLOCK_COPIES[0][1] + 40)
    ran = tool("verify", session)
    assert ran.code == 5
    assert "no page is damaged" in ran.error[0]
    assert kvcli("inspect", session).code == 0


def test_what_is_no_session_is_refused(tool: Kvcli, notes: Path) -> None:
    ran = tool("verify", notes)
    assert ran.code == 5 and "not a session file" in ran.error[0]
    assert tool("verify", "missing.kv").code == 5


def test_a_session_that_is_being_written_is_not_checked(tool: Kvcli, session: Path) -> None:
    with SessionFile.open(session, writable=True):
        ran = tool("verify", session)
    assert ran.code == 5 and "being written by another kvcli" in ran.error[0]
