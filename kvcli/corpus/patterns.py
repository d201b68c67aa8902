"""A pattern that a user typed, such as `src/**/*.py`, to the paths that it matches.

Owns the walk. Links are matched but never entered, so that no circle of them is walked and nothing
outside is met; names that begin with a dot match no star, as in a shell.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import PurePath


def expand(pattern: str) -> list[str]:
    """Every path that a pattern matches, sorted; `**` stands for any number of folders."""
    path = PurePath(pattern)
    found = [path.anchor]
    parts = path.parts[1:] if path.anchor else path.parts
    for number, part in enumerate(parts, start=1):
        if part == "**":
            # At the end it means all that lies there, which the folder itself stands for.
            found = found if number == len(parts) else list(_folders(found))
        elif has_magic(part):
            is_last = number == len(parts)
            found = [
                below
                for at in found
                for below, is_folder in _entries(at)
                if _matches(os.path.basename(below), part) and (is_last or is_folder)
            ]
        else:
            joined = (os.path.join(at, part) for at in found)
            found = [at for at in joined if os.path.lexists(at)]
    return sorted({at or "." for at in found})


def _matches(name: str, part: str) -> bool:
    is_hidden = name.startswith(".") and not part.startswith(".")
    return not is_hidden and fnmatchcase(name, part)


def _entries(folder: str) -> list[tuple[str, bool]]:
    """Path of each entry, and whether it is a folder and no link."""
    try:
        with os.scandir(folder or ".") as scan:
            return [
                (os.path.join(folder, entry.name), entry.is_dir(follow_symlinks=False))
                for entry in scan
            ]
    except OSError:
        return []


def _folders(starts: Iterable[str]) -> Iterator[str]:
    """The folders given and all below them."""
    stack = list(starts)
    while stack:
        at = stack.pop()
        yield at
        for path, is_folder in _entries(at):
            if is_folder and not os.path.basename(path).startswith("."):
                stack.append(path)
