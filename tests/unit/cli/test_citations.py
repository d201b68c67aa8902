"""From scores per page to the sources worth naming."""

from __future__ import annotations

import pytest

from kvcli.citations import LEAST_SHARE, MOST, cite
from kvcli.corpus.source_map import SourceMap, TokenSpan

PAGE = 16


def spans(*sizes: int) -> SourceMap:
    """Spans of these many tokens, one behind the other, behind 5 tokens of scaffolding."""
    found, at = [], 5
    for number, size in enumerate(sizes):
        found.append(TokenSpan(at, size, f"{number}.txt", lines=(1, size)))
        at += size
    return SourceMap(found)


def paths(*scores: float, source_map: SourceMap) -> list[str]:
    return [citation.path for citation in cite(scores, source_map, PAGE)]


def test_nothing_is_cited_where_nothing_was_attended_to() -> None:
    assert cite([0.0, 0.0, -1.0], spans(40), PAGE) == ()
    assert cite([], spans(40), PAGE) == ()


def test_the_heaviest_source_comes_first_and_shares_are_of_the_whole() -> None:
    """Pages 1 and 3 lie wholly within the second and the fourth span."""
    found = cite([0.0, 1.0, 0.0, 3.0], spans(11, 16, 16, 16), PAGE)
    assert [(one.path, one.weight) for one in found] == [("3.txt", 0.75), ("1.txt", 0.25)]


def test_a_page_is_shared_by_the_tokens_that_spans_have_in_it() -> None:
    """The first page holds 5 tokens of scaffolding, 3 of one span and 8 of the next."""
    found = cite([1.0], spans(3, 30), PAGE)
    assert [(one.path, one.weight) for one in found] == [
        ("1.txt", pytest.approx(8 / 11, abs=1e-4)),
        ("0.txt", pytest.approx(3 / 11, abs=1e-4)),
    ]


def test_the_piece_that_answers_comes_first_though_it_is_the_smaller() -> None:
    """A sentence at the foot of a page was cited as the next one, which had more tokens."""
    asked: list[tuple[int, int]] = []

    def evidence(first: int, end: int) -> float:
        asked.append((first, end))
        return 1.0 if first == 5 else 0.0

    found = cite([1.0, 1.0], spans(3, 30), PAGE, evidence)
    assert [one.path for one in found] == ["1.txt", "0.txt"], "two pages against a piece of one"
    assert asked == [(5, 8), (8, 16)], "a page of one span needs no telling apart"
    (first, second) = cite([1.0], spans(3, 30), PAGE, evidence)
    assert (first.path, second.path) == ("0.txt", "1.txt")
    assert first.weight + second.weight == pytest.approx(1.0)


def test_pieces_without_evidence_count_by_their_tokens() -> None:
    plain = cite([1.0], spans(3, 30), PAGE)
    assert cite([1.0], spans(3, 30), PAGE, lambda first, end: 0.0) == plain


def test_scaffolding_alone_is_no_source() -> None:
    assert cite([1.0], SourceMap([TokenSpan(16, 16, "a.txt")]), PAGE) == ()


def test_small_shares_and_long_lists_are_not_worth_a_reader() -> None:
    assert paths(1.0, 0.02, source_map=spans(11, 16)) == ["0.txt"]
    even = paths(*[1.0] * 12, source_map=spans(11, *[16] * 11))
    assert len(even) == MOST
    assert LEAST_SHARE < 1 / 12


def test_a_citation_reads_as_people_write_it() -> None:
    page = TokenSpan(0, 16, "r.pdf", page=12, label="xii")
    (found,) = cite([1.0], SourceMap([page]), PAGE)
    assert (found.page, found.label, found.text) == (12, "xii", 'r.pdf p. 12 (labelled "xii")')
