"""Facts hidden in text: where they stand, what they say, and what counts as right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from bench.haystack import APART, Haystack, Place, Question, hide

TOKENS = 20_000


def count_words(line: str) -> int:
    """Stand in for a tokenizer: words and line ends."""
    return len(line.split()) + 1


def prose() -> Iterator[str]:
    """Lines that end in the middle of a sentence or at its end, for ever."""
    while True:
        yield from ("Boats are tied to the eastern wall at", "night. They belong to the", "Lees.")
        yield from ("Nets hang there approx.", "until noon.", "Salt dries on the ropes.", "")


def make(seed: int = 1, singles: int = 10, groups: int = 5, mark: str = "") -> Haystack:
    return hide(
        prose(), seed, tokens=TOKENS, count_tokens=count_words,
        singles=singles, groups=groups, mark=mark,
    )  # fmt: skip


@pytest.fixture(scope="module")
def haystack() -> Haystack:
    return make()


def of_kind(haystack: Haystack, kind: str) -> list[Question]:
    return [question for question in haystack.questions if question.kind == kind]


def test_as_many_questions_of_each_kind_as_asked_for() -> None:
    haystack = make(singles=3, groups=2)

    counts = {q.kind: len(of_kind(haystack, q.kind)) for q in haystack.questions}
    assert counts == {"single": 3, "multi_key": 2, "multi_value": 2, "two_hop": 2, "absent": 3}


def test_the_same_seed_gives_the_same_text_and_questions(haystack: Haystack) -> None:
    assert make() == haystack


def test_another_seed_gives_other_facts(haystack: Haystack) -> None:
    other = make(seed=2)

    mine = {fact for q in haystack.questions for fact in q.facts}
    assert mine.isdisjoint(fact for q in other.questions for fact in q.facts)


def test_the_text_is_as_long_as_asked_for_and_no_longer(haystack: Haystack) -> None:
    assert sum(count_words(line) for line in haystack.lines) == haystack.num_tokens
    assert 0.98 * TOKENS < haystack.num_tokens <= TOKENS


def test_places_name_the_line_and_the_tokens_before_it(haystack: Haystack) -> None:
    for question in haystack.questions:
        for fact, place in zip(question.facts, question.places, strict=True):
            assert haystack.lines[place.at - 1] == fact
            before = haystack.lines[: place.at - 1]
            assert place.token == sum(count_words(line) for line in before)


def test_every_sentence_stands_once_and_alone_between_blank_lines(haystack: Haystack) -> None:
    lines = ["", *haystack.lines, ""]
    for question in haystack.questions:
        for sentence in (*question.facts, *question.others):
            at = lines.index(sentence)
            assert lines.count(sentence) == 1
            assert (lines[at - 1], lines[at + 1]) == ("", "")


def test_the_text_around_the_facts_is_unchanged(haystack: Haystack) -> None:
    """Also says that no fact stands within a sentence that goes on in the next line."""
    hidden = {s for q in haystack.questions for s in (*q.facts, *q.others)}
    rest = [line for line in haystack.lines if line and line not in hidden]
    source = prose()
    assert rest == [next(line for line in source if line) for _ in rest]
    for first, second in pairwise(haystack.lines):
        assert first.endswith("wall at") == second.startswith("night.")
        assert first.endswith("to the") == second.startswith("Lees.")
        assert first.endswith("approx.") == second.startswith("until")


def test_single_facts_stand_at_even_depths_from_start_to_end(haystack: Haystack) -> None:
    depths = [q.places[0].token / haystack.num_tokens for q in of_kind(haystack, "single")]

    assert depths == pytest.approx([step / 9 for step in range(10)], abs=0.02)


def test_sentences_of_one_question_stand_apart(haystack: Haystack) -> None:
    for question in haystack.questions:
        at = sorted(haystack.lines.index(s) for s in (*question.facts, *question.others))
        gaps = [b - a for a, b in pairwise(at)]
        assert all(gap > 0.7 * APART * len(haystack.lines) for gap in gaps)


def test_single_facts_have_two_others_of_their_form_with_other_values(haystack: Haystack) -> None:
    for question in of_kind(haystack, "single"):
        assert len(question.facts) == 1 and len(question.others) == 2
        assert question.is_answered(question.facts[0])
        for other in question.others:
            assert question.is_trapped(other) and not question.is_answered(other)


def test_no_right_value_is_a_trap(haystack: Haystack) -> None:
    for question in haystack.questions:
        assert not question.is_trapped(" ".join(question.facts))


def test_keys_of_a_multi_key_question_begin_alike(haystack: Haystack) -> None:
    for question in of_kind(haystack, "multi_key"):
        (asked,) = set(re.findall(r"[A-Z]\w+", question.text)) & set(
            re.findall(r"[A-Z]\w+", question.facts[0])
        ) - {"The"}
        assert len(question.others) == 3
        for other in question.others:
            assert asked not in other and f" {asked[:3]}" in other


def test_a_multi_value_question_wants_all_four_values(haystack: Haystack) -> None:
    for question in of_kind(haystack, "multi_value"):
        assert len(question.places) == 4
        assert question.is_answered(" ".join(question.facts))
        assert not question.is_answered(" ".join(question.facts[:3]))


def test_a_chain_ends_in_the_value_and_names_its_key_only_at_the_start(haystack: Haystack) -> None:
    for question in of_kind(haystack, "two_hop"):
        first, second = question.facts
        assert question.is_answered(second) and not question.is_answered(first)
        middle = set(re.findall(r"[A-Z]\w+", first)) & set(re.findall(r"[A-Z]\w+", second))
        assert len(middle - {"The"}) == 2
        assert not any(word in question.text for word in middle - {"The"})


def test_absent_names_occur_nowhere_but_their_form_does(haystack: Haystack) -> None:
    text = "\n".join(haystack.lines)
    for question in of_kind(haystack, "absent"):
        name = re.findall(r"[A-Z]\w+", question.text)[-1]
        assert name not in text
        assert question.is_trapped(text) and not question.is_answered(text)
        assert question.places == ()


def test_names_of_the_text_itself_are_not_invented_again() -> None:
    """The whole first syllable is taken by the text; whoever used it would ask about the text."""
    used = [f"Vorn{tail} is a town." for tail in ("holt", "wick", "moor", "sted", "garth", "lach")]

    def text() -> Iterator[str]:
        yield from (*used, "")
        yield from prose()

    for seed in range(5):
        haystack = hide(text(), seed, tokens=TOKENS, count_tokens=count_words)
        facts = " ".join(s for q in haystack.questions for s in (*q.facts, *q.others, q.text))
        assert not any(line.split()[0] in facts for line in used)


def test_a_mark_makes_facts_comments() -> None:
    haystack = make(mark="# ")

    for question in haystack.questions:
        for fact, place in zip(question.facts, question.places, strict=True):
            assert haystack.lines[place.at - 1] == f"# {fact}"


def test_numbers_and_dates_are_right_as_people_write_them() -> None:
    haystack = make()
    number = next(q for q in haystack.questions if "maintenance code" in q.text)
    digits = re.findall(r"\d{5}", number.facts[0])[0]
    date = next(q for q in haystack.questions if "expedition" in q.text)
    day, month = re.findall(r"(\d+) (\w+)\.", date.facts[0])[0]

    assert number.is_answered(f"It is {digits[:2]},{digits[2:]}.")
    assert not number.is_answered(f"It is 1{digits}.")
    assert date.is_answered(f"On {month} {day}.") and date.is_answered(f"the {day}th of {month}")
    assert not date.is_answered(f"On {month} {day}0.") and not date.is_answered(f"1{day} {month}")


def test_a_place_is_cited_by_a_range_of_lines_that_holds_it() -> None:
    near, far = Place(10, 100), Place(90, 900)
    question = Question("two_hop", "?", ("x",), places=(near, far))

    assert question.places_in([(1, 9), (11, 89)]) == set()
    assert question.places_in([(10, 10)]) == {near}
    assert question.places_in([(5, 10), (90, 95)]) == {near, far}


def test_too_short_a_text_is_refused() -> None:
    with pytest.raises(ValueError, match="tokens of text"):
        hide(["One line."] * 100, 1, tokens=TOKENS, count_tokens=count_words)


def test_a_text_without_paragraphs_is_refused() -> None:
    lines = ["and on it goes"] * TOKENS
    with pytest.raises(ValueError, match="too few paragraphs"):
        hide(lines, 1, tokens=TOKENS, count_tokens=count_words)
