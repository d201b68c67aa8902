"""Columns and tables: by boxes alone, and in PDFs drawn row by row."""

from __future__ import annotations

import io
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reportlab.pdfgen import canvas

from kvcli.corpus.pdf import PdfText, read_pdf
from kvcli.corpus.pdf_layout import BROKEN, Line, Word, lay_out

LEFT = [
    "The bridge at Orrin was built",
    "before anyone had measured how",
    "fast the river ran in spring,",
    "so the first two piers were set",
    "too close to the northern bank",
    "and had to be moved a year later,",
    "when the water was low enough.",
]
RIGHT = [
    "Of the engineers only one had",
    "seen such ice before, and she",
    "warned the council that no pier",
    "of that width would stand, but",
    "nobody wanted to hear of a delay",
    "which would have cost them more",
    "than the whole of the timber.",
]
THIRD = [
    "In the end it was a fire that",
    "decided the matter, since the",
    "old warehouse with all plans",
    "in it burnt down and the work",
    "was begun again from nothing by",
    "people who knew the ice well",
    "and were in no hurry at all.",
]
TABLE = [
    "Year      Length     Cost      Built by",
    "1901      120 m      12,000    Ada Stone",
    "1902      130 m      13,500    Bo Lind",
    "1903      140 m       9,900    Cy Marsh",
]
ALIGNED = [
    "Year  Length  Cost    Built by",
    "1901  120 m   12,000  Ada Stone",
    "1902  130 m   13,500  Bo Lind",
    "1903  140 m   9,900   Cy Marsh",
]


def lines_of(rows: list[str]) -> list[Line]:
    """Letters are 5 wide and lines 10 high: two spaces are a wide gap, one is none."""
    return [
        Line(
            tuple(
                Word(found[0], 5.0 * found.start(), 5.0 * found.end())
                for found in re.finditer(r"\S+", row)
            ),
            10.0,
            " ".join(row.split()),
        )
        for row in rows
    ]


def laid_out(rows: list[str]) -> list[str] | None:
    text = lay_out(lines_of(rows))
    return None if text is None else text.rstrip("\n").split("\n")


def side_by_side(*columns: list[str]) -> list[str]:
    return ["".join(f"{cell:<40}" for cell in row) for row in zip(*columns, strict=True)]


def test_two_columns_drawn_row_by_row_are_read_one_after_the_other() -> None:
    assert laid_out(side_by_side(LEFT, RIGHT)) == [*LEFT, *RIGHT]


def test_three_columns() -> None:
    assert laid_out(side_by_side(LEFT, RIGHT, THIRD)) == [*LEFT, *RIGHT, *THIRD]


def test_columns_whose_lines_do_not_stand_level() -> None:
    rows = [
        row for left, right in zip(LEFT, RIGHT, strict=True) for row in (left, " " * 40 + right)
    ]
    assert laid_out(rows) == [*LEFT, *RIGHT]


def test_a_title_and_a_table_over_the_whole_width_keep_their_places() -> None:
    title = "A title that is much wider than either of the columns below it, as titles are"
    rows = [title, *side_by_side(LEFT, RIGHT), *TABLE, *side_by_side(THIRD, LEFT)]
    assert laid_out(rows) == [title, *LEFT, *RIGHT, *ALIGNED, *THIRD, *LEFT]


def test_a_column_that_ends_earlier() -> None:
    rows = side_by_side(LEFT, [*RIGHT[:5], "", ""])
    assert laid_out(rows) == [*LEFT, *RIGHT[:5]]


def test_a_word_broken_at_the_end_of_a_column_line_is_marked_for_joining() -> None:
    left = [*LEFT[:3], "of the first two pieces infor-", "mation came by the last boat", *LEFT[5:]]
    text = lay_out(lines_of(side_by_side(left, RIGHT)))
    assert text is not None
    assert f"pieces infor{BROKEN}mation came" in text


def test_columns_drawn_one_after_the_other_are_left_as_they_are() -> None:
    assert laid_out([*LEFT, *(" " * 40 + line for line in RIGHT)]) is None


def test_prose_is_left_as_it_is() -> None:
    assert laid_out([*LEFT, *RIGHT]) is None


def test_a_table_is_aligned_and_empty_cells_keep_their_column() -> None:
    rows = [
        "Station    Depth    Note",
        "North      12       sand",
        "East                clay",
        "West       9",
    ]
    assert laid_out(["Depths:", *rows, "Measured in 1903."]) == [
        "Depths:",
        "Station  Depth  Note",
        "North    12     sand",
        "East            clay",
        "West     9",
        "Measured in 1903.",
    ]  # fmt: skip


def test_a_list_of_terms_stays_row_by_row_with_its_wrapped_lines() -> None:
    rows = [
        "data        an object that holds one row for each",
        "            station, in the order of the visits",
        "depth       the depth in metres, measured from the",
        "            lowest tide of the year",
        "simplify    logical: whether rows are joined",
        "Details",
    ]
    aligned = [re.sub(r"^(\S*) {4,}|^ {12}", lambda m: f"{m[1] or '':<10}", row) for row in rows]
    assert laid_out(rows) == aligned


def test_a_table_of_long_phrases_is_no_column_of_prose() -> None:
    cells = {
        "Length of the northern span": "One hundred and twenty metres",
        "Height above the low water": "Between nine and eleven metres",
        "Year of the last repairs": "The spring after the fire",
        "Name of the engineer in charge": "Ada Stone of Lower Orrin",
        "Cost of all of the timber": "Not known to this day, alas",
    }
    rows = side_by_side(list(cells), list(cells.values()))
    found = laid_out(rows)
    assert found is not None
    assert [" ".join(row.split()) for row in found] == [" ".join(row.split()) for row in rows]


def test_a_list_of_functions_in_small_letters_is_no_column_of_prose() -> None:
    """A reference card: terms of three words, explained by a few words each."""
    terms = ["colormap (map)", "gray2ind (i, n)", "image (img, zoom)", "imread (file)",
             "imshow (img, map)", "imshow (i, n)", "imshow (r, g, b)",
             "ind2rgb (img, map)"]  # fmt: skip
    told = ["set the current colormap", "convert grey scale to indexed image",
            "display an image matrix", "load an image file", "display the image",
            "display grey scale image", "display image in three colours",
            "convert indexed image to colours"]  # fmt: skip
    assert laid_out(side_by_side(terms, told)) == [
        f"{term:<18}  {what}" for term, what in zip(terms, told, strict=True)
    ]


@pytest.mark.parametrize("rows", [TABLE[:2], ["callCC          69", *LEFT], [*LEFT[:3], "a     b"]])
def test_two_rows_are_no_table(rows: list[str]) -> None:
    assert laid_out(rows) is None


def test_a_page_of_countless_lines_is_left_as_it_is() -> None:
    assert laid_out(["a   b   c"] * 20_000) is None


_ROWS = st.lists(
    st.lists(
        st.sampled_from(["a", "the", "Word", " " * 4, " " * 17, "x-", f"br{BROKEN}"]), min_size=1
    ),
    max_size=14,
).map(lambda rows: [row for words in rows if (row := " ".join(words)).strip()])


@given(_ROWS)
@settings(deadline=None)
def test_no_word_is_lost_or_invented(rows: list[str]) -> None:
    text = lay_out(lines_of(rows))
    marked = "\n".join(rows) if text is None else text

    def letters(told: str) -> Counter[str]:
        return Counter(told.replace(BROKEN, "").replace("-", "").replace("\n", "").replace(" ", ""))

    assert letters(marked) == letters("".join(rows))


def draw(path: Path, columns: list[list[str]], *, drop: float = 0.0, table: bool = False) -> Path:
    """Columns drawn row by row, each a little lower than the one before it."""
    buffer = io.BytesIO()
    sheet = canvas.Canvas(buffer)
    width = 500 / len(columns)
    for row, cells in enumerate(zip(*columns, strict=True)):
        sheet.setFont("Helvetica", 30 / len(columns) if len(columns) > 2 else 10)
        for column, cell in enumerate(cells):
            sheet.drawString(50 + column * width, 760 - 14 * row - drop * column, cell)
    for row, line in enumerate(TABLE if table else []):
        for column, cell in enumerate(re.split(r" {2,}", line)):
            sheet.drawString(50 + 120 * column, 600 - 14 * row, cell)
    sheet.showPage()
    sheet.save()
    path.write_bytes(buffer.getvalue())
    return path


@pytest.mark.parametrize("drop", [0.0, 5.0])
@pytest.mark.parametrize("columns", [[LEFT, RIGHT], [LEFT, RIGHT, THIRD]], ids=["two", "three"])
def test_columns_of_a_pdf(tmp_path: Path, columns: list[list[str]], drop: float) -> None:
    """The library gives them interleaved, or as one long line where they do not stand level."""
    found = read_pdf(str(draw(tmp_path / "a.pdf", columns, drop=drop)))
    assert isinstance(found, PdfText)
    assert found.spans[0].text == "\n".join(line for column in columns for line in column) + "\n"


def test_a_table_between_columns_of_a_pdf(tmp_path: Path) -> None:
    found = read_pdf(str(draw(tmp_path / "a.pdf", [LEFT, RIGHT], table=True)))
    assert isinstance(found, PdfText)
    assert found.spans[0].text == "\n".join([*LEFT, *RIGHT, *ALIGNED]) + "\n"


def test_a_page_made_to_be_slow_is_not() -> None:
    """Twelve columns of prose on as many lines as are looked at at all."""
    rows = [("the old man saw" + " " * 3 + "gulls and the sea") * 6] * 250
    started = time.process_time()
    lay_out(lines_of(rows))
    assert time.process_time() - started < 10
