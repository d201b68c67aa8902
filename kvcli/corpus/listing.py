"""Which files a folder holds: as git lists them, or by a walk under the same ignore rules.

Owns the call of git and the fallback. Opens no listed file and writes nothing; knows nothing of
what is worth reading.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .hidden import NAME, HidingRules
from .ignore import IgnoreRules

_GIT_SECONDS = 120

RECENT_COMMITS = 1000
"""How many commits back changes are counted: what changes now tells what will change next."""

# A repository's own settings may name programs to run; none of them may be started by reading it.
_SAFE_GIT = (
    "-c",
    "safe.directory=*",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "log.showSignature=false",
)

# Objects that a partial clone lacks would be fetched, by programs and from places that it names.
_NO_FETCHING = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}

_NOT_OPENED = re.compile(r"^warning: could not open directory '(.*?)(?:/?': ([^\n]+))?$", re.M)
"""Git cuts its messages at 4,096 bytes, so the end may be missing."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries of a folder, as paths relative to it with `/`, and what was odd about listing it."""

    entries: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...] = ()
    """What could not be looked into, mostly folders, with the reason."""
    warnings: tuple[str, ...] = ()
    changes: Mapping[str, float] = field(default_factory=dict)
    """In which share of the recent commits an entry has changed; those in none are left out."""
    hidden: int = 0
    """Entries that `.kvcliignore` files hide."""


def list_folder(folder: Path) -> Listing:
    """List a folder: inside a work tree, exactly what git would commit or keep track of.

    What `.kvcliignore` files hide is left out of it, and counted.
    """
    root = _work_tree(folder)
    listing = _listed(folder, root)
    rules = HidingRules(folder, root or folder)
    kept = rules.kept(listing.entries)
    told = (f"'{folder}' is hidden by a {NAME} above it; read because it was named",)
    return replace(
        listing,
        entries=kept,
        hidden=len(listing.entries) - len(kept),
        warnings=listing.warnings + (told if rules.hides_folder else ()),
    )


def _listed(folder: Path, root: Path | None) -> Listing:
    if root is None:
        return _walk(folder, folder)
    try:
        done = _run_git(folder, "ls-files", "-z", "-co", "--exclude-standard")
        listed = (os.fsdecode(name).rstrip("/") for name in done.stdout.split(b"\0") if name)
        inside, outside = _inside(folder, dict.fromkeys(listed))
        entries = tuple(inside)
        if not entries and _is_ignored(folder):
            told = f"'{folder}' is ignored by its repository; read as a plain folder"
            return _walk(folder, folder, warnings=(told,))
        unreadable = (*_not_opened(done.stderr, folder, root), *outside)
        return Listing(entries, unreadable, changes=shares_of_commits(folder))
    except (OSError, subprocess.SubprocessError) as error:
        told = (
            f"git could not list '{folder}' ({_reason(error)}); its ignore rules were applied "
            "without it, so tracked files that they match are left out"
        )
        return _walk(folder, root, warnings=(told,))


def _work_tree(folder: Path) -> Path | None:
    """The nearest folder at or above with a `.git` entry."""
    resolved = folder.resolve()
    return next((at for at in (resolved, *resolved.parents) if (at / ".git").exists()), None)


def _inside(folder: Path, listed: Iterable[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """What git lists that lies in the folder, and what it was made to list elsewhere.

    The index is a file of the repository: it may name any path, and a folder whose files it names
    may have become a link. What such a link leads to is no part of the work tree.
    """
    inside: list[str] = []
    outside: list[tuple[str, str]] = []
    is_real = {"": True}
    for entry in listed:
        if entry.startswith("/") or ".." in entry.split("/"):
            outside.append((entry, "the repository's index places it outside the folder"))
            continue
        above = ""
        for part in entry.split("/")[:-1]:
            below = f"{above}{part}/"
            if below not in is_real:
                is_real[below] = is_real[above] and not os.path.islink(folder / below[:-1])
            above = below
        if is_real[above]:
            inside.append(entry)
    return inside, outside


def _not_opened(told: bytes, folder: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Folders that git could not open and left out, with the reason."""
    to_folder = os.path.relpath(folder.resolve(), root)
    for found in _NOT_OPENED.finditer(os.fsdecode(told)):
        yield os.path.relpath(found[1], to_folder), found[2] or "git could not open it"


def _git(folder: Path, *arguments: str) -> bytes:
    return _run_git(folder, *arguments).stdout


def _run_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    # Variables of a surrounding git command (a hook, say) would point at another repository.
    foreign = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
    env = {name: value for name, value in os.environ.items() if name not in foreign}
    return subprocess.run(
        ["git", *_SAFE_GIT, "-C", str(folder), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=_GIT_SECONDS,
        env={**env, **_NO_FETCHING, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
    )


def shares_of_commits(folder: Path, commit: str = "HEAD") -> dict[str, float]:
    """In which share of the last `RECENT_COMMITS` commits each file of a folder has changed.

    Nothing is lost without: a repository that has no commits or cannot be read gives none.
    """
    words = (f"--max-count={RECENT_COMMITS}", "--name-only", "--no-renames", "-z")
    try:
        told = _git(folder, "log", *words, "--format=%x01", "--relative", commit, "--")
    except (OSError, subprocess.SubprocessError):
        return {}
    parts = [part.lstrip(b"\n") for part in told.split(b"\0")]
    commits = sum(part.startswith(b"\1") for part in parts)
    names = Counter(os.fsdecode(part) for part in parts if part.strip(b"\1"))
    return {name: count / commits for name, count in names.items()}


def _is_ignored(folder: Path) -> bool:
    try:
        _git(folder, "check-ignore", "-q", ".")
    except subprocess.CalledProcessError:
        return False
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "git is not installed"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer in {_GIT_SECONDS} s"
    if isinstance(error, subprocess.CalledProcessError):
        told = error.stderr.decode("utf-8", "replace").strip().splitlines()
        return told[0] if told else f"exit code {error.returncode}"
    return str(error)


def _walk(folder: Path, root: Path, warnings: tuple[str, ...] = ()) -> Listing:
    """List by hand, applying the rule files from `root` down; links are listed, not followed."""
    base, above = _rules_above(folder, root)
    entries: list[str] = []
    unreadable: list[tuple[str, str]] = []
    stack = [("", above)]
    while stack:
        prefix, outer = stack.pop()
        here = folder / prefix
        try:
            with os.scandir(here) as scan:
                found = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            unreadable.append((prefix.rstrip("/"), error.strerror or str(error)))
            continue
        rules = outer.entering(here, base + prefix)
        for entry in found:
            path = prefix + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or rules.ignores(base + path, is_folder=is_folder):
                continue
            if is_folder:
                stack.append((path + "/", rules))
            else:
                entries.append(path)
    return Listing(tuple(entries), tuple(unreadable), warnings)


def _rules_above(folder: Path, root: Path) -> tuple[str, IgnoreRules]:
    """The path from `root` to `folder` ("" or "a/b/") and the rules of the folders in between."""
    rules = IgnoreRules().entering(root, "", [".git/info/exclude"])
    base = ""
    for part in folder.resolve().relative_to(root.resolve()).parts:
        rules = rules.entering(root / base, base)
        base += part + "/"
    return base, rules


def kind_of(status: os.stat_result) -> str:
    """What a file system entry is, in words."""
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
    }
    return kinds.get(stat.S_IFMT(status.st_mode), "a special file")
