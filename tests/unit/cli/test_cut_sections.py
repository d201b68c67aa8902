"""Where documents are cut into sections, and how a section is named."""

from __future__ import annotations

import pytest

from engine.errors import OverBudget
from kvcli.corpus.source_map import SourceMap, TokenSpan
from kvcli.sections import Section, cut_sections, section_at, section_tokens

PAGE = 16


def pdf(num_pages: int, tokens: int = 64, path: str = "report.pdf", first: int = 0) -> SourceMap:
    spans = [TokenSpan(first + i * tokens, tokens, path, page=i + 1) for i in range(num_pages)]
    return SourceMap(spans)


def cut(source_map: SourceMap, most_tokens: int) -> list[Section]:
    end = source_map.spans[-1].end_token if source_map.spans else 0
    return cut_sections(source_map, end, PAGE, most_tokens)


def test_pages_of_a_pdf_stay_whole() -> None:
    sections = cut(pdf(10), 256)
    assert [section.reference for section in sections] == [
        "report.pdf p. 1-3",
        "report.pdf p. 4-6",
        "report.pdf p. 7-10",
    ]


def test_what_fits_is_one_section() -> None:
    (section,) = cut(pdf(4), 256)
    assert (section.first_token, section.end_token) == (0, 256)
    assert section.reference == "report.pdf p. 1-4"


def test_no_documents_have_no_sections() -> None:
    assert cut(SourceMap(), 256) == []


def test_a_document_begins_a_section_where_it_can() -> None:
    """The border of the files is not in the middle, but between them."""
    spans = [TokenSpan(i * 64, 64, "a.py", lines=(i + 1, i + 1)) for i in range(2)]
    spans += [TokenSpan(128 + i * 64, 64, "b.py", lines=(i + 1, i + 1)) for i in range(4)]
    assert [section.reference for section in cut(SourceMap(spans), 320)] == ["a.py:1-2", "b.py:1-4"]


def test_small_files_share_a_section() -> None:
    spans = [TokenSpan(i * 32, 32, f"{i}.py", lines=(1, 9)) for i in range(16)]
    assert [section.reference for section in cut(SourceMap(spans), 256)] == [
        "0.py:1-9 … 7.py:1-9 (8 files)",
        "8.py:1-9 … 15.py:1-9 (8 files)",
    ]


def test_two_files_are_both_named() -> None:
    spans = [TokenSpan(0, 64, "a.py", lines=(1, 5)), TokenSpan(64, 64, "b.py", lines=(1, 7))]
    (section,) = cut(SourceMap(spans), 256)
    assert section.reference == "a.py:1-5 … b.py:1-7"


def test_a_span_longer_than_a_section_is_cut_anywhere() -> None:
    sections = cut(SourceMap([TokenSpan(0, 700, "a.txt", lines=(1, 1))]), 256)
    assert [section.num_tokens for section in sections] == [256, 256, 188]
    assert {section.reference for section in sections} == {"a.txt:1"}


def test_less_than_a_page_of_a_neighbour_is_not_named() -> None:
    """Borders stand at pages, so a few tokens of page 1 lie in the second section."""
    spans = [TokenSpan(i * 60, 60, "r.pdf", page=i + 1) for i in range(4)]
    assert section_at(SourceMap(spans), 48, 128, PAGE).reference == "r.pdf p. 2"


def test_a_small_file_is_named_all_the_same() -> None:
    spans = [TokenSpan(0, 5, "a.py", lines=(1, 1)), TokenSpan(5, 6, "b.py", lines=(1, 1))]
    assert section_at(SourceMap(spans), 0, 16, PAGE).reference == "a.py:1 … b.py:1"


def test_cells_of_a_notebook_are_named_only_alone() -> None:
    cells = [TokenSpan(i * 16, 16, "n.ipynb", lines=(1, 3), name=f"cell {i}") for i in range(3)]
    assert section_at(SourceMap(cells), 0, 48, PAGE).reference == "n.ipynb"
    assert section_at(SourceMap(cells), 16, 32, PAGE).reference == "n.ipynb cell 1:1-3"


def test_a_citation_names_the_first_source_and_shows_the_range() -> None:
    section = cut(pdf(4), 256)[0]
    citation = section.citation(0.5)
    assert (citation.path, citation.page, citation.weight) == ("report.pdf", 1, 0.5)
    assert citation.text == "report.pdf p. 1-4"


def test_lines_of_a_citation_reach_from_the_first_to_the_last() -> None:
    spans = [TokenSpan(i * 64, 64, "a.py", lines=(i * 10 + 1, i * 10 + 10)) for i in range(3)]
    assert cut(SourceMap(spans), 256)[0].citation(1.0).lines == (1, 30)


@pytest.mark.parametrize(
    ("window", "page_tokens", "most"), [(8192, 64, 3072), (2048, 64, 1024), (300, 16, 144)]
)
def test_a_section_takes_half_of_a_small_window(window: int, page_tokens: int, most: int) -> None:
    assert section_tokens(window, page_tokens) == most


def test_a_window_without_room_for_two_pages_is_refused() -> None:
    with pytest.raises(OverBudget, match="window of 200 leaves no room"):
        section_tokens(200, 64)
