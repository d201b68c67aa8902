"""How notes are grouped, and that rounds end."""

from __future__ import annotations

from kvcli.rounds import group, in_rounds
from kvcli.summary import whole_sentences


def lengths(notes: list[str] | tuple[str, ...]) -> list[int]:
    return [len(note) for note in notes]


def test_neighbours_share_a_group_while_they_fit() -> None:
    assert group(["aa", "bb", "c", "dddd"], [2, 2, 1, 4], 5) == [["aa", "bb", "c"], ["dddd"]]
    assert group([], [], 5) == []


def test_a_group_holds_two_even_if_they_do_not_fit() -> None:
    assert group(["a", "b", "c"], [9, 9, 9], 5) == [["a", "b"], ["c"]]


def test_what_can_be_read_at_once_is_not_merged() -> None:
    notes = ["aa", "bb"]
    merged = in_rounds(notes, 4, lambda n: lengths(list(n)), lambda _: "x", lambda _: None)
    assert merged == notes


def test_rounds_go_on_until_one_group_is_left_and_keep_the_order() -> None:
    said: list[str] = []
    notes = [str(number) * 4 for number in range(8)]
    merged = in_rounds(
        notes, 8, lambda n: lengths(list(n)), lambda g: g[0][:2] + g[-1][:2], said.append
    )
    assert merged == ["0022", "4466"]
    assert said == ["round 1: 8 notes to 4", "round 2: 4 notes to 2"]


def test_rounds_end_however_long_the_notes_are() -> None:
    notes = ["long"] * 9
    merged = in_rounds(notes, 1, lambda n: lengths(list(n)), lambda _: "long", lambda _: None)
    assert len(merged) == 2


def test_groups_with_nothing_in_them_are_left_out() -> None:
    notes = ["none", "none", "some", "some"]
    merged = in_rounds(
        notes,
        8,
        lambda n: lengths(list(n)),
        lambda g: None if g[0] == "none" else g[0],
        lambda _: None,
    )
    assert merged == ["some"]


def test_a_sentence_that_was_cut_off_is_left_out() -> None:
    assert whole_sentences("It is old. It has 3.5 m. It wa") == "It is old. It has 3.5 m."
    assert whole_sentences("It has no end") == "It has no end"
