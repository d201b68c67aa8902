"""A session against a dictionary: any order of writes, commits and reopenings holds the same."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import session_kit as kit
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from numpy.typing import NDArray

from engine.session import SessionFile, describe, replace_contents, verify
from engine.types import CodedSizes, KVGeometry

PAGES = 14
"""Pages that the machine plays with: three segments and a half."""
Page = NDArray[np.uint8]


class SessionMachine(RuleBasedStateMachine):
    """`pages` is what the file must hold now, `saved` what it must hold after a crash."""

    geometry: KVGeometry = kit.SMALL
    coded: CodedSizes | None = None

    @initialize()
    def create(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "s.kv"
        self.file = kit.new(self.path, self.geometry, self.coded)
        self.pages: dict[int, Page] = {}
        self.ids: list[int] = []
        self.spans: list[dict[str, int]] = []
        self.notes: dict[str, int] = {}
        self.tail: Page | None = None
        self.kv_tokens = self.generation = self.salt = 0

    @property
    def committed_pages(self) -> int:
        return self.kv_tokens // self.geometry.page_tokens

    @rule(index=st.integers(0, PAGES - 1))
    def write(self, index: int) -> None:
        """Any page that is not committed, in any order, also again."""
        if index < self.committed_pages:
            return
        self.salt += 1
        kit.write_page(self.file, index, self.salt)
        self.pages[index] = kit.stored(self.file, index, self.salt)

    @rule()
    def write_next(self) -> None:
        """The first page that is missing, so that long prefixes come about."""
        self.write(next((i for i in range(PAGES) if i not in self.pages), PAGES - 1))

    @rule(
        more_ids=st.integers(0, 9),
        pages=st.integers(0, 4),
        tail_tokens=st.integers(0, 3),
        notes=st.none() | st.integers(),
        with_span=st.booleans(),
    )
    def commit(
        self, more_ids: int, pages: int, tail_tokens: int, notes: int | None, with_span: bool
    ) -> None:
        full = self.committed_pages
        while full in self.pages and pages:
            full, pages = full + 1, pages - 1
        kv_tokens = full * self.geometry.page_tokens + tail_tokens
        tail = None
        if kv_tokens < self.kv_tokens:
            kv_tokens = self.kv_tokens  # nothing new: the file keeps the tail that it has
        else:
            self.salt += 1
            tail = kit.page(self.geometry, full, self.salt) if tail_tokens else None
            self.tail = tail
        count = max(more_ids, kv_tokens - len(self.ids))
        ids = list(range(len(self.ids), len(self.ids) + count))
        spans = [{"at": len(self.ids)}] if with_span else []
        self.file.commit(
            token_ids=ids,
            kv_tokens=kv_tokens,
            spans=spans,
            notes=None if notes is None else {"n": notes},
            tail=None if tail is None else tail.data,
        )
        self.ids += ids
        self.spans += spans
        self.notes = self.notes if notes is None else {"n": notes}
        self.kv_tokens = kv_tokens
        self.generation += 1

    @precondition(lambda self: self.generation > 0)
    @rule(share=st.floats(0, 1), more_ids=st.integers(0, 9), spans=st.integers(0, 2))
    def replace(self, share: float, more_ids: int, spans: int) -> None:
        """Other contents that begin as the old ones do."""
        same, size = round(share * len(self.ids)), self.geometry.segment_tokens
        ids = [*self.ids[:same], *range(9000 + self.salt, 9000 + self.salt + more_ids)]
        self.salt += 10
        new_spans = [*self.spans[:spans], {"at": -self.salt}]
        replace_contents(self.file, ids, new_spans, {"n": 7}, step_tokens=size)
        self.kv_tokens = min(same, self.kv_tokens) // size * size
        self.ids, self.spans, self.notes = ids, new_spans, {"n": 7}
        self.pages = {i: page for i, page in self.pages.items() if i < self.committed_pages}
        self.generation += 1

    @precondition(lambda self: self.generation > 0)
    @rule()
    def reopen(self) -> None:
        """Close, and lose what no commit has named."""
        self.file.close()
        self.file = SessionFile.open(self.path, writable=True)
        self.pages = {i: page for i, page in self.pages.items() if i < self.committed_pages}

    @precondition(lambda self: self.generation > 0)
    @rule()
    def look_from_outside(self) -> None:
        """A copy of the file, taken at any moment, is the last commit without a fault."""
        copy = self.folder / "copy.kv"
        shutil.copyfile(self.path, copy)
        summary = describe(copy)
        assert (summary.generation, summary.kv_tokens) == (self.generation, self.kv_tokens)
        assert (summary.tokens, summary.notes) == (len(self.ids), self.notes)
        assert verify(copy, lambda done, total: None).faults == ()

    @invariant()
    def holds_the_same(self) -> None:
        file = self.file
        assert (file.generation, file.kv_tokens) == (self.generation, self.kv_tokens)
        assert file.token_ids.tolist() == self.ids
        assert (file.spans, file.notes, file.recovered) == (self.spans, self.notes, "")
        for index in range(PAGES):
            assert file.has_page(index) == (index in self.pages)
        for index, page in self.pages.items():
            assert np.array_equal(kit.read_page(file, index), page)
        assert file.tail_tokens == self.kv_tokens % self.geometry.page_tokens
        if file.tail_tokens:
            assert self.tail is not None
            assert np.array_equal(kit.read_tail(file), self.tail)

    def teardown(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
            shutil.rmtree(self.folder)


class CodedSessionMachine(SessionMachine):
    """The same with slices that begin anywhere."""

    coded = kit.CODED


TestSession = SessionMachine.TestCase
TestSession.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestCodedSession = CodedSessionMachine.TestCase
TestCodedSession.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


def test_the_machine_notices_a_wrong_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: a session that returns other bytes is caught."""
    machine = SessionMachine()
    machine.create()
    machine.write(0)
    machine.pages[0] = kit.page(kit.SMALL, 0, salt=99)
    with pytest.raises(AssertionError):
        machine.holds_the_same()
    machine.teardown()
