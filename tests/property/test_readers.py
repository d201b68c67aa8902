"""Every reader on random and changed files; `tests/fuzz.py` does the same for minutes."""

from __future__ import annotations

import pytest
from fuzz import TARGETS, bounded

EXAMPLES = {"changed_pdfs": 8}
"""A PDF takes a process to read."""


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_whatever_a_file_holds_it_is_read_whole_or_refused(name: str) -> None:
    bounded(name, EXAMPLES.get(name, 40))()
