"""From tokens back to sources, and how sources are written."""

from __future__ import annotations

import json

import pytest

from engine.errors import SessionError
from kvcli.corpus.source_map import SourceMap, TokenSpan
from kvcli.corpus.spans import Span

PAGE = TokenSpan(10, 5, "report.pdf", page=12, label="xii")
CODE = TokenSpan(15, 20, "src/app.py", lines=(40, 63), name="main")
LATER = TokenSpan(50, 1, "src/b.py", lines=(7, 7))
ROW = TokenSpan(60, 4, "a.csv", lines=(61, 120), note="name,age")


def test_tokens_find_their_span_and_scaffolding_has_none() -> None:
    sources = SourceMap([PAGE, CODE, LATER])
    found = [sources.locate(index) for index in (0, 9, 10, 14, 15, 34, 35, 49, 50, 51)]
    assert found == [None, None, PAGE, PAGE, CODE, CODE, None, None, LATER, None]


def test_a_run_of_tokens_finds_every_span_it_touches() -> None:
    sources = SourceMap([PAGE, CODE, LATER])
    assert sources.overlapping(0, 10) == ()
    assert sources.overlapping(14, 2) == (PAGE, CODE)
    assert sources.overlapping(34, 17) == (CODE, LATER)
    assert sources.overlapping(35, 15) == ()


@pytest.mark.parametrize(
    ("span", "cited"),
    [
        (PAGE, 'report.pdf p. 12 (labelled "xii")'),
        (TokenSpan(0, 1, "report.pdf", page=3), "report.pdf p. 3"),
        (CODE, "src/app.py:40-63"),
        (LATER, "src/b.py:7"),
        (TokenSpan(0, 1, "a.ipynb", lines=(1, 4), name="cell 3"), "a.ipynb cell 3:1-4"),
        (TokenSpan(0, 1, "a.ipynb", name="cell 3 output"), "a.ipynb cell 3 output"),
        (TokenSpan(0, 1, "stdin"), "stdin"),
        (TokenSpan(0, 1, "a.docx", name="Use > Linux"), 'a.docx "Use > Linux"'),
    ],
)
def test_citations(span: TokenSpan, cited: str) -> None:
    assert span.cite() == cited


def test_a_map_survives_the_session_file() -> None:
    stored = json.loads(json.dumps(SourceMap([PAGE, CODE, LATER, ROW]).to_json()))
    assert list(SourceMap.from_json(stored).spans) == [PAGE, CODE, LATER, ROW]


def test_absent_fields_take_no_room() -> None:
    assert LATER.to_json() == {"at": 50, "n": 1, "path": "src/b.py", "lines": [7, 7]}


def test_spans_without_tokens_are_dropped() -> None:
    assert list(SourceMap([TokenSpan(3, 0, "a"), LATER]).spans) == [LATER]


@pytest.mark.parametrize(
    "entries",
    [
        [{}],
        [{"at": 0, "n": "many", "path": "a"}],
        [{"at": 0, "n": 2, "path": "a", "lines": [1]}],
        [{"at": 0, "n": 5, "path": "a"}, {"at": 4, "n": 1, "path": "b"}],
    ],
)
def test_a_malformed_map_is_refused(entries: list[dict[str, object]]) -> None:
    with pytest.raises(SessionError, match="source map"):
        SourceMap.from_json(entries)


def test_a_text_span_becomes_a_token_span() -> None:
    span = Span("text", lines=(1, 2), name="f")
    assert TokenSpan.of(span, "a.py", 7, 3) == TokenSpan(7, 3, "a.py", lines=(1, 2), name="f")
