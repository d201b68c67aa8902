"""`kvcli resume --rebuild`: a session made with other weights or other pages, computed again."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Kvcli, stored_ids, stored_kv
from tiny_models import make_tiny_model

from engine.session import SessionFile, fork_session

QUIET = ("--dashboard", "off")
ASK = ("Who painted it?", "--max-tokens", "5")


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fewer layers, with the same tokenizer and template."""
    folder = tmp_path_factory.mktemp("models") / "other"
    return make_tiny_model(folder, "llama", num_hidden_layers=2)


def test_a_mismatch_names_the_field_and_offers_to_rebuild(
    kvcli: Kvcli, session: Path, other_model: Path
) -> None:
    before = session.read_bytes()
    ran = kvcli("resume", *QUIET, session, *ASK, model=other_model)
    assert ran.code == 5 and "the session's" in ran.error[0] and "--rebuild" in ran.error[1]
    assert session.read_bytes() == before


def test_it_becomes_a_session_of_the_other_model(
    kvcli: Kvcli, session: Path, other_model: Path, long_notes: Path
) -> None:
    ids = stored_ids(session)
    ran = kvcli("resume", "--rebuild", *QUIET, session, stdin=b"", model=other_model)
    assert ran.code == 0 and f"the KV of {len(ids):,} tokens is given up" in ran.err
    assert stored_ids(session) == ids
    made = kvcli("ingest", *QUIET, long_notes, "-o", "fresh.kv", model=other_model)
    assert made.code == 0, made.err
    assert stored_kv(session) == stored_kv(Path("fresh.kv"))
    asked = [kvcli("resume", *QUIET, s, *ASK, model=other_model) for s in (session, "fresh.kv")]
    assert asked[0].out == asked[1].out and "0 recomputed" in asked[0].err


def test_other_pages(kvcli: Kvcli, session: Path) -> None:
    ran = kvcli("resume", *QUIET, "--page-tokens", "32", session, *ASK)
    assert ran.code == 5 and "--rebuild" in ran.error[1]
    ran = kvcli("resume", "--rebuild", *QUIET, "--page-tokens", "32", session, *ASK)
    assert ran.code == 0
    with SessionFile.open(session, writable=False) as file:
        assert file.geometry.page_tokens == 32 and file.notes["turns"] == 1


def test_another_tokenizer_is_refused(kvcli: Kvcli, session: Path, tmp_path: Path) -> None:
    before = session.read_bytes()
    model = make_tiny_model(tmp_path / "odd", "qwen2")
    ran = kvcli("resume", "--rebuild", *QUIET, session, *ASK, model=model)
    assert ran.code == 5 and "token ids mean something else" in ran.error[0]
    assert session.read_bytes() == before


def test_a_base_of_forks_is_left_alone(kvcli: Kvcli, session: Path) -> None:
    with SessionFile.open(session, writable=True) as file:
        fork_session(file, Path("fork.kv"), num_segments=2)
    before = session.read_bytes()
    ran = kvcli("resume", "--rebuild", *QUIET, session, *ASK)
    assert ran.code == 5 and "fork.kv" in ran.error[0]
    assert session.read_bytes() == before
    assert kvcli("resume", "--rebuild", *QUIET, "fork.kv", *ASK).code == 0
    with SessionFile.open(Path("fork.kv"), writable=False) as file:
        assert file.base is None


@pytest.mark.parametrize(("name", "told"), [("step", "step of 512"), ("local_window", "window of")])
def test_a_session_that_was_read_otherwise_is_refused_by_name(
    kvcli: Kvcli, session: Path, name: str, told: str
) -> None:
    """By a kvcli of other steps, sinks or windows: its KV is not what this one would compute."""
    with SessionFile.open(session, writable=True) as file:
        settings = {**file.notes["settings"], name: 512}
        file.commit(kv_tokens=file.kv_tokens, notes={**file.notes, "settings": settings})
    before = session.read_bytes()
    for words in (("resume", *QUIET, session, *ASK), ("update", *QUIET, session)):
        ran = kvcli(*words)
        assert ran.code == 5 and told in ran.error[0] and "512" in ran.error[0]
        assert "--rebuild" in ran.error[1]
    assert session.read_bytes() == before
    assert kvcli("resume", "--rebuild", *QUIET, session, *ASK).code == 0
    assert kvcli("resume", *QUIET, session, *ASK).code == 0
