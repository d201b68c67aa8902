"""What `.kvcliignore` files hide of a folder, on top of what git ignores.

Owns the name of the files and where they hold: in any folder, for what lies below it, nested as
git's own rules are. They hide tracked files too, and bring back nothing that git ignores. Reads
rule files alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .ignore import IgnoreRules

NAME = ".kvcliignore"


class HidingRules:
    """The rules that hold in a folder and below.

    Args:
        folder: What the user gave.
        root: The folder from which on rules hold: the work tree's, or the folder itself.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self.hides_folder = False
        """The folder itself is hidden by rules above. It was given, so those do not count."""
        rules, base = IgnoreRules(), ""
        for part in folder.resolve().relative_to(root.resolve()).parts:
            rules = rules.entering(root / base, base, (NAME,))
            if rules.ignores(base + part, is_folder=True):
                self.hides_folder = True
            base += part + "/"
        self._base = base
        outer = IgnoreRules() if self.hides_folder else rules
        self._inside: dict[str, IgnoreRules | None] = {"": outer.entering(folder, base, (NAME,))}

    def kept(self, entries: Iterable[str]) -> tuple[str, ...]:
        """The entries, as paths from the folder, that no rule hides."""
        return tuple(entry for entry in entries if not self._hides(entry))

    def _hides(self, entry: str) -> bool:
        above, _, _ = entry.rpartition("/")
        rules = self._rules_in(above)
        return rules is None or rules.ignores(self._base + entry, is_folder=False)

    def _rules_in(self, below: str) -> IgnoreRules | None:
        """The rules in a folder below, or None where it is hidden itself."""
        missing = []
        while below not in self._inside:
            missing.append(below)
            below = below.rpartition("/")[0]
        rules = self._inside[below]
        for path in reversed(missing):
            if rules is not None and rules.ignores(self._base + path, is_folder=True):
                rules = None
            if rules is not None:
                rules = rules.entering(self._folder / path, f"{self._base}{path}/", (NAME,))
            self._inside[path] = rules
        return rules
