"""`kvcli update`: documents that have changed since they were read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cli_kit import Kvcli, prose, stored_ids, stored_kv

from engine.session import SessionFile, verify
from kvcli.commands import update

QUIET = ("--dashboard", "off")
STEP = 1024


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five files of some 1,100 to 2,200 tokens each."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "repo"
    folder.mkdir()
    for number, name in enumerate("bdfhj"):
        (folder / f"{name}.txt").write_text(prose(30 + 7 * number, first=100 * number))
    return folder


def ingest(kvcli: Kvcli, name: str, *paths: object) -> Path:
    ran = kvcli("ingest", *QUIET, "--attention", "focus", *paths, "-o", name)
    assert ran.code == 0, ran.err
    return Path(name)


def assert_same(one: Path, other: Path) -> None:
    """As a session of the documents of now, to the bit."""
    assert stored_ids(one) == stored_ids(other)
    assert stored_kv(one) == stored_kv(other)
    with (
        SessionFile.open(one, writable=False) as first,
        SessionFile.open(other, writable=False) as second,
    ):
        assert first.spans == second.spans
        assert first.notes == second.notes
    assert verify(one, lambda done, total: None).faults == ()


def test_what_is_behind_the_first_change_is_read_again(kvcli: Kvcli, repo: Path) -> None:
    session = ingest(kvcli, "s.kv", "repo")
    before = stored_ids(session)
    (repo / "h.txt").write_text("The first line is new.\n" + (repo / "h.txt").read_text())
    ran = kvcli("update", *QUIET, session)
    assert ran.code == 0, ran.err
    after = stored_ids(session)
    same = next(
        at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]
    )
    kept = same // STEP * STEP
    assert kept >= 2 * STEP
    told = f"{same:,} of {len(after):,} tokens are as they were; {kept:,} are kept"
    assert told in ran.err and f"{len(after) - kept:,} are read again" in ran.err
    assert_same(session, ingest(kvcli, "fresh.kv", "repo"))


def test_nothing_changed_computes_nothing(kvcli: Kvcli, repo: Path) -> None:
    session = ingest(kvcli, "s.kv", "repo")
    with SessionFile.open(session, writable=False) as file:
        generation = file.generation
    ran = kvcli("update", "--json", *QUIET, session)
    assert ran.code == 0 and ran.json["usage"]["recomputed_tokens"] == 0
    with SessionFile.open(session, writable=False) as file:
        assert file.generation == generation


def test_new_files_come_last_and_removed_ones_go(kvcli: Kvcli, repo: Path) -> None:
    """A file whose name comes first pushes nothing to other positions."""
    session = ingest(kvcli, "s.kv", "repo")
    before = stored_ids(session)
    (repo / "a.txt").write_text(prose(20, first=900))
    assert kvcli("update", *QUIET, session).code == 0
    after = stored_ids(session)
    assert after[: len(before) - 64] == before[:-64] and len(after) > len(before)
    with SessionFile.open(session, writable=False) as file:
        assert file.notes["sources"] == ["b.txt", "d.txt", "f.txt", "h.txt", "j.txt", "a.txt"]
        assert file.notes["document_tokens"] == len(after)
    (repo / "j.txt").unlink()
    assert kvcli("update", *QUIET, session).code == 0
    with SessionFile.open(session, writable=False) as file:
        assert file.notes["sources"] == ["b.txt", "d.txt", "f.txt", "h.txt", "a.txt"]
    (repo / "a.txt").rename(repo / "z.txt")
    assert kvcli("update", *QUIET, session).code == 0
    assert_same(session, ingest(kvcli, "fresh.kv", "repo"))


def test_it_works_from_any_folder(
    kvcli: Kvcli, repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = ingest(kvcli, "s.kv", "repo")
    (repo / "j.txt").write_text("Quite another text.\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert kvcli("update", *QUIET, "../s.kv").code == 0
    monkeypatch.chdir(tmp_path)
    assert_same(session, ingest(kvcli, "fresh.kv", "repo"))


def test_the_patterns_of_then_still_hold(kvcli: Kvcli, repo: Path) -> None:
    chosen = ("repo", "--exclude", "d.txt", "--exclude", "new*")
    session = ingest(kvcli, "s.kv", *chosen)
    (repo / "newest.txt").write_text(prose(5))
    (repo / "d.txt").write_text("Another d.\n")
    ran = kvcli("update", *QUIET, session)
    assert ran.code == 0 and "tokens are as they were" in ran.err
    assert_same(session, ingest(kvcli, "fresh.kv", *chosen))


def test_turns_about_the_old_documents_are_dropped_and_that_is_said(
    kvcli: Kvcli, repo: Path
) -> None:
    session = ingest(kvcli, "s.kv", "repo")
    assert kvcli("resume", *QUIET, session, "Who painted it?", "--max-tokens", "4").code == 0
    (repo / "j.txt").write_text("Quite another text.\n")
    ran = kvcli("update", *QUIET, session)
    assert ran.code == 0 and "documents of before, 1 turn, is dropped" in ran.err
    assert_same(session, ingest(kvcli, "fresh.kv", "repo"))


def test_a_document_that_outgrows_the_window_is_read_anew_in_focus(
    kvcli: Kvcli, notes: Path
) -> None:
    """KV of exact attention is of no use to focus: none of it is kept."""
    assert kvcli("ingest", *QUIET, notes, "-o", "s.kv").code == 0
    notes.write_text(prose(120))
    ran = kvcli("update", *QUIET, "s.kv")
    assert ran.code == 0 and "0 are kept" in ran.err
    assert kvcli("ingest", *QUIET, notes, "-o", "fresh.kv").code == 0
    assert_same(Path("s.kv"), Path("fresh.kv"))


def test_an_interrupted_update_goes_on_by_resume(
    kvcli: Kvcli, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ingest(kvcli, "s.kv", "repo")
    (repo / "f.txt").write_text("Quite another text.\n" + (repo / "f.txt").read_text())

    def stop(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(update.opening, "go_on", stop)
        assert kvcli("update", *QUIET, session).code == 130
    assert kvcli("resume", *QUIET, session, "Who?", "--max-tokens", "2").code == 0
    fresh = ingest(kvcli, "fresh.kv", "repo")
    assert kvcli("resume", *QUIET, fresh, "Who?", "--max-tokens", "2").code == 0
    assert stored_kv(session) == stored_kv(fresh)


@pytest.mark.parametrize(
    ("harm", "code", "told"),
    [
        (lambda repo: [path.unlink() for path in repo.iterdir()], 3, "nothing readable"),
        (lambda repo: repo.rename(repo.with_name("gone")), 2, "no such file or folder"),
    ],
)
def test_documents_that_are_no_more_leave_the_session(
    kvcli: Kvcli, repo: Path, harm, code: int, told: str
) -> None:
    session = ingest(kvcli, "s.kv", "repo")
    before = session.read_bytes()
    harm(repo)
    ran = kvcli("update", *QUIET, session)
    assert ran.code == code and told in ran.error[0]
    assert session.read_bytes() == before


def test_standard_input_cannot_be_read_again(kvcli: Kvcli, tmp_path: Path) -> None:
    assert kvcli("ingest", *QUIET, "-", "-o", "s.kv", stdin=prose(9).encode()).code == 0
    ran = kvcli("update", *QUIET, "s.kv")
    assert ran.code == 2 and "came from standard input" in ran.error[0]


def test_a_session_of_before_says_that_it_does_not_know(kvcli: Kvcli, notes: Path) -> None:
    assert kvcli("ingest", *QUIET, notes, "-o", "s.kv").code == 0
    with SessionFile.open(Path("s.kv"), writable=True) as file:
        old = {key: value for key, value in file.notes.items() if key != "inputs"}
        file.commit(kv_tokens=file.kv_tokens, notes=old)
    ran = kvcli("update", *QUIET, "s.kv")
    assert ran.code == 2 and "does not say where its documents are from" in ran.error[0]


def test_a_repository_under_git_is_updated_too(kvcli: Kvcli, repo: Path) -> None:
    git = ["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, env={**os.environ, "HOME": str(repo.parent)})
    session = ingest(kvcli, "s.kv", "repo")
    (repo / "j.txt").write_text("Quite another text.\n")
    ran = kvcli("update", *QUIET, session)
    assert ran.code == 0 and "are read again" in ran.err
    assert_same(session, ingest(kvcli, "fresh.kv", "repo"))
