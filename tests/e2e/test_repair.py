"""`kvcli verify --repair`: pages that a disk has spoilt are computed again."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Kvcli, prose, stored_ids, stored_kv
from session_faults import flip, opened, spoil

from engine.session import SessionFile, fork_session, verify
from engine.types import Part
from kvcli import repairing

QUIET = ("--dashboard", "off")
ASK = ("Who painted it?", "--max-tokens", "5")


def ingest(kvcli: Kvcli, *options: object, lines: int = 150) -> Path:
    Path("long.txt").write_text(prose(lines))
    ran = kvcli("ingest", *QUIET, *options, "long.txt", "-o", "s.kv")
    assert ran.code == 0, ran.err
    return Path("s.kv")


def is_sound(session: Path) -> bool:
    return verify(session, lambda done, total: None).faults == ()


@pytest.mark.parametrize("options", [(), ("--attention", "focus")], ids=["exact", "focus"])
@pytest.mark.parametrize("pager", ["explicit", "unified"])
def test_pages_of_the_documents_come_back_to_the_bit(
    kvcli: Kvcli, long_model: Path, options: tuple[str, ...], pager: str
) -> None:
    session = ingest(kvcli_of(kvcli, long_model), *options)
    before = session.read_bytes()
    pages = (0, 3, 17, 18, 50)
    for page in pages:
        for part in Part:
            spoil(session, page, part)
    ran = kvcli("verify", "--repair", "--pager", pager, session, model=long_model)
    assert ran.code == 0, ran.err
    assert "repaired 5 pages, to the bit" in ran.out
    assert session.read_bytes() == before and is_sound(session)


def kvcli_of(kvcli: Kvcli, model: Path) -> Kvcli:
    return lambda *words, **more: kvcli(*words, model=model, **more)


def test_a_page_before_a_chat_leaves_the_chat_alone(kvcli: Kvcli, tmp_path: Path) -> None:
    session = ingest(kvcli)
    assert kvcli("resume", *QUIET, session, *ASK).code == 0
    before = session.read_bytes()
    spoil(session, 20)
    assert kvcli("verify", session).code == 5
    assert kvcli("verify", "--repair", session).code == 0
    assert session.read_bytes() == before


def test_a_page_of_the_chat_is_given_up_and_computed_again(kvcli: Kvcli) -> None:
    session = ingest(kvcli)
    for _ in range(4):
        words = ("tell me more of the piers and who painted them " * 3, "--max-tokens", "30")
        assert kvcli("resume", *QUIET, session, *words).code == 0
    ids = stored_ids(session)
    with SessionFile.open(session, writable=False) as file:
        documents = file.notes["document_tokens"]
        page = -(-documents // file.geometry.page_tokens)
        assert (page + 1) * file.geometry.page_tokens <= file.kv_tokens
    spoil(session, page)
    ran = kvcli("verify", "--repair", session)
    kept = documents // 1024 * 1024
    assert ran.code == 0 and f"the KV of the last {len(ids) - kept:,} tokens" in ran.out
    assert stored_ids(session) == ids and is_sound(session)
    ran = kvcli("resume", *QUIET, session, *ASK)
    assert ran.code == 0 and is_sound(session)
    with SessionFile.open(session, writable=False) as file:
        assert file.notes["turns"] == 5


def test_a_spoilt_tail_page_costs_its_step(kvcli: Kvcli) -> None:
    session = ingest(kvcli)
    state = opened(session).state
    assert state.tail is not None
    flip(session, state.tail_slots[state.tail.slot] + 100)
    kv = stored_ids(session)
    ran = kvcli("verify", "--repair", session)
    assert ran.code == 0 and "tokens could not be had to the bit" in ran.out
    assert kvcli("resume", *QUIET, session, *ASK).code == 0
    assert is_sound(session) and stored_ids(session)[: len(kv)] == kv


def test_bits_that_come_out_otherwise_are_not_written(
    kvcli: Kvcli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another processor, or another library: what can be had is had by computing on."""
    session = ingest(kvcli)
    fresh = stored_kv(session)
    spoil(session, 20)
    spoilt = session.read_bytes()
    real = repairing.Engine.recompute

    def recompute(self, first: int, end: int, **more: object) -> list[memoryview]:
        pages = real(self, first, end, **more)  # type: ignore[arg-type]
        return [memoryview(bytes([page[0] ^ 1]) + bytes(page[1:])) for page in pages]

    with monkeypatch.context() as patch:
        patch.setattr(repairing.Engine, "recompute", recompute)
        ran = kvcli("verify", "--repair", session)
    assert ran.code == 0 and "repaired" not in ran.out and "is given up" in ran.out
    assert session.read_bytes()[8192 : len(spoilt)] == spoilt[8192:]
    assert kvcli("resume", *QUIET, session, *ASK).code == 0
    assert stored_kv(session)[: len(fresh) // 2] == fresh[: len(fresh) // 2]
    assert is_sound(session)


def test_pages_of_a_base_are_repaired_there(kvcli: Kvcli, tmp_path: Path) -> None:

    session = ingest(kvcli)
    with SessionFile.open(session, writable=True) as file:
        fork_session(file, Path("fork.kv"), num_segments=2)
    spoil(session, 3)
    ran = kvcli("verify", "--repair", "fork.kv")
    assert ran.code == 5 and "lie in its base" in ran.error[0]
    assert f"kvcli verify --repair {tmp_path / 's.kv'}" in ran.error[1]
    assert kvcli("verify", "--repair", session).code == 0
    assert is_sound(Path("fork.kv"))


def test_json_tells_what_was_repaired(kvcli: Kvcli) -> None:
    session = ingest(kvcli)
    spoil(session, 20)
    ran = kvcli("verify", "--repair", "--json", session)
    assert ran.code == 0
    assert ran.json["repaired"] == {"pages": [20], "given_up_tokens": 0}
    assert ran.json["damaged_pages"][0]["page"] == 20


def test_a_session_in_use_is_not_repaired(kvcli: Kvcli) -> None:
    session = ingest(kvcli)
    spoil(session, 20)
    with SessionFile.open(session, writable=False):
        ran = kvcli("verify", "--repair", session)
    assert ran.code == 5 and "in use" in ran.error[0]
