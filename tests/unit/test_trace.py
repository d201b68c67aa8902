"""The record of page accesses that policies are compared by."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.trace import Access, AccessKind, AccessTrace
from engine.types import PageId

PAGES = st.lists(st.integers(0, 200), min_size=1, max_size=60).map(
    lambda pages: tuple(PageId(page) for page in pages)
)


@settings(deadline=None)
@given(PAGES, st.sampled_from(sorted(AccessKind, key=lambda kind: kind.value)))
def test_an_event_survives_as_json(pages: tuple[PageId, ...], kind: AccessKind) -> None:
    mass = tuple(0.25 for _ in pages) if kind is AccessKind.WEIGHED else ()
    access = Access(kind, pages, mass)
    assert Access.from_json(access.to_json()) == access


def test_neighbours_are_written_as_one_run() -> None:
    access = Access(AccessKind.READ, tuple(PageId(page) for page in [*range(5000), 3, 4]))
    assert access.to_json() == {"kind": "read", "pages": [[0, 5000], [3, 2]]}


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"kind": "read"},
        {"kind": "eaten", "pages": [[0, 1]]},
        {"kind": "read", "pages": [[0]]},
        {"kind": "read", "pages": 7},
        {"kind": "read", "pages": [[0, 10**12]]},
        {"kind": "read", "pages": [[-1, 1]]},
        {"kind": "weighed", "pages": [[0, 3]], "mass": [1.0]},
        {"kind": "weighed", "pages": [[0, 3]]},
        {"kind": "read", "pages": [[0, 1]], "mass": [1.0]},
        {"kind": "weighed", "pages": [[0, 1]], "mass": [float("nan")]},
        {"kind": "weighed", "pages": [[0, 1]], "mass": [-1.0]},
        [],
        None,
    ],
)
def test_what_is_no_event_is_refused(event: Any) -> None:
    with pytest.raises(ValueError):
        Access.from_json(event)


def test_only_pages_that_were_begun_are_recorded() -> None:
    """Pages of sequences beside the main one never leave memory, and would mislead policies."""
    trace = AccessTrace()
    trace.begin(AccessKind.NEW, [PageId(0)])
    assert trace.take() == [], "nobody asked for it yet"
    trace.is_on = True
    trace.begin(AccessKind.NEW, [PageId(1), PageId(2)])
    trace.read([PageId(2), PageId(0), PageId(9)])
    trace.weigh({PageId(9): 1.0, PageId(1): 0.5})
    trace.read([PageId(9)])
    trace.drop([PageId(1), PageId(9)])
    trace.read([PageId(1)])
    kinds = [(access.kind, access.pages) for access in trace.take()]
    assert kinds == [
        (AccessKind.NEW, (1, 2)),
        (AccessKind.READ, (2,)),
        (AccessKind.WEIGHED, (1,)),
        (AccessKind.DROPPED, (1,)),
    ]
    assert trace.take() == []
