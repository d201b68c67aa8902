"""Which pages are read again, how they are laid out, and when focus is chosen."""

from __future__ import annotations

import pytest
from tiny_models import tiny_tokenizer

from engine.errors import OverBudget
from kvcli.citations import BEST_PAGES
from kvcli.corpus.source_map import SourceMap, TokenSpan
from kvcli.documents import Room
from kvcli.focus_pages import choose_pages, reading_ids
from kvcli.mode import Mode, Work, choose_mode
from kvcli.options import RunOptions
from kvcli.prompts import Prompt, PromptBuilder
from kvcli.sections import SECTION_TOKENS


def test_best_pages_come_with_their_neighbours_and_the_best_is_read_last() -> None:
    scores = [0.0] * 30
    scores[5], scores[20], scores[22] = 3.0, 2.0, 1.0
    pages = choose_pages(scores, most_pages=8)
    assert pages.anchors == (5, 20, 22)
    assert pages.runs == ((19, 24), (4, 7))


def test_pages_far_below_the_best_are_left_out() -> None:
    scores = [0.0, 9.0, 0.0, 0.0, 7.0, 0.0, 0.0, 6.0, 0.0]
    assert choose_pages(scores, 99, share=0.7).anchors == (1, 4)
    assert choose_pages(scores, 99, share=0.7, most_anchors=1).anchors == (1,)
    assert choose_pages([0.0, 0.0], 99, share=0.7).anchors == (0,)


def test_the_budget_of_pages_is_never_exceeded() -> None:
    scores = [float(page % 7) for page in range(100)]
    for most in (3, 5, 10, 100):
        pages = choose_pages(scores, most)
        taken = sum(end - first for first, end in pages.runs)
        assert 3 <= taken <= most and len(pages.anchors) <= BEST_PAGES


def test_the_first_and_last_page_have_one_neighbour() -> None:
    assert choose_pages([5.0, 0.0, 0.0, 0.0, 4.0], 10).runs == ((3, 5), (0, 2))


def test_excerpts_stand_under_the_names_of_their_documents() -> None:
    builder = PromptBuilder(tiny_tokenizer(), "tiny")
    (one,) = builder.encode_content(["alpha " * 10])
    (two,) = builder.encode_content(["omega " * 10])
    spans = [TokenSpan(0, len(one), "a.py"), TokenSpan(len(one), len(two), "b.pdf", page=3)]
    pages = choose_pages([1.0] * ((len(one) + len(two)) // 16), 99)
    ids = reading_ids(builder, one + two, SourceMap(spans), pages, 16)
    text = builder.backend.decode(ids, skip_special_tokens=False)
    assert text.index('path="a.py"') < text.index("alpha") < text.index('path="b.pdf"')
    assert text.index("[page 3]") < text.index("omega")
    assert text.count("</document>") == 2


def test_an_excerpt_of_a_table_begins_with_its_columns() -> None:
    """The row that a page holds means nothing without the header far above it."""
    builder = PromptBuilder(tiny_tokenizer(), "tiny")
    (rows,) = builder.encode_content(["7,1990\n" * 40])
    sources = SourceMap([TokenSpan(0, len(rows), "a.csv", note="pier,year")])
    pages = choose_pages([0.0, 0.0, 0.0, 0.0, 1.0, *[0.0] * (len(rows) // 16 - 5)], 99)
    ids = reading_ids(builder, rows, sources, pages, 16)
    text = builder.backend.decode(ids, skip_special_tokens=False)
    assert '<document path="a.csv">\n[columns: pier,year]\n' in text


def prompt(num_tokens: int) -> Prompt:
    return Prompt([5] * num_tokens, SourceMap([TokenSpan(0, num_tokens, "a.txt")]))


def test_exact_inside_the_window_focus_beyond() -> None:
    room = Room(10, 50)
    assert choose_mode(RunOptions(), prompt(900), room, 1000) is Mode.EXACT
    assert choose_mode(RunOptions(), prompt(950), room, 1000) is Mode.FOCUS


def test_what_was_asked_for_wins() -> None:
    focus, exact = RunOptions(attention="focus"), RunOptions(attention="exact")
    assert choose_mode(focus, prompt(10), Room(10, 50), 1000) is Mode.FOCUS
    with pytest.raises(OverBudget, match="950 tokens of documents"):
        choose_mode(exact, prompt(950), Room(10, 50), 1000)


def test_work_by_sections_has_room_beside_documents_that_fit() -> None:
    assert Mode.EXACT.fork_tokens(50, Work.SUMMARY) < 200
    for mode, work in ((Mode.EXACT, Work.SECTIONS), (Mode.FOCUS, Work.QUESTIONS)):
        assert mode.fork_tokens(50, work) > SECTION_TOKENS + 200
