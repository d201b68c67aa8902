"""Spans of reStructuredText and CSV cover a file exactly once, with the line numbers of `nl`."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_spans import TEXTS, check

from kvcli.corpus.rst import cut_rst
from kvcli.corpus.table import cut_table

FIELDS = ["a", "1,5", '"x"', '"x\ny"', '"', ",", ";", "\t", "|", "\n", "\r\n", "\r", "é", "\x00"]
TABLES = st.lists(st.sampled_from(FIELDS), max_size=60).map("".join)
TITLES = st.lists(
    st.sampled_from(
        ["Title\n", "=====\n", " Set in\n", "---\n", "*****\r\n", "\n", "x" * 50, "é\n"]
    ),
    max_size=40,
).map("".join)


@given(st.one_of(TEXTS, TITLES))
@settings(deadline=None, max_examples=150)
@example("====\nA\n====")
def test_rst(text: str) -> None:
    check(cut_rst(text), text)


@given(st.one_of(TEXTS, TABLES))
@settings(deadline=None, max_examples=200)
@example('a,b\n1,"x\ny"\n' * 90)
@example("\n\na,b\n")
def test_tables(text: str) -> None:
    spans = cut_table(text)
    if spans is not None:
        check(spans, text)
