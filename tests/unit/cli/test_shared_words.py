"""Shared words and the probe: each finds what the other misses, and neither drowns the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcli.lexical import LexicalIndex, LexicalMatch
from kvcli.lookup import look_up

TEXTS = [
    "The harbour was built in 1907.",
    "Its gates weigh nine tonnes each.",
    "def remember_speed(device): ...",
    "The keeper paints the lamps every spring.",
    "Nothing more is known.",
    "",
]


def test_the_page_with_the_words_comes_first_and_its_neighbours_next() -> None:
    match = LexicalIndex(TEXTS).look_up("When are the lamps painted?")
    best = np.argsort(-match.scores, kind="stable")[:3].tolist()
    assert set(best) == {2, 3, 4}
    assert match.coverage == pytest.approx(1.0)


def test_identifiers_are_made_of_words() -> None:
    match = LexicalIndex(TEXTS).look_up("Where is rememberSpeed?")
    assert match.scores[2] > 0 and match.coverage > 0.99


def test_words_that_no_page_has_lower_the_coverage() -> None:
    index = LexicalIndex(TEXTS)
    whole = index.look_up("harbour gates").coverage
    assert index.look_up("harbour gates zeppelin").coverage < whole
    nothing = index.look_up("zeppelin")
    assert nothing.coverage == 0.0 and not nothing.scores.any()


@pytest.mark.parametrize("texts", [[], [""], ["...", "of the"]])
def test_texts_and_questions_without_words_match_nothing(texts: list[str]) -> None:
    index = LexicalIndex(texts)
    for question in ("", "?!", "harbour"):
        match = index.look_up(question)
        assert match.scores.shape == (len(texts),) and match.coverage == 0.0


def as_scores(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_the_probe_decides_when_hardly_a_word_is_shared() -> None:
    probed, words = as_scores(1.0, 9.0, 2.0), as_scores(8.0, 0.0, 0.0)
    assert np.argmax(look_up(probed, 0.5, LexicalMatch(words, 0.2, ())).scores) == 1
    assert np.argmax(look_up(probed, 0.5, LexicalMatch(words, 0.9, ())).scores) == 0


@given(
    st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=40),
    st.floats(0, 1),
    st.data(),
)
def test_scores_are_finite_and_bounded(
    probed: list[float], coverage: float, data: st.DataObject
) -> None:
    words = data.draw(
        st.lists(st.floats(0, 1e3, width=32), min_size=len(probed), max_size=len(probed))
    )
    found = look_up(as_scores(*probed), 0.5, LexicalMatch(as_scores(*words), coverage, ()))
    assert all(0.0 <= score <= 3.0 for score in found.scores)


@pytest.mark.parametrize(
    ("question", "unknown"),
    [
        ("Who built the Yarfjord bridge?", ("Yarfjord",)),
        ("Yarfjord?", ()),  # any sentence begins with a capital
        ("When was the Harbour built in 1907 or 1908?", ("1908",)),
        ("What does remember_speed do, and forget_speed_of?", ()),
        ("What does forget_zeal do?", ("forget_zeal",)),
        ("Who paints the lamps?", ()),
    ],
)
def test_names_that_occur_nowhere_are_noticed(question: str, unknown: tuple[str, ...]) -> None:
    assert LexicalIndex(TEXTS).look_up(question).unknown_names == unknown


def test_nothing_is_found_when_a_name_is_unknown_or_nothing_stands_out() -> None:
    scores = as_scores(1.0, 0.0)
    assert look_up(scores, 0.9, LexicalMatch(scores, 0.1, ())).is_found
    assert look_up(scores, 0.1, LexicalMatch(scores, 0.9, ())).is_found
    weak = look_up(scores, 0.1, LexicalMatch(scores, 0.1, ()))
    assert not weak.is_found and "stands out" in weak.doubt
    named = look_up(scores, 0.9, LexicalMatch(scores, 0.9, ("Yarfjord",)))
    assert not named.is_found and "Yarfjord" in named.doubt


def test_a_word_cut_by_a_page_border_is_known_on_both_pages() -> None:
    """Pages are cut by tokens: "Sildmere" lay on two of them, and was said to occur nowhere."""
    match = LexicalIndex(["x\n", "x\n", "letters of Sild", "mere society\n", "x\n", "x"]).look_up(
        "Where are the letters of the Sildmere society?"
    )
    assert match.unknown_names == ()
    assert match.scores[2] > 0 and match.scores[3] > 0 and match.coverage > 0.99
