"""Lines that count as answers, and lines that do not."""

from __future__ import annotations

import pytest

from kvcli.worth import is_worth_something, says_none

READ = "The workboat Kittiwake lay at pier 11. It was painted in 1,720 strokes by Ruth Hallam."


@pytest.mark.parametrize(
    "line",
    [
        "",
        "none",
        '"None."',
        "The text does not answer the question.",
        "The text above doesn't explicitly mention a boat.",
        "It is not mentioned in the text.",
        "There is no information about it.",
    ],
)
def test_lines_that_say_that_there_is_no_answer(line: str) -> None:
    assert says_none(line)
    assert not is_worth_something(line, "What is its name?", READ)


@pytest.mark.parametrize(
    "line", ["Nonetheless it is 4 m.", "Ruth Hallam", "The bearing does not move.", "No. 7"]
)
def test_lines_that_say_something(line: str) -> None:
    assert not says_none(line)


def test_a_line_that_only_repeats_the_question_is_worth_nothing() -> None:
    assert not is_worth_something("The cable is slack.", "Which cable is slack?", READ)
    assert is_worth_something("The cable is slack and worn.", "Which cable is slack?", READ)


def test_names_and_numbers_must_have_been_read() -> None:
    for line in ("The boat is the Singapore.", "42", "It had 1,721 strokes."):
        assert not is_worth_something(line, "What is the name of the boat?", READ), line
    for line in ("The boat is the Kittiwake.", "11", "It had 1,720 strokes.", "It lay at Pier 11."):
        assert is_worth_something(line, "What is the name of the boat?", READ), line


def test_names_of_the_question_prove_nothing() -> None:
    assert not is_worth_something("It is Anna of Oslo.", "Who is Ruth Hallam?", READ)
    assert not is_worth_something("Ruth Hallam is Anna.", "Who is Ruth Hallam?", READ)


def test_one_word_is_an_answer() -> None:
    assert is_worth_something("Yes", "Is it old?", READ)
