"""Titles of reStructuredText: any punctuation, levels by order of appearance."""

from __future__ import annotations

from kvcli.corpus.rst import cut_rst


def names(text: str) -> list[tuple[tuple[int, int] | None, str | None]]:
    return [(span.lines, span.name) for span in cut_rst(text)]


def test_levels_follow_the_order_of_appearance() -> None:
    text = "=====\nTitle\n=====\n\nPart\n====\nx\n\nSub\n~~~\ny\n\nPart 2\n======\n"
    assert names(text) == [
        ((1, 4), "Title"),
        ((5, 8), "Title > Part"),
        ((9, 12), "Title > Part > Sub"),
        ((13, 14), "Title > Part 2"),
    ]


def test_the_same_mark_with_and_without_an_overline_are_two_levels() -> None:
    text = "***\nOne\n***\n\nTwo\n***\n"
    assert [name for _, name in names(text)] == ["One", "One > Two"]


def test_an_overlined_title_may_be_set_in() -> None:
    assert names("=======\n Title\n=======\n") == [((1, 3), "Title")]


def test_what_is_no_title_is_not_cut_at() -> None:
    """Literal blocks, transitions, tables, paragraphs over a rule, and rules that are too short."""
    text = (
        "text::\n\n   Not one\n   =======\n\n-----\n\n"
        "=====  =====\na      b\n=====  =====\n\n"
        "two lines of\na paragraph\n-----------\n\n"
        "A long line\n--\n"
    )
    assert names(text) == [((1, 17), None)]


def test_line_ends_of_windows_are_kept() -> None:
    text = "Title\r\n=====\r\n\r\ntext\r\n"
    (span,) = cut_rst(text)
    assert (span.text, span.name) == (text, "Title")
