"""Which files are read, which are left out and why, and in what order."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus_kit import MakeTree

from engine.errors import ConfigError
from kvcli.corpus.discover import Discovery, Selection, discover, in_reading_order
from kvcli.corpus.spans import SkipReason

Git = Callable[..., str]


def find(
    *paths: Path | str,
    max_file_bytes: int = 1 << 20,
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
) -> Discovery:
    return discover(paths, Selection.of(max_file_bytes, include, exclude))


def shown(found: Discovery) -> list[str]:
    return [one.shown for one in found.found]


def reasons(found: Discovery) -> dict[str, SkipReason]:
    return {skip.path: skip.reason for skip in found.skipped}


def test_readme_then_manifests_then_folders_kept_together() -> None:
    entries = ["z.py", "src/a/x.py", "src/z.py", "Makefile", "src-b/q.py", "README.md", "a.py"]
    assert in_reading_order(entries, {}) == [
        "README.md",
        "Makefile",
        "a.py",
        "z.py",
        "src/z.py",
        "src/a/x.py",
        "src-b/q.py",
    ]


def test_what_rarely_changes_comes_before_what_often_does() -> None:
    """An update reads again what lies behind the first change."""
    changes = {"README.md": 0.02, "src/hot.py": 0.4, "a.py": 0.001, "src/warm.py": 0.06}
    changes |= {"lib/warm.py": 0.05, "pyproject.toml": 0.2}
    entries = [*changes, "src/README.md", "src/cold.py"]
    assert in_reading_order(entries, changes) == [
        "README.md",
        "src/README.md",
        "src/cold.py",
        "a.py",
        "lib/warm.py",
        "src/warm.py",
        "pyproject.toml",
        "src/hot.py",
    ]


def test_the_order_is_that_of_the_repository_s_history(tree: MakeTree, git: Git) -> None:
    root = tree({"lib/a.py": "0", "lib/b.py": "0", "README": "0"})
    git(root, "init", "-q")
    for change in range(30):
        (root / "lib/a.py").write_text(str(change))
        git(root, "add", "-A")
        git(root, "commit", "-qm", "Change", "--allow-empty")
    assert shown(find(root)) == ["README", "lib/b.py", "lib/a.py"]
    assert shown(find(root / "lib")) == ["b.py", "a.py"]


def test_paths_are_shown_relative_to_the_only_folder(tree: MakeTree) -> None:
    root = tree({"src/a.py": "x"})
    assert shown(find(root)) == ["src/a.py"]


def test_with_two_folders_paths_are_shown_as_typed(
    tree: MakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree({"a/x.py": "x", "b/x.py": "x"}))
    assert shown(find("a", "b/")) == ["a/x.py", "b/x.py"]


def test_the_same_file_is_read_once_and_at_its_first_mention(
    tree: MakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree({"a/x.py": "x", "a/y.py": "y"}))
    assert shown(find("a/y.py", "a", "./a/y.py", "a/../a/y.py")) == ["a/y.py", "x.py"]


def test_no_path_is_shown_for_two_files(tree: MakeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree({"x.py": "x", "a/x.py": "x"}))
    assert shown(find("x.py", "a")) == ["x.py", "a/x.py"]


def test_links_pipes_and_repositories_inside_are_skipped_by_kind(tree: MakeTree, git: Git) -> None:
    root = tree({"a.txt": "x", "nested/b.txt": "x"})
    git(root, "init", "-q")
    git(root / "nested", "init", "-q")
    (root / "leak.txt").symlink_to("/etc/hostname")
    (root / "dangling").symlink_to("nowhere")
    found = find(root)
    assert shown(found) == ["a.txt"]
    assert reasons(found) == {
        "leak.txt": SkipReason.LINK,
        "dangling": SkipReason.LINK,
        "nested": SkipReason.SUBMODULE,
    }


def test_a_submodule_is_listed_not_read(tree: MakeTree, git: Git, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "x")
    root = tree({"a.txt": "x"})
    git(root, "init", "-q")
    git(root, "submodule", "--quiet", "add", str(inner), "lib")
    assert reasons(find(root)) == {"lib": SkipReason.SUBMODULE}


def test_pipes_in_folders_are_never_opened(tree: MakeTree) -> None:
    root = tree({"a.txt": "x"})
    os.mkfifo(root / "pipe")
    assert reasons(find(root)) == {"pipe": SkipReason.NOT_REGULAR}


def test_a_tracked_file_that_was_deleted_is_no_part_of_the_input(tree: MakeTree, git: Git) -> None:
    root = tree({"a.txt": "x", "gone.txt": "x"})
    git(root, "init", "-q")
    git(root, "add", "-A")
    (root / "gone.txt").unlink()
    found = find(root)
    assert (shown(found), found.skipped) == (["a.txt"], [])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (".env", SkipReason.SECRET),
        (".env.production", SkipReason.SECRET),
        ("server.pem", SkipReason.SECRET),
        ("id_ed25519", SkipReason.SECRET),
        ("package-lock.json", SkipReason.GENERATED),
        ("Cargo.lock", SkipReason.GENERATED),
        ("app.min.js", SkipReason.GENERATED),
    ],
)
def test_secrets_and_generated_files_are_skipped_in_folders_only(
    tree: MakeTree, name: str, reason: SkipReason
) -> None:
    root = tree({f"sub/{name}": "x", "a.py": "x"})
    assert reasons(find(root)) == {f"sub/{name}": reason}
    assert not find(root / "sub" / name).skipped


def test_the_example_of_an_environment_file_is_no_secret(tree: MakeTree) -> None:
    assert shown(find(tree({".env.example": "x"}))) == [".env.example"]


def test_large_files_are_skipped_in_folders_and_read_when_named(tree: MakeTree) -> None:
    root = tree({"big.txt": "x" * 101, "big.pdf": "x" * 101, "small.txt": "x"})
    found = find(root, max_file_bytes=100)
    assert shown(found) == ["big.pdf", "small.txt"]
    assert reasons(found) == {"big.txt": SkipReason.TOO_LARGE}
    assert "101 bytes, over the limit of 100" in found.skipped[0].detail
    assert shown(find(root / "big.txt", max_file_bytes=100)) == [str(root / "big.txt")]


def test_include_and_exclude_patterns(tree: MakeTree) -> None:
    root = tree({"a.py": "", "b.md": "", "t/c.py": "", "t/d.py": ""})
    assert shown(find(root, include=("*.py",), exclude=("t/c.py",))) == ["a.py", "t/d.py"]
    assert shown(find(root, exclude=("t/",))) == ["a.py", "b.md"]


def test_a_quoted_pattern_is_expanded(tree: MakeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree({"src/a.py": "", "src/b.md": "", "src/[id].py": ""}))
    assert shown(find("src/*.py")) == ["src/[id].py", "src/a.py"]
    assert shown(find("src/[id].py")) == ["src/[id].py"]
    with pytest.raises(ConfigError, match=r"no file matches 'src/\*.rs'"):
        find("src/*.rs")


def test_a_pattern_enters_no_links(tree: MakeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two links to the folder above are two ways at every step: a walk that takes them never ends.
    And a link that is matched was not named."""
    root = tree({"a/b/x.py": "", "a/.hidden/x.py": "", "x.py": "", "a/y.md": ""})
    (root / "a/up").symlink_to("..")
    (root / "a/too").symlink_to("..")
    (root / "a/leak.py").symlink_to("/etc/hostname")
    monkeypatch.chdir(root)
    found = find("**/*.py")
    assert shown(found) == ["a/b/x.py", "x.py"]
    assert reasons(found) == {"a/leak.py": SkipReason.LINK}
    assert shown(find("*/*.md")) == ["a/y.md"]
    assert shown(find(str(root / "a/**"))) == ["y.md", ".hidden/x.py", "b/x.py"]
    assert shown(find("a/leak.py")) == ["a/leak.py"]


def test_a_missing_path_and_a_dangling_link_are_the_caller_s_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file or folder: 'nope\.txt'"):
        find("nope.txt")
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="is a link to nothing"):
        find(tmp_path / "link")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot look at"):
        find(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("https://example.org/a.pdf?x=1&y=[2]", "curl -LO 'https://example.org/a.pdf?x=1&y=[2]'"),
        ("http://example.org", "curl -LO http://example.org"),
        ("FTP://example.org/a", "curl -LO FTP://example.org/a"),
        ("https://github.com/a/b", "git clone https://github.com/a/b"),
        ("https://github.com/a/b/raw/main/c.md", "curl -LO https://github.com/a/b/raw/main/c.md"),
        ("git@example.org:a/b.git", "git clone git@example.org:a/b.git"),
        ("file:///etc/hostname", "without file://"),
        (Path("https://example.org/a"), "curl -LO"),
    ],
)
def test_a_url_is_no_missing_file(url: str | Path, advice: str) -> None:
    with pytest.raises(ConfigError, match="is a URL, and kvcli reads files only") as caught:
        find(url)
    assert advice in caught.value.advice


def test_a_file_whose_name_looks_like_a_url_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mirror:").mkdir()
    (tmp_path / "mirror:" / "a.txt").write_text("x\n")
    assert shown(find("mirror://a.txt")) == ["mirror:/a.txt"]


def test_a_named_link_is_followed_for_it_was_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "link").symlink_to("a.txt")
    assert shown(find(tmp_path / "link")) == [str(tmp_path / "link")]


def test_a_named_device_is_not_opened() -> None:
    assert reasons(find("/dev/zero")) == {"/dev/zero": SkipReason.NOT_REGULAR}


def test_standard_input_counts_once() -> None:
    assert shown(find("-")) == ["stdin"]
    with pytest.raises(ConfigError, match="only once"):
        find("-", "-")


def test_shown_paths_are_printable_utf8(tree: MakeTree) -> None:
    root = tree({"a\n\x1b[31m.txt": "x"})
    (root / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    names = shown(find(root))
    assert sorted(names) == ["a\\n\\x1b[31m.txt", "caf\\xe9.txt"]
    "".join(names).encode("utf-8")


def test_a_malformed_pattern_is_the_caller_s_error() -> None:
    with pytest.raises(ConfigError, match="malformed pattern"):
        Selection.of(1, ("!",), ())


def test_what_lies_behind_a_link_is_not_read_though_git_tracks_it(
    tree: MakeTree, git: Git, tmp_path: Path
) -> None:
    """Git lists what it tracks, also where a folder has since become a link out of the tree."""
    root = tree({"a/f.txt": "x", "b.txt": "x"})
    git(root, "init", "-q")
    git(root, "add", "-A")
    (root / "a").rename(tmp_path / "outside")
    (root / "a").symlink_to(tmp_path / "outside")
    found = find(root)
    assert shown(found) == ["b.txt"]
    assert reasons(found) == {"a": SkipReason.LINK}


def test_a_forged_index_leads_nowhere_out_of_the_folder(tree: MakeTree, git: Git) -> None:
    """Git refuses to add such a path, but lists it when the index holds it."""
    root = tree({"aa/outside.txt": "x", "b.txt": "x"})
    git(root, "init", "-q")
    git(root, "add", "-A")
    (root / "aa/outside.txt").rename(root.parent / "outside.txt")
    index = (root / ".git/index").read_bytes()[:-20].replace(b"aa/outside", b"../outside"[:10])
    (root / ".git/index").write_bytes(index + hashlib.sha1(index).digest())
    found = find(root)
    assert shown(found) == ["b.txt"]
    assert reasons(found) == {"../outside.txt": SkipReason.UNREADABLE}


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".kv", "a/" * 3000])
def test_a_name_too_long_to_exist_is_the_caller_s_error(name: str) -> None:
    with pytest.raises(ConfigError, match="File name too long"):
        find(name)
