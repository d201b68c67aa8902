"""Outlines: which section names a page, and outlines that lie."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pypdf
from corpus_kit import pdf_bytes, write_pdf
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf.generic import NameObject

from kvcli.corpus.pdf import PdfText, read_pdf
from kvcli.corpus.pdf_outline import OutlineEntry, trails
from kvcli.corpus.source_map import TokenSpan


def trails_of(entries: Sequence[tuple[int, int, str]], num_pages: int = 6) -> dict[int, str]:
    return trails([OutlineEntry(*entry) for entry in entries], num_pages)


def test_pages_take_the_section_that_is_open() -> None:
    found = trails_of([(1, 0, "1 Aims"), (3, 0, "2 Methods"), (4, 1, "2.1 Data")])
    assert found == {
        1: "1 Aims",
        2: "1 Aims",
        3: "2 Methods",
        4: "2 Methods > 2.1 Data",
        5: "2 Methods > 2.1 Data",
    }


def test_a_page_of_several_sections_is_named_by_the_first_and_what_it_begins_with() -> None:
    entries = [(2, 0, "A"), (2, 1, "A.1"), (2, 1, "A.2"), (2, 0, "B")]
    assert trails_of(entries, 4) == {2: "A > A.1", 3: "B"}


def test_titles_become_one_short_line() -> None:
    found = trails_of(
        [(0, 0, "a\r\n\tb\x00\x1b[31m > c"), (1, 0, "long " * 100), (2, 0, " \n ")], 3
    )
    assert found[0] == "a b [31m › c"
    assert len(found[1]) <= 80
    assert found[2] == found[1]


def test_levels_left_out_and_pages_outside_do_no_harm() -> None:
    assert trails_of([(0, 3, "deep"), (9, 0, "nowhere"), (1, 0, "end")], 2) == {0: "deep", 1: "end"}


@given(st.lists(st.tuples(st.integers(-2, 9), st.integers(0, 20), st.text(max_size=4))))
@settings(deadline=None)
def test_any_outline_gives_printable_trails_of_real_pages(
    entries: list[tuple[int, int, str]],
) -> None:
    found = trails_of(entries)
    assert all(0 <= page < 6 and trail and trail.isprintable() for page, trail in found.items())


def outlined(path: Path, *, loop: bool = False) -> Path:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf_bytes(["cover", "aims", "methods", "data"])))
    writer.add_outline_item(title="1 Aims", page_number=1)
    methods = writer.add_outline_item(title="2 Methods", page_number=2)
    data = writer.add_outline_item(title="2.1 Data", page_number=3, parent=methods)
    if loop:
        entry = data.get_object()
        assert isinstance(entry, pypdf.generic.DictionaryObject)
        entry[NameObject("/First")] = methods
        entry[NameObject("/Next")] = data
    writer.write(path)
    return path


def test_spans_of_a_pdf_are_named_and_cited_by_page_alone(tmp_path: Path) -> None:
    found = read_pdf(str(outlined(tmp_path / "a.pdf")))
    assert isinstance(found, PdfText)
    assert [span.name for span in found.spans] == [
        None, "1 Aims", "2 Methods", "2 Methods > 2.1 Data",
    ]  # fmt: skip
    source = TokenSpan.of(found.spans[3], "report.pdf", 0, 5)
    assert source.cite() == "report.pdf p. 4"
    assert source.to_json()["name"] == "2 Methods > 2.1 Data"


def test_an_outline_that_loops_ends(tmp_path: Path) -> None:
    found = read_pdf(str(outlined(tmp_path / "a.pdf", loop=True)))
    assert isinstance(found, PdfText)
    assert [span.text for span in found.spans] == ["cover\n", "aims\n", "methods\n", "data\n"]
    assert found.spans[1].name == "1 Aims"


def test_without_an_outline_pages_have_no_name(tmp_path: Path) -> None:
    found = read_pdf(str(write_pdf(tmp_path / "a.pdf", ["a", "b"])))
    assert isinstance(found, PdfText)
    assert [span.name for span in found.spans] == [None, None]
