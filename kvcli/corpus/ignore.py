"""Git's ignore rules where git itself is not asked: one rule file a directory, nearest first.

Owns the reading and ordering of `.gitignore` files. Knows no walking: the caller goes top-down and
does not enter what is ignored, as git does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.base import GitIgnorePatternError

_DIRECTORY_MARK = "ps_d"
"""The group of a pathspec pattern that matches the slash after a directory's name."""


class IgnoreRules:
    """The rules in force in one directory: its own, then those of each directory above it."""

    def __init__(self, levels: tuple[tuple[str, GitIgnoreSpec], ...] = ()) -> None:
        self._levels = levels

    def entering(
        self, folder: Path, prefix: str, names: Iterable[str] = (".gitignore",)
    ) -> IgnoreRules:
        """The rules inside `folder`, whose path from the walk's root is `prefix` ("" or "a/b/")."""
        levels = self._levels
        for name in names:
            if spec := _read_rules(folder / name):
                levels = ((prefix, spec), *levels)
        return IgnoreRules(levels)

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Whether git would ignore this entry of the directory; `path` is from the walk's root."""
        for prefix, spec in self._levels:
            asked = path[len(prefix) :] + ("/" if is_folder else "")
            for pattern in reversed(spec.patterns):
                if pattern.include is not None and _matches_itself(pattern.regex, asked):
                    return bool(pattern.include)
        return False


def _matches_itself(regex: object, path: str) -> bool:
    """Whether a rule means this entry, and not only a directory above it.

    pathspec lets `!a/` re-include everything below `a`; git re-includes `a` alone.
    """
    assert hasattr(regex, "search")
    found = regex.search(path)
    if found and found.groupdict().get(_DIRECTORY_MARK) and found.end(_DIRECTORY_MARK) < len(path):
        found = regex.search(path, len(path) - 1)
    return bool(found)


def _read_rules(path: Path) -> GitIgnoreSpec | None:
    # Git does not follow a linked rule file either.
    if os.path.islink(path) or not os.path.isfile(path):
        return None
    try:
        data = path.read_bytes()
    except OSError:
        return None
    lines = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")
    return GitIgnoreSpec.from_lines(line for line in lines if _is_valid(line))


def _is_valid(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except GitIgnorePatternError:
        return False
    return True
