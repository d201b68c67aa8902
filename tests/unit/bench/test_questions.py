"""The question files of the benchmarks: well formed, balanced, and pointing at code that exists."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from bench.questions import NAMES, Place, Question, load

from kvcli.corpus.corpus import read_corpus

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", NAMES)
def test_every_question_is_whole(name: str) -> None:
    for question in load(name):
        assert question.text.endswith("?")
        assert question.places
        assert question.accept


@pytest.mark.parametrize("name", NAMES)
def test_no_question_gives_its_answer_away(name: str) -> None:
    assert not [question.text for question in load(name) if question.is_answered_by(question.text)]


@pytest.mark.parametrize("name", NAMES)
def test_the_two_kinds_alternate(name: str) -> None:
    kinds = [question.shares_words for question in load(name)]
    assert kinds == [True, False] * (len(kinds) // 2)


def test_there_are_enough_questions_and_none_twice() -> None:
    texts = Counter(question.text for name in NAMES for question in load(name))
    assert len(texts) >= 60
    assert max(texts.values()) == 1


def test_pages_of_the_manual_are_pages_of_the_manual() -> None:
    places = [place for question in load("manual") for place in question.places]
    assert all(place.page is not None and 32 <= place.page <= 2335 for place in places)


def test_answers_about_this_repository_still_stand_where_the_key_says() -> None:
    """A renamed function or a changed constant makes a question of the set wrong."""
    corpus = read_corpus([ROOT / "kvcli"], include=["*.py"])

    def cited(question: Question) -> str:
        return "\n".join(
            span.text
            for document in corpus.documents
            for span in document.spans
            if any(place.is_cited_by(document.path, None, span.name) for place in question.places)
        )

    questions = load("kvcli")
    assert [q.text for q in questions if not q.is_answered_by(cited(q))] == []


def test_patterns_compile_and_ignore_case() -> None:
    for pattern in (p for name in NAMES for question in load(name) for p in question.accept):
        re.compile(pattern)
    assert Question("?", True, (), (r"\bagrep\b",)).is_answered_by("Use AGREP.")


@pytest.mark.parametrize(
    ("path", "page", "name", "is_right"),
    [
        ("app.py", None, "main", True),
        ("kvcli/app.py", None, "main", True),
        ("src/kvcli/app.py", None, "main.inner", True),
        ("commands/app.py", None, "main", False),
        ("app.py", None, "mainly", False),
        ("app.py", None, None, False),
    ],
)
def test_a_citation_is_matched_by_path_and_name(
    path: str, page: int | None, name: str | None, is_right: bool
) -> None:
    assert Place("kvcli/app.py", name="main").is_cited_by(path, page, name) is is_right


def test_a_citation_of_a_pdf_is_matched_by_page() -> None:
    place = Place("manual.pdf", page=7)
    assert place.is_cited_by("/some/folder/manual.pdf", 7)
    assert not place.is_cited_by("manual.pdf", 8)
    assert not place.is_cited_by("othermanual.pdf", 7)
