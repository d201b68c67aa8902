"""Questions about long documents, with their answers and the places where those stand.

Owns the reading of the question files beside it and the two judgements, of an answer and of a
citation. Knows neither the documents nor how they are asked; README.md says where they come from.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

NAMES = ("manual", "kvcli", "httpx")
"""The sets of questions."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an answer stands: a page of a PDF, a definition of a source file, or a whole file."""

    path: str
    """A file name, or a path from the parent of the folder that is read."""
    page: int | None = None
    """Physical page, 1-based."""
    name: str | None = None
    """Qualified name of the definition; its members count as well."""

    def is_cited_by(self, path: str, page: int | None = None, name: str | None = None) -> bool:
        """Whether a citation, with the fields that `--json` prints, points here."""
        inside = self.path.partition("/")[2]
        if path != inside and not f"/{path}".endswith(f"/{self.path}"):
            return False
        if self.page is not None and page != self.page:
            return False
        return self.name is None or f"{name}.".startswith(f"{self.name}.")


@dataclass(frozen=True, slots=True)
class Question:
    """A question with a short answer that can be checked."""

    text: str
    shares_words: bool
    """Whether it is put in the words of the right places; if not, in a stranger's words."""
    places: tuple[Place, ...]
    """Every place that would be a right citation."""
    accept: tuple[str, ...]
    """Patterns; a right answer holds at least one of them, in either case of letters."""

    def is_answered_by(self, answer: str) -> bool:
        """Whether a text holds the answer."""
        return any(re.search(pattern, answer, re.IGNORECASE) for pattern in self.accept)


def load(name: str, document: str | None = None) -> tuple[Question, ...]:
    """Read one of the sets `NAMES`.

    Args:
        name: Which.
        document: What the set's only document is called in the session, if not as in the set.

    Returns:
        Both kinds in turn, and places spread over the documents, so that any even number of leading
        questions is a fair sample.

    Raises:
        FileNotFoundError: There is no such set.
    """
    text = Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8")
    return tuple(
        Question(
            text=entry["text"],
            shares_words=entry["shares_words"],
            places=tuple(
                Place(**place | ({"path": document} if document else {}))
                for place in entry["places"]
            ),
            accept=tuple(entry["accept"]),
        )
        for entry in json.loads(text)
    )
