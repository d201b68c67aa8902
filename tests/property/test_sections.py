"""However documents are cut: sections cover them once, in order, and none is too long."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kvcli.corpus.source_map import SourceMap, TokenSpan
from kvcli.sections import cut_sections

PAGE = 16

documents = st.lists(st.lists(st.integers(1, 400), min_size=1, max_size=6), min_size=0, max_size=12)
gaps = st.integers(0, 30)


def laid_out(sizes: list[list[int]], gap: int) -> tuple[SourceMap, int]:
    """Documents of spans of these sizes, with scaffolding between documents."""
    spans, end = [], gap
    for number, of_document in enumerate(sizes):
        for index, size in enumerate(of_document):
            spans.append(TokenSpan(end, size, f"{number}.txt", lines=(index + 1, index + 1)))
            end += size
        end += gap
    return SourceMap(spans), end


@given(documents, gaps, st.integers(2, 20))
def test_sections_cover_the_documents_exactly_once(
    sizes: list[list[int]], gap: int, most_pages: int
) -> None:
    source_map, num_tokens = laid_out(sizes, gap)
    most = most_pages * PAGE
    sections = cut_sections(source_map, num_tokens, PAGE, most)
    borders = [section.first_token for section in sections]
    assert bool(sections) == (num_tokens > 0)
    assert not sections or sections[0].first_token == 0
    assert all(a.end_token == b.first_token for a, b in pairwise(sections))
    assert not sections or sections[-1].end_token == num_tokens
    assert all(0 < section.num_tokens <= most for section in sections)
    assert all(border % PAGE == 0 for border in borders)


@given(documents, gaps, st.integers(2, 20))
def test_no_section_is_without_reason_short(
    sizes: list[list[int]], gap: int, most_pages: int
) -> None:
    """Only the last may hold less than a quarter of what a section can."""
    source_map, num_tokens = laid_out(sizes, gap)
    most = most_pages * PAGE
    sections = cut_sections(source_map, num_tokens, PAGE, most)
    assert all(section.num_tokens >= most // 4 for section in sections[:-1])


@given(documents.filter(bool), gaps, st.integers(2, 20))
def test_every_reference_names_a_document_of_its_section(
    sizes: list[list[int]], gap: int, most_pages: int
) -> None:
    source_map, num_tokens = laid_out(sizes, gap)
    for section in cut_sections(source_map, num_tokens, PAGE, most_pages * PAGE):
        spans = source_map.overlapping(section.first_token, section.num_tokens)
        assert not spans or section.source.path in {span.path for span in spans}
        assert section.reference.startswith(section.source.path)
