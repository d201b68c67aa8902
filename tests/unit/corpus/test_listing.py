"""What a folder holds is what git says, or the same rules by hand."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus_kit import MakeTree

from kvcli.corpus.listing import list_folder

RULES: dict[str, str | bytes] = {
    ".gitignore": "build\n!keep.log\n**/vendor/\n/onlyroot.txt\n*.tmp\n",
    "a/.gitignore": "!vendor\nlocal.txt\n",
    "build/keep.log": "x",
    "a/vendor/f.txt": "x",
    "a/local.txt": "x",
    "sub/local.txt": "x",
    "sub/onlyroot.txt": "x",
    "onlyroot.txt": "x",
    "vendor/g.txt": "x",
    "tracked.tmp": "x",
    "other.tmp": "x",
    "ünï cödé.txt": "x",
}
KEPT = {
    ".gitignore",
    "a/.gitignore",
    "a/vendor/f.txt",
    "sub/local.txt",
    "sub/onlyroot.txt",
    "ünï cödé.txt",
}
Git = Callable[..., str]


@pytest.fixture
def repository(tree: MakeTree, git: Git) -> Path:
    root = tree(RULES)
    git(root, "init", "-q")
    git(root, "add", "-f", "tracked.tmp")
    return root


def no_git(*_: object, **__: object) -> None:
    raise FileNotFoundError("git")


def test_inside_a_work_tree_git_decides(repository: Path) -> None:
    assert set(list_folder(repository).entries) == {*KEPT, "tracked.tmp"}


def test_a_subfolder_obeys_the_rules_above_it(repository: Path) -> None:
    assert set(list_folder(repository / "a").entries) == {".gitignore", "vendor/f.txt"}


def test_outside_git_the_same_rules_hold(tree: MakeTree) -> None:
    """Nothing is tracked there, so the one difference is gone."""
    listing = list_folder(tree(RULES))
    assert set(listing.entries) == KEPT
    assert listing.warnings == ()


def test_without_git_the_rules_hold_and_a_warning_says_what_is_missing(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / ".git/info/exclude").write_text("sub\n")
    monkeypatch.setattr(subprocess, "run", no_git)
    listing = list_folder(repository)
    assert set(listing.entries) == {name for name in KEPT if not name.startswith("sub/")}
    assert "git is not installed" in listing.warnings[0]
    assert set(list_folder(repository / "a").entries) == {".gitignore", "vendor/f.txt"}


def test_a_broken_repository_falls_back_with_a_warning(repository: Path) -> None:
    (repository / ".git" / "HEAD").write_text("nonsense")
    listing = list_folder(repository)
    assert "a/vendor/f.txt" in listing.entries
    assert "git could not list" in listing.warnings[0]


@pytest.mark.parametrize(
    "rules",
    [
        {".gitignore": "*\n!a/\n", "a/x": "x", "y": "x"},
        {".gitignore": "\ufeffx\n", "x": "x", "y": "x"},
        {".gitignore": b"caf\xe9\n*.o\n", "a.o": "x", "y": "x"},
        {".gitignore": "/*\n!/a\n/a/*\n!/a/b\n", "a/b/x": "x", "a/c": "x", "d": "x"},
        {".gitignore": "*/\n!a/\n", "a/b/x": "x", "a/y": "x", "z": "x"},
        {".gitignore": "a/**/z\n", "a/z": "x", "a/b/c/z": "x", "a/b/y": "x"},
        {".gitignore": "x\r\n\\#y\n\\!z\n", "x": "x", "#y": "x", "!z": "x", "w": "x"},
        {".gitignore": "[a-\nfoo[1]\n//\n!\n", "foo1": "x", "foo2": "x"},
        {"a/.gitignore": "*\n!.gitignore\n", "a/b/x": "x", "c": "x"},
    ],
)
def test_the_walk_agrees_with_git(
    tree: MakeTree, git: Git, rules: dict[str, str | bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(rules)
    by_hand = set(list_folder(root).entries)
    git(root, "init", "-q")
    assert by_hand == set(list_folder(root).entries)


def test_a_folder_its_repository_ignores_is_read_when_named(repository: Path) -> None:
    listing = list_folder(repository / "build")
    assert listing.entries == ("keep.log",)
    assert "ignored by its repository" in listing.warnings[0]


@pytest.mark.parametrize("rule", ["*a*a*a*a*a*a*a*a*a*a*b", "a/**/a/**/a/**/a/**/a/**/b"])
def test_no_rule_takes_long(tree: MakeTree, rule: str) -> None:
    """A rule comes with the folder; tried place by place, these would take years."""
    started = time.monotonic()
    deep = "a/" * 200 + "c"
    root = tree({".gitignore": f"{rule}\n", "a" * 200: "x", deep: "x"})
    assert set(list_folder(root).entries) == {".gitignore", "a" * 200, deep}
    assert time.monotonic() - started < 5


def test_links_and_pipes_are_listed_by_the_walk_but_never_followed(tree: MakeTree) -> None:
    root = tree({"a/f.txt": "x"})
    (root / "a" / "loop").symlink_to("..")
    (root / "self").symlink_to("self")
    os.mkfifo(root / "pipe")
    assert set(list_folder(root).entries) == {"a/f.txt", "a/loop", "self", "pipe"}


@pytest.mark.parametrize("below", ["", "sub"])
@pytest.mark.parametrize("has_git", [True, False])
def test_a_folder_that_cannot_be_opened_is_named(
    tree: MakeTree, git: Git, below: str, has_git: bool
) -> None:
    """Its path is longer than the system takes; git says so on the side and lists the rest."""
    root = tree({"sub/a.txt": "x"})
    here = os.open(root / below, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=here)
        above, here = here, os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(above)
    os.close(here)
    if has_git:
        git(root, "init", "-q")
    listing = list_folder(root / below)
    assert listing.entries == ("a.txt" if below else "sub/a.txt",)
    ((path, why),) = listing.unreadable
    assert path.startswith("ddd") and set(path) == {"d", "/"}
    assert why == ("git could not open it" if has_git else "File name too long")


def test_git_s_reason_for_not_opening_a_folder_is_told(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may open every folder, so the refusal is git's word alone."""
    told = b"warning: could not open directory 'a/b c/': Permission denied\n"

    def git(words: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(words, 0, b"f.txt\0" if "-co" in words else b"", told)

    monkeypatch.setattr(subprocess, "run", git)
    assert list_folder(repository).unreadable == (("a/b c", "Permission denied"),)
    assert list_folder(repository / "a").unreadable == (("b c", "Permission denied"),)


def test_programs_named_in_a_repository_s_settings_do_not_run(
    repository: Path, git: Git, tmp_path: Path
) -> None:
    """`core.fsmonitor` names a program that git starts when it looks for changes."""
    mark = runs_when_called(tmp_path / "hook")
    git(repository, "config", "core.fsmonitor", str(tmp_path / "hook"))
    list_folder(repository)
    assert not mark.exists()


def test_programs_that_check_signatures_do_not_run(
    repository: Path, git: Git, tmp_path: Path
) -> None:
    """`log.showSignature` has git start `gpg.program` for every signed commit that it shows."""
    mark = runs_when_called(tmp_path / "checker")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n"
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "Begin")
    commit = git(repository, "cat-file", "commit", "HEAD").replace("\n\n", f"\n{signature}\n", 1)
    (tmp_path / "commit").write_text(commit)
    signed = git(repository, "hash-object", "-t", "commit", "-w", str(tmp_path / "commit"))
    git(repository, "update-ref", "HEAD", signed.strip())
    git(repository, "config", "log.showSignature", "true")
    git(repository, "config", "gpg.program", str(tmp_path / "checker"))
    assert list_folder(repository).changes
    assert not mark.exists()


def test_objects_that_are_missing_are_not_fetched(
    repository: Path, git: Git, tmp_path: Path
) -> None:
    """A clone may lack objects and name a program, or a server, to get them from."""
    mark = runs_when_called(tmp_path / "fetch")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "Begin")
    folder = git(repository, "rev-parse", "HEAD:a").strip()
    (repository / ".git/objects" / folder[:2] / folder[2:]).unlink()
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{tmp_path / 'fetch'}",
        "protocol.ext.allow": "always",
    }.items():
        git(repository, "config", name, value)
    assert "a/vendor/f.txt" in list_folder(repository).entries
    assert not mark.exists()


def runs_when_called(program: Path) -> Path:
    """Write a program that leaves a mark; returns where."""
    mark = program.with_suffix(".ran")
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    program.chmod(0o755)
    return mark


def test_a_surrounding_git_command_does_not_redirect_us(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert "sub/local.txt" in list_folder(repository).entries


def test_nothing_is_written_into_the_repository(repository: Path, git: Git) -> None:
    git(repository, "add", "-A")
    os.utime(repository / "sub/local.txt", (1, 1))  # a stale index entry that git would refresh
    before = {path: path.stat().st_mtime_ns for path in repository.rglob("*")}
    list_folder(repository)
    assert {path: path.stat().st_mtime_ns for path in repository.rglob("*")} == before


def test_names_with_newlines_and_odd_bytes_come_through(tree: MakeTree, git: Git) -> None:
    root = tree({"a\nb.txt": "x"})
    odd = os.fsdecode(b"caf\xe9.txt")
    (root / odd).write_text("x")
    git(root, "init", "-q")
    assert set(list_folder(root).entries) == {"a\nb.txt", odd}


def test_a_git_that_never_answers_is_given_up(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("git", 1)

    monkeypatch.setattr(subprocess, "run", hang)
    listing = list_folder(repository)
    assert "no answer" in listing.warnings[0]
    assert listing.entries


# -- what the user hides ---------------------------------------------------------------------------

HIDING: dict[str, str | bytes] = {
    ".kvcliignore": "*.log\n/data/\n!keep.log\ndocs/*\n!docs/use.md\n",
    "a.log": "x",
    "keep.log": "x",
    "data/big.csv": "x",
    "data/keep.log": "x",
    "sub/data/small.csv": "x",
    "sub/.kvcliignore": "!b.log\n/own\n",
    "sub/b.log": "x",
    "sub/own/x": "x",
    "sub/deep/own/y": "x",
    "docs/use.md": "x",
    "docs/plan.md": "x",
}
NOT_HIDDEN = {
    ".kvcliignore",
    "keep.log",
    "sub/data/small.csv",
    "sub/.kvcliignore",
    "sub/b.log",
    "sub/deep/own/y",
    "docs/use.md",
}


def test_kvcliignore_hides_what_gitignore_would(tree: MakeTree, git: Git) -> None:
    listing = list_folder(tree(HIDING))
    assert set(listing.entries) == NOT_HIDDEN
    assert listing.hidden == len(HIDING) - len(NOT_HIDDEN)
    as_git = tree({name.replace("kvcli", "git"): text for name, text in HIDING.items()})
    for left in ("", "sub/"):
        (as_git / f"{left}.kvcliignore").unlink()
    git(as_git, "init", "-q")
    by_git = {name.replace("git", "kvcli") for name in list_folder(as_git).entries}
    assert by_git == NOT_HIDDEN


def test_kvcliignore_hides_tracked_files_too(tree: MakeTree, git: Git) -> None:
    root = tree(HIDING)
    git(root, "init", "-q")
    git(root, "add", "-A")
    assert set(list_folder(root).entries) == NOT_HIDDEN
    assert set(list_folder(root / "sub").entries) == {
        name.removeprefix("sub/") for name in NOT_HIDDEN if name.startswith("sub/")
    }


def test_kvcliignore_brings_back_nothing_that_git_ignores(tree: MakeTree, git: Git) -> None:
    root = tree({".gitignore": "x\n", ".kvcliignore": "!x\n", "x": "x", "y": "x"})
    git(root, "init", "-q")
    assert set(list_folder(root).entries) == {".gitignore", ".kvcliignore", "y"}


def test_a_hidden_folder_is_read_when_it_is_named(tree: MakeTree, git: Git) -> None:
    root = tree({**HIDING, "data/.kvcliignore": "*.tmp\n", "data/x.tmp": "x"})
    git(root, "init", "-q")
    listing = list_folder(root / "data")
    assert set(listing.entries) == {"big.csv", "keep.log", ".kvcliignore"}
    assert listing.hidden == 1
    assert "hidden by a .kvcliignore above it" in listing.warnings[0]


def test_a_linked_kvcliignore_is_not_followed(tree: MakeTree) -> None:
    root = tree({"rules": "*\n", "a.txt": "x"})
    (root / ".kvcliignore").symlink_to("rules")
    assert "a.txt" in list_folder(root).entries


# -- how often files change ------------------------------------------------------------------------


def test_changes_are_counted_by_commits(tree: MakeTree, git: Git) -> None:
    root = tree({"sub/a\nb.txt": "0", "quiet.txt": "0"})
    git(root, "init", "-q")
    for change in range(4):
        (root / "sub/a\nb.txt").write_text(str(change))
        git(root, "add", "-A")
        git(root, "commit", "-qm", "Change")
    assert list_folder(root).changes == {"sub/a\nb.txt": 1.0, "quiet.txt": 0.25}
    assert list_folder(root / "sub").changes == {"a\nb.txt": 1.0}


def test_without_commits_nothing_has_changed(repository: Path) -> None:
    listing = list_folder(repository)
    assert listing.changes == {} and listing.warnings == ()


def test_without_git_nothing_has_changed(tree: MakeTree) -> None:
    assert list_folder(tree(RULES)).changes == {}
