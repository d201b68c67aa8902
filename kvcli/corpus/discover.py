"""From the paths a user typed to the files to read, in reading order, and those left out.

Owns what is worth reading by name, size and kind of entry, and the order of a folder's files. Opens
nothing: entries are looked at with lstat only.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from glob import has_magic
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec

from engine.errors import ConfigError

from .listing import kind_of, list_folder
from .patterns import expand
from .spans import Skip, SkipReason

_BULKY = (".pdf", ".epub", ".docx", ".eml", ".mbox")
_BULKY_FACTOR = 64
"""Their bytes are mostly fonts, pictures and attachments: their limit is this many times that of
text."""

_LOCK_FILES = frozenset({
    "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock",
    "poetry.lock", "pdm.lock", "uv.lock", "pipfile.lock", "cargo.lock", "gemfile.lock",
    "composer.lock", "go.sum", "flake.lock",
})  # fmt: skip
_MINIFIED = ("*.min.js", "*.min.mjs", "*.min.css", "*.js.map", "*.css.map")
_SECRETS = (
    ".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".pgpass", ".pypirc", ".htpasswd",
    ".git-credentials",
)  # fmt: skip
_NOT_SECRETS = (".env.example", ".env.sample", ".env.template", ".env.dist")
_MANIFESTS = frozenset({
    "pyproject.toml", "setup.py", "setup.cfg", "package.json", "cargo.toml", "go.mod", "pom.xml",
    "build.gradle", "build.gradle.kts", "cmakelists.txt", "makefile", "gemfile", "composer.json",
    "dockerfile",
})  # fmt: skip
_OFTEN = 0.05
"""Share of commits from which on a README or manifest does not come first any more."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/{1,3}[^/]|git@[\w.-]+:")
"""One slash is what is left of two in a URL that was made a Path."""
_REPOSITORY = re.compile(
    r"^(?:git|ssh)\b|\.git/?$|^https?:/+(?:github|gitlab)\.com/[^/]+/[^/?#]+/?$"
)

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read. `path` is None for standard input."""

    path: Path | None
    shown: str
    is_named: bool
    """Given by name, not found in a folder: it is read whatever its size or name."""


@dataclass(slots=True)
class Discovery:
    """What was found, in reading order, what was left out, and what was odd."""

    found: list[Found] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    hidden: int = 0
    """Files that `.kvcliignore` files hide."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files of a folder are wanted."""

    max_file_bytes: int
    include: GitIgnoreSpec | None
    exclude: GitIgnoreSpec

    @classmethod
    def of(cls, max_file_bytes: int, include: Sequence[str], exclude: Sequence[str]) -> Selection:
        """Compile patterns in gitignore's notation.

        Raises:
            ConfigError: a pattern is malformed.
        """
        try:
            wanted = _patterns(include) if include else None
            return cls(max_file_bytes, wanted, _patterns(exclude))
        except ValueError as error:
            raise ConfigError(f"malformed pattern: {error}") from error

    def wants(self, path: str) -> bool:
        """Whether the user's patterns let a path of the folder through."""
        if self.exclude.match_file(path):
            return False
        return self.include is None or self.include.match_file(path)


def _patterns(lines: Sequence[str]) -> GitIgnoreSpec:
    # The other ways to match, taken if they happen to be installed, want names that are text.
    return GitIgnoreSpec.from_lines(lines, backend="simple")


def discover(paths: Sequence[Path | str], selection: Selection) -> Discovery:
    """Find the files behind paths: files, folders, patterns such as `src/*.py`, and `-`.

    Raises:
        ConfigError: a path does not exist or is a URL, or `-` is given twice.
    """
    out = Discovery()
    expanded = [(str(path), _expanded(path)) for path in paths]
    typed = [one for _, found in expanded for one in found]
    matched = {one for path, found in expanded for one in found if one != path}
    if typed.count("-") > 1:
        raise ConfigError("standard input can be read only once")
    many_folders = sum(one != "-" and os.path.isdir(one) for one in typed) > 1
    for one in typed:
        if one == "-":
            out.found.append(Found(None, "stdin", is_named=True))
            continue
        path = Path(one)
        if one in matched and path.is_symlink():
            out.skipped.append(Skip(printable(one), SkipReason.LINK, "a link; name it to read it"))
            continue
        status = _followed(path)
        if stat.S_ISDIR(status.st_mode):
            _discover_folder(path, path if many_folders else Path(), selection, out)
        elif stat.S_ISREG(status.st_mode):
            out.found.append(Found(path, printable(str(path)), is_named=True))
        else:
            out.skipped.append(Skip(printable(one), SkipReason.NOT_REGULAR, kind_of(status)))
    out.found = _once_each(out.found)
    return out


def printable(path: str) -> str:
    """A path as UTF-8 without control characters; odd bytes and characters become escapes."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _expanded(path: Path | str) -> list[str]:
    text = str(path)
    if _URL.match(text) and not os.path.lexists(text):
        raise _no_urls(text)
    if text == "-" or os.path.lexists(text) or not has_magic(text):
        return [text]
    matches = expand(text)
    if not matches:
        raise ConfigError(f"no file matches '{printable(text)}'")
    return matches


def _no_urls(text: str) -> ConfigError:
    """Nothing is fetched: what a server sends today cannot be cited tomorrow."""
    shown = printable(text)
    if text.lower().startswith("file:"):
        advice = "Give the path alone, without file://."
    elif _REPOSITORY.search(text):
        advice = f"Fetch it first: git clone {shlex.quote(shown)}"
    else:
        advice = f"Download it first, for example by: curl -LO {shlex.quote(shown)}"
    return ConfigError(f"'{shown}' is a URL, and kvcli reads files only", advice)


def _followed(path: Path) -> os.stat_result:
    """The status of a path a user typed; links are followed here, and only here."""
    try:
        return path.stat()
    except FileNotFoundError as error:
        shown = printable(str(path))
        if path.is_symlink():
            raise ConfigError(f"'{shown}' is a link to nothing") from error
        raise ConfigError(f"no such file or folder: '{shown}'") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"cannot look at '{printable(str(path))}': {why}") from error


def _discover_folder(folder: Path, shown_under: Path, selection: Selection, out: Discovery) -> None:
    listing = list_folder(folder)
    out.warnings.extend(listing.warnings)
    out.hidden += listing.hidden
    for name, why in listing.unreadable:
        shown = printable(str(shown_under / name)) if name else printable(str(folder))
        out.skipped.append(Skip(shown, SkipReason.UNREADABLE, why))
    for entry in in_reading_order(listing.entries, listing.changes):
        if not selection.wants(entry):
            continue
        shown = printable(str(shown_under / entry))
        verdict = _judge(folder / entry, entry, selection.max_file_bytes)
        if isinstance(verdict, Skip):
            out.skipped.append(Skip(shown, verdict.reason, verdict.detail))
        elif verdict:
            out.found.append(Found(folder / entry, shown, is_named=False))


def _judge(path: Path, entry: str, max_bytes: int) -> Skip | bool:
    """A skip, True for a file to read, or False for one that git tracks and that is gone."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False  # deleted from the work tree, so no part of what the user gave
    except OSError as error:
        return Skip(entry, SkipReason.UNREADABLE, error.strerror or str(error))
    if stat.S_ISLNK(status.st_mode):
        return Skip(entry, SkipReason.LINK, f"a link to '{printable(os.readlink(path))}'")
    if stat.S_ISDIR(status.st_mode):
        return Skip(
            entry, SkipReason.SUBMODULE, "a repository of its own; give its path to read it"
        )
    if not stat.S_ISREG(status.st_mode):
        return Skip(entry, SkipReason.NOT_REGULAR, kind_of(status))
    name = PurePosixPath(entry).name.lower()
    if _is_any(name, _SECRETS) and name not in _NOT_SECRETS:
        return Skip(entry, SkipReason.SECRET, "its name says that it holds secrets")
    if name in _LOCK_FILES or _is_any(name, _MINIFIED):
        return Skip(entry, SkipReason.GENERATED, "a lock file or minified code")
    limit = max_bytes * (_BULKY_FACTOR if name.endswith(_BULKY) else 1)
    if status.st_size > limit:
        told = f"{status.st_size:,} bytes, over the limit of {limit:,} for files found in a folder"
        return Skip(entry, SkipReason.TOO_LARGE, told)
    return True


def _is_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def in_reading_order(entries: Iterable[str], changes: Mapping[str, float]) -> list[str]:
    """Order a folder's files so that they read well and an update has little to read again.

    A change makes everything behind it be read again. So READMEs and manifests come first unless
    they change often themselves, then files that rarely change before those that often do: folder
    by folder among files that change about equally often, each of which begins with its README.

    Args:
        entries: Paths relative to the folder.
        changes: In which share of the commits each has changed; those that are not named never.
    """

    def key(entry: str) -> tuple[int, tuple[str, ...], int, float, str]:
        path, often = PurePosixPath(entry), changes.get(entry, 0.0)
        name = path.name.lower()
        rank = 0 if name.startswith("readme") else 1 if name in _MANIFESTS else 2
        band = round(often * 1000).bit_length()
        leads = rank < 2 and often < _OFTEN and len(path.parts) == 1
        return 0 if leads else band, path.parts[:-1], rank, often, path.name

    return sorted(entries, key=key)


def _once_each(found: Iterable[Found]) -> list[Found]:
    """The first mention of each file, and no path shown for two of them."""
    kept: dict[str, Found] = {}
    shown: set[str] = set()
    for one in found:
        key = "-" if one.path is None else os.path.realpath(one.path)
        if key in kept:
            continue
        if one.shown in shown and one.path is not None:
            one = Found(one.path, printable(str(one.path)), one.is_named)
        shown.add(one.shown)
        kept[key] = one
    return list(kept.values())
