"""CSV as the text it is, and the header row that goes with every span."""

from __future__ import annotations

import time

import pytest

from kvcli.corpus.table import cut_table

ROWS = "".join(f"pier {i},{i},\n" for i in range(200))


def notes(text: str) -> set[str | None]:
    spans = cut_table(text)
    assert spans is not None
    assert "".join(span.text for span in spans) == text
    return {span.note for span in spans}


def test_every_span_of_a_long_table_knows_its_columns() -> None:
    spans = cut_table("name,year,remark\n" + ROWS)
    assert spans is not None
    assert len(spans) > 3
    assert {span.note for span in spans} == {"name,year,remark"}
    assert spans[1].lines == (61, 120)
    assert spans[1].text.startswith("pier 59,")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_found(separator: str) -> None:
    header = separator.join(("name", "length in m, about"))
    quoted = header.replace("length in m, about", '"length in m, about"')
    assert notes(f"{quoted}\n" + f"a{separator}1\n" * 9) == {quoted}


def test_decimal_commas_do_not_part_columns() -> None:
    assert notes("name;height\n" + "a;1,5\n" * 9) == {"name;height"}


def test_a_record_that_spans_lines_stays_whole() -> None:
    text = "a,b\n" + '1,"first\nsecond"\n' * 100
    spans = cut_table(text)
    assert spans is not None
    assert all(span.text.count('"') % 2 == 0 for span in spans)


@pytest.mark.parametrize("text", ["1,2\n3,4\n", "a,a\n1,2\n", "a,\n1,2\n", "2024-01-01,x\n1,2\n"])
def test_a_first_row_that_names_no_columns_is_no_header(text: str) -> None:
    assert notes(text) == {None}


def test_a_header_row_of_great_length_is_cut() -> None:
    (note,) = notes(",".join(f"column {i}" for i in range(500)) + "\n")
    assert note is not None
    assert note.endswith(" …")
    assert len(note) < 700


@pytest.mark.parametrize(
    "text", ["", "one column\nonly\n", 'a,b\n1,"never closed\n', "a,b\n" + "x" * 200_000 + ",1\n"]
)
def test_what_does_not_parse_is_left_to_the_reader_of_text(text: str) -> None:
    assert cut_table(text) is None


def test_quotes_that_never_close_take_no_time() -> None:
    """The standard library's guess of a dialect takes quadratic time for these."""
    started = time.monotonic()
    assert cut_table(',"' * 500_000 + "x") is None
    assert time.monotonic() - started < 5
