"""Running headers and footers: what counts as one, and that nothing else is ever taken out."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_kit import write_pdf
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcli.corpus.pdf import PdfText, read_pdf
from kvcli.corpus.running_lines import Cleared, clear_running_lines


def body(page: int) -> str:
    readings = f"On day {page * 7} the team wrote down {page * page} readings."
    return f"{readings}\nThe boat met {page * 31 % 97} gulls."


def clear(pages: list[str]) -> Cleared:
    return clear_running_lines(dict(enumerate(pages)))


def test_a_repeated_header_stays_on_the_first_page_alone() -> None:
    cleared = clear([f"Annual report 2023\n{body(page)}" for page in range(10)])
    assert cleared.texts[0].startswith("Annual report 2023\n")
    assert [cleared.texts[page] for page in range(1, 10)] == [body(page) for page in range(1, 10)]
    assert (cleared.num_lines, cleared.num_pages) == (9, 9)


@pytest.mark.parametrize("form", ["{}", "- {} -", "Page {}", "Page {} of 20", "20 / {}", "p. {}"])
def test_page_numbers_at_the_foot_are_running_lines(form: str) -> None:
    pages = [f"{body(page)}\n{form.format(page + 3)}" for page in range(12)]
    cleared = clear(pages)
    assert cleared.texts[0] == pages[0]
    assert [cleared.texts[page] for page in range(1, 12)] == [body(page) for page in range(1, 12)]
    assert cleared.printed[5] == "8"


def test_roman_numbers_of_the_front_matter_count() -> None:
    numerals = ["iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi"]
    cleared = clear([f"{body(page)}\n{number}" for page, number in enumerate(numerals)])
    assert cleared.num_lines == 8
    assert list(cleared.printed.values()) == numerals


def test_left_and_right_pages_alternate() -> None:
    pages = [
        f"{page} The bridge\n{body(page)}" if page % 2 else f"Part one {page}\n{body(page)}"
        for page in range(2, 14)
    ]
    cleared = clear(pages)
    assert cleared.texts[0].startswith("Part one 2\n")
    assert cleared.texts[1].startswith("3 The bridge\n")
    assert all(cleared.texts[page] == body(page + 2) for page in range(2, 12))


def test_each_title_of_a_changing_header_is_kept_where_it_first_comes() -> None:
    titles = ["Sand", "Sand", "Sand", "Clay", "Silt", "Silt", "Rock", "Rock"]
    pages = [f"{title} {page + 40}\n{body(page)}" for page, title in enumerate(titles)]
    cleared = clear(pages)
    kept = [page for page in range(8) if cleared.texts[page] == pages[page]]
    assert kept == [0, 3, 4, 6]


def test_header_and_footer_of_several_lines() -> None:
    pages = [f"ACME\nInternal use only\n{body(page)}\nwww.acme.example" for page in range(9)]
    cleared = clear(pages)
    assert cleared.texts[8] == body(8)
    assert cleared.num_lines == 24


def test_facts_that_differ_from_page_to_page_stay() -> None:
    """Facts stamped below the page number, as the benchmarks do; no two pages say the same."""
    facts = [
        f"The lamp of house {page * 13 % 89} costs {page * 37 + 11} marks." for page in range(9)
    ]
    cleared = clear([f"{body(page)}\n{page + 1}\n{fact}" for page, fact in enumerate(facts)])
    assert all(fact in cleared.texts[page] for page, fact in enumerate(facts))


def test_a_fact_between_running_lines_stays() -> None:
    pages = [f"Survey of wells\n{body(page)}\n{page + 1}" for page in range(9)]
    pages[4] = f"Survey of wells\n{body(4)}\nThe deepest well has 88 m.\n5"
    assert clear(pages).texts[4] == f"{body(4)}\nThe deepest well has 88 m."


@pytest.mark.parametrize(
    "pages",
    [
        ["Same head\n" + body(0), "Same head\n" + body(1)],
        [f"{'Warning' if page % 9 == 0 else page * 5}\n{body(page)}" for page in range(20)],
        [f"{body(page)}\n}}" for page in range(9)],
        [f"{body(page)}\n0" for page in range(9)],
        [f"Sales of {1990 + page}\n{body(page)}" for page in range(9)],
        [f"{body(page)}\nTotal {page * page + 3}" for page in range(9)],
    ],
    ids=["two pages", "far apart", "code", "a cell", "years", "totals"],
)  # fmt: skip
def test_weak_evidence_leaves_everything(pages: list[str]) -> None:
    cleared = clear(pages)
    assert list(cleared.texts.values()) == pages
    assert cleared.num_lines == 0


def test_repeated_lines_further_in_stay() -> None:
    """The head of a table under a running header, on a part of the pages only."""
    pages = [
        f"Price list {page}\n" + ("Item Price\n" if 8 <= page < 16 else "") + body(page)
        for page in range(30)
    ]
    assert all("Item Price" in clear(pages).texts[page] for page in range(8, 16))


def test_a_page_of_nothing_but_running_lines_keeps_them() -> None:
    pages = [f"Atlas\n{body(page)}" for page in range(9)]
    pages[5] = "Atlas"
    assert clear(pages).texts[5] == "Atlas"


def test_missing_pages_do_not_shift_the_numbers() -> None:
    pages = {page: f"{body(page)}\n{page + 1}" for page in range(14) if page not in (3, 6)}
    cleared = clear_running_lines(pages)
    assert cleared.texts[7] == body(7)
    assert cleared.num_lines == 11


_LINES = st.lists(
    st.sampled_from(["Head", "Head 1", "1", "2", "3", "", "some text", "ii"]), max_size=5
)


@settings(deadline=None)
@given(st.lists(_LINES.map("\n".join), max_size=12))
def test_every_line_stays_somewhere(pages: list[str]) -> None:
    cleared = clear(pages)
    before = {line for page in pages for line in page.split("\n") if any(map(str.isalpha, line))}
    words = {word for page in cleared.texts.values() for word in page.split() if word.isalpha()}
    assert {word for line in before for word in line.split() if word.isalpha()} - {"ii"} <= words
    assert [bool(page.strip()) for page in pages] == [
        bool(page.strip()) for page in cleared.texts.values()
    ]


def test_a_pdf_says_what_was_left_out_and_takes_the_printed_number_as_label(tmp_path: Path) -> None:
    pages = [f"Tide tables {page + 5}\n{body(page)}" for page in range(6)]
    found = read_pdf(str(write_pdf(tmp_path / "a.pdf", pages)))
    assert isinstance(found, PdfText)
    assert [span.text for span in found.spans][1:] == [body(page) + "\n" for page in range(1, 6)]
    assert [span.label for span in found.spans] == ["5", "6", "7", "8", "9", "10"]
    assert found.warnings == ()
    assert found.notes == (
        "5 running headers and footers left out of 5 pages; each stays where it first comes",
    )
