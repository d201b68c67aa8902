"""Git's ignore rules where git itself is not asked: one rule file a directory, nearest first.

Owns the reading and ordering of `.gitignore` files. Knows no walking: the caller goes top-down and
does not enter what is ignored, as git does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import re2
from pathspec.patterns.gitignore.base import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

_DIRECTORY_MARK = b"ps_d"
"""The group of a pathspec pattern that matches the slash after a directory's name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A line of a rule file. Git matches bytes, so a name need not be text."""

    regex: Any
    ignores: bool

    def means(self, path: bytes) -> bool:
        """Whether the rule means this entry, and not only a directory above it.

        pathspec lets `!a/` re-include everything below `a`; git re-includes `a` alone.
        """
        found = self.regex.search(path)
        mark = self.regex.groupindex.get(_DIRECTORY_MARK)
        if found and mark and found[mark] and found.end(mark) < len(path):
            found = self.regex.search(path, len(path) - 1)
        return bool(found)


class IgnoreRules:
    """The rules in force in one directory: its own, then those of each directory above it."""

    def __init__(self, levels: tuple[tuple[str, tuple[_Rule, ...]], ...] = ()) -> None:
        self._levels = levels

    def entering(
        self, folder: Path, prefix: str, names: Iterable[str] = (".gitignore",)
    ) -> IgnoreRules:
        """The rules inside `folder`, whose path from the walk's root is `prefix` ("" or "a/b/")."""
        levels = self._levels
        for name in names:
            if rules := tuple(_read_rules(folder / name)):
                levels = ((prefix, rules), *levels)
        return IgnoreRules(levels)

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Whether git would ignore this entry of the directory; `path` is from the walk's root."""
        for prefix, rules in self._levels:
            asked = os.fsencode(path[len(prefix) :]) + (b"/" if is_folder else b"")
            for rule in reversed(rules):
                if rule.means(asked):
                    return rule.ignores
        return False


def _read_rules(path: Path) -> Iterator[_Rule]:
    # Git does not follow a linked rule file either.
    if os.path.islink(path) or not os.path.isfile(path):
        return
    try:
        data = path.read_bytes()
    except OSError:
        return
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if rule := _rule(line):
            yield rule


def _rule(line: bytes) -> _Rule | None:
    """None for a comment, and for what git takes for no rule."""
    try:
        pattern = GitIgnoreSpecPattern(line)
    except GitIgnorePatternError:
        return None
    if pattern.regex is None or pattern.include is None:
        return None
    # A name may hold line feeds. And rules come from the folder that is read: re2 takes a time in
    # proportion to the name, where `re` would try every way to share it among a rule's stars.
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.dot_nl = True
    options.log_errors = False
    try:
        expression = pattern.regex.pattern.replace(b"|$)", rb"|\z)")
        return _Rule(re2.compile(expression, options), bool(pattern.include))
    except re2.error:
        return None
