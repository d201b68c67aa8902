"""Lines, paragraphs and headings."""

from __future__ import annotations

import time

import pytest

from kvcli.corpus.text import cut_markdown, cut_text, split_lines


def test_lines_are_cut_at_line_feeds_alone() -> None:
    assert split_lines("a\r\nb\x0cc\u2028d\n\ne") == ["a\r\n", "b\x0cc\u2028d\n", "\n", "e"]


def test_a_file_of_carriage_returns_has_lines_too() -> None:
    assert split_lines("a\rb\rc") == ["a\r", "b\r", "c"]


def test_text_is_cut_between_paragraphs() -> None:
    text = ("word " * 5 + "\n") * 45 + "\n" + "next\n" * 30
    spans = cut_text(text)
    assert [span.lines for span in spans] == [(1, 46), (47, 76)]


def test_a_long_paragraph_is_cut_by_size() -> None:
    spans = cut_text("x" * 99 + "\n" + ("y" * 99 + "\n") * 200)
    assert all(len(span.text) <= 4_000 for span in spans)
    assert spans[0].lines == (1, 40)


def test_a_single_long_line_stays_whole() -> None:
    long = "x" * 9_000
    spans = cut_text(f"a\n{long}\nb\n")
    assert [len(span.text) for span in spans] == [2, 9_001, 2]


def test_markdown_is_cut_at_headings_and_named_by_them() -> None:
    text = "intro\n# Use\ntext\n## Linux\nmore\n## Mac ##\nm\n# End\n"
    named = [(span.lines, span.name) for span in cut_markdown(text)]
    assert named == [
        ((1, 1), None),
        ((2, 3), "Use"),
        ((4, 5), "Use > Linux"),
        ((6, 7), "Use > Mac"),
        ((8, 8), "End"),
    ]


def test_underlined_headings_count() -> None:
    names = [span.name for span in cut_markdown("Title\n=====\n\ntext\n\nPart\n----\nx\n")]
    assert names == ["Title", "Title > Part"]


def test_hashes_in_fenced_code_are_no_headings() -> None:
    text = "# A\n```sh\n# not one\n```\n~~~~\n# nor this\n~~~\n# still not\n~~~~\n# B\n"
    assert [span.name for span in cut_markdown(text)] == ["A", "B"]


def test_front_matter_and_rules_are_no_headings() -> None:
    text = "---\ntitle: x\nauthor: y\n---\ntext\n\n---\n\nmore\n"
    assert [span.name for span in cut_markdown(text)] == [None]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("#", None),
        ("#\t Use \t##  \r", "Use"),
        ("# C#", "C#"),
        ("# C #", "C"),
        ("# a # b ##", "a # b"),
        ("## ##", None),
        ("####### seven", None),
        ("#no", None),
        ("    # code", None),
    ],
)
def test_what_a_heading_is_called(line: str, name: str | None) -> None:
    (span,) = cut_markdown(line + "\n")
    assert span.name == name


@pytest.mark.parametrize("gap", [" ", "\t", " #", "# "])
def test_a_heading_of_many_blanks_costs_no_more_than_another_line(gap: str) -> None:
    """Blanks before what may be closing hashes were once tried from each of them on."""
    started = time.monotonic()
    assert len(cut_markdown(f"# a{gap * 5_000}b\n")) == 1
    assert time.monotonic() - started < 1


def test_long_headings_do_not_multiply() -> None:
    """Every span below a heading carries its name, and there may be very many of them."""
    spans = cut_markdown(f"# {'x' * 9_000}\n" + "## y\n" * 1_000)
    assert sum(len(span.name or "") for span in spans) < 100_000
    assert spans[0].name == "x" * 79 + "…"
    assert spans[1].name == "x" * 79 + "… > y"
