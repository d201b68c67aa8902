"""A tree of files with their token counts, largest first.

Owns folding: folders add up, and what is small is counted instead of listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from rich.text import Text
from rich.tree import Tree

from kvcli.output import clean
from kvcli.sizes import format_size

if TYPE_CHECKING:
    from kvcli.dry_run import FileCount

LISTED = 40
"""Files shown; the smallest ones beyond are only counted."""


@dataclass(slots=True)
class _Folder:
    folders: dict[str, _Folder] = field(default_factory=dict)
    files: list[FileCount] = field(default_factory=list)
    tokens: int = 0
    listed: int = 0
    """Files of this folder and below that are shown."""
    total: int = 0


def token_tree(files: Sequence[FileCount], *, show_all: bool) -> Tree:
    """Draw the tree.

    Args:
        files: In any order.
        show_all: List every file, however many there are.
    """
    by_size = sorted(files, key=lambda file: -file.tokens)
    listed = {file.path for file in (by_size if show_all else by_size[:LISTED])}
    root = _Folder()
    for file in by_size:
        folder = root
        _count(folder, file, listed)
        for part in PurePosixPath(file.path).parts[:-1]:
            folder = folder.folders.setdefault(part, _Folder())
            _count(folder, file, listed)
        folder.files.append(file)
    noun = "file" if len(files) == 1 else "files"
    tree = Tree(_label(f"{len(files):,} {noun}", root.tokens, "bold"), guide_style="grey42")
    _fill(tree, root, listed)
    return tree


def _count(folder: _Folder, file: FileCount, listed: set[str]) -> None:
    folder.tokens += file.tokens
    folder.total += 1
    folder.listed += file.path in listed


def _fill(tree: Tree, root: _Folder, listed: set[str]) -> None:
    """Without recursion: folders can be nested thousands deep."""
    todo = [(tree, root)]
    while todo:
        branch, folder = todo.pop()
        entries: list[tuple[int, str, FileCount | _Folder]] = [
            *((file.tokens, file.path, file) for file in folder.files if file.path in listed),
            *((sub.tokens, name, sub) for name, sub in folder.folders.items() if sub.listed),
        ]
        for tokens, name, entry in sorted(entries, key=lambda entry: (-entry[0], entry[1])):
            if isinstance(entry, _Folder):
                shown, inner = _unfold(name, entry)
                todo.append((branch.add(_label(shown, tokens, "bold")), inner))
            else:
                size = f"  {format_size(entry.bytes)}"
                branch.add(_label(PurePosixPath(name).name, tokens).append(size, "grey50"))
        hidden = _hidden(folder, listed)
        if hidden[0]:
            branch.add(_label(f"... {hidden[0]:,} smaller", hidden[1], "grey50"))


def _unfold(name: str, folder: _Folder) -> tuple[str, _Folder]:
    """Folders that hold nothing but one folder share a line: `src/main/java/`."""
    names = [name]
    while len(folder.folders) == 1 and not folder.files:
        ((below, folder),) = folder.folders.items()
        names.append(below)
    return str(PurePosixPath(*names)).rstrip("/") + "/", folder  # the root is named "/" itself


def _hidden(folder: _Folder, listed: set[str]) -> tuple[int, int]:
    """Files and tokens of a folder that no line below it accounts for."""
    files = [file for file in folder.files if file.path not in listed]
    folders = [sub for sub in folder.folders.values() if not sub.listed]
    return (
        len(files) + sum(sub.total for sub in folders),
        sum(file.tokens for file in files) + sum(sub.tokens for sub in folders),
    )


def _label(name: str, tokens: int, style: str = "") -> Text:
    return Text.assemble((clean(name), style), "  ", (f"{tokens:,}", "cyan"))
