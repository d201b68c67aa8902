"""Turns over one sequence: what is appended, when an answer ends, and what refusing costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from engine_kit import new_file, one_thread, open_engine, tiny
from tiny_models import tiny_tokenizer

from engine.config import SamplingConfig
from engine.engine import Engine
from engine.errors import OverBudget
from engine.session import SessionFile
from kvcli.answer import Ending
from kvcli.answer_text import AnswerText
from kvcli.conversation import Conversation
from kvcli.corpus.source_map import SourceMap
from kvcli.corpus.spans import Corpus, Document, DocumentKind, Span
from kvcli.prompts import PromptBuilder
from kvcli.stopping import StopRequested

__all__ = ["one_thread"]

SPANS = tuple(Span(f"Pier {i} is sound.\n", lines=(i, i)) for i in range(1, 21))
DOCUMENTS = Corpus((Document("a.txt", DocumentKind.TEXT, SPANS, "0" * 64, 1),), (), ())
SHORT = SamplingConfig(max_tokens=6)


class Stops:
    """Asks to stop at the n-th check from now."""

    def __init__(self) -> None:
        self.after: int | None = None

    def __call__(self) -> None:
        if self.after is None:
            return
        self.after -= 1
        if self.after < 0:
            raise StopRequested


def over(engine: Engine, stops: Stops) -> Conversation:
    builder = PromptBuilder(tiny_tokenizer(), "tiny")
    prompt = builder.documents(DOCUMENTS)
    sequence = engine.new_sequence()
    sequence.token_ids.extend(prompt.token_ids)
    return Conversation(
        engine, builder, sequence, prompt.source_map, len(prompt.token_ids), 0, stops
    )


@contextmanager
def opened(stops: Stops, file: SessionFile | None = None) -> Iterator[Conversation]:
    with open_engine(tiny(), num_tokens=1200, file=file) as engine:
        yield over(engine, stops)


@pytest.fixture
def stops() -> Stops:
    return Stops()


@pytest.fixture
def talk(stops: Stops) -> Iterator[Conversation]:
    """A conversation whose documents have been read."""
    with opened(stops) as conversation:
        conversation.read("reading")
        yield conversation


def silent(_: str) -> None:
    pass


def test_reading_computes_what_waits_and_nothing_twice(stops: Stops) -> None:
    with opened(stops) as conversation:
        assert conversation.read("reading") == conversation.document_tokens
        assert conversation.read("reading") == 0


def test_the_neutral_question_is_measured_once_and_leaves_no_trace(talk: Conversation) -> None:
    assert len(talk.sequence.token_ids) == talk.sequence.num_tokens == talk.document_tokens
    neutral = talk.neutral
    assert neutral is not None
    assert torch.equal(neutral, neutral.half().float())
    talk.read("reading")
    assert talk.neutral is neutral


def test_pieces_of_an_answer_joined_are_its_text(talk: Conversation) -> None:
    pieces: list[str] = []
    answer = talk.ask("Which pier?", SamplingConfig(max_tokens=30), pieces.append)
    ids = talk.sequence.token_ids[answer.prompt_tokens :]
    assert "".join(pieces) == tiny_tokenizer().decode(ids, skip_special_tokens=True)
    assert answer.text == "".join(pieces).strip()
    assert answer.new_tokens == 30


def test_an_answer_is_cut_at_its_longest_and_done_at_its_end_token(
    talk: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = talk.ask("Which pier?", SHORT, silent)
    assert first.ending is Ending.CUT
    written = talk.sequence.token_ids[first.prompt_tokens :]
    stops = Stops()
    with opened(stops) as again:
        again.read("reading")
        ends = written[3]
        monkeypatch.setattr(again.engine.model, "eos_ids", frozenset([ends]))
        answer = again.ask("Which pier?", SHORT, silent)
    assert answer.ending is Ending.DONE
    assert answer.new_tokens == written.index(ends)
    assert again.sequence.token_ids[answer.prompt_tokens :] == written[: written.index(ends) + 1]


def test_a_stopped_answer_is_what_was_said_so_far(talk: Conversation, stops: Stops) -> None:
    end = talk.document_tokens + len(talk.question_ids("Which pier?")) + 3

    def stop_at_the_third_token() -> None:
        if len(talk.sequence.token_ids) == end:
            raise StopRequested

    talk.check_stop = stop_at_the_third_token
    answer = talk.ask("Which pier?", SamplingConfig(max_tokens=30), silent)
    assert (answer.ending, answer.new_tokens) == (Ending.STOPPED, 3)
    assert len(talk.sequence.token_ids) == answer.prompt_tokens + 3 == end
    talk.check_stop = stops
    assert talk.ask("And then?", SHORT, silent).ending is Ending.CUT


def test_a_question_stopped_before_its_answer_stays_as_a_turn_without_one(
    talk: Conversation, stops: Stops
) -> None:
    stops.after = 0
    with pytest.raises(StopRequested):
        talk.ask("Which pier?", SHORT, silent)
    assert talk.is_asking
    stops.after = None
    talk.ask("Which year?", SHORT, silent)
    assert not talk.is_asking
    text = tiny_tokenizer().decode(talk.sequence.token_ids[talk.document_tokens :])
    assert text.startswith(
        "\nQuestion: Which pier?<|im_end|>\n<|im_start|>assistant\n"
        "<|im_end|>\n<|im_start|>user\nWhich year?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("question", "sampling"), [("why " * 900, SHORT), ("Why?", SamplingConfig(max_tokens=2000))]
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    talk: Conversation, question: str, sampling: SamplingConfig
) -> None:
    before = list(talk.sequence.token_ids)
    with pytest.raises(OverBudget, match=r"more than the window of 2,048"):
        talk.ask(question, sampling, silent)
    assert (talk.sequence.token_ids, talk.turns, talk.is_fresh) == (before, 0, True)


def test_citations_stay_within_the_documents(talk: Conversation) -> None:
    """By what the question looked at, or for a request by what its answer looked at."""
    asked = talk.ask("Which pier is sound?", SHORT, silent).citations
    requested = talk.ask("Say more.", SHORT, silent, is_request=True).citations
    known = {span.lines for span in SPANS}
    for citation in (*asked, *requested):
        assert (citation.path, citation.lines in known) == ("a.txt", True)
        assert 0 < citation.weight <= 1


def test_saving_leaves_nothing_to_compute(stops: Stops, tmp_path: Path) -> None:
    """The last token of an answer has no KV until then."""
    path = tmp_path / "s.kv"
    with opened(stops, new_file(path, tiny())) as conversation:
        conversation.read("reading")
        conversation.ask("Which pier?", SHORT, silent)
        assert conversation.sequence.num_tokens == len(conversation.sequence.token_ids) - 1
        conversation.save({"note": 1})
        ids = list(conversation.sequence.token_ids)
    with SessionFile.open(path, writable=False) as file:
        assert (file.kv_tokens, file.notes) == (len(ids), {"note": 1})
        assert [int(token) for token in file.token_ids] == ids


def test_a_conversation_that_has_turns_is_not_fresh_whatever_its_notes_say(stops: Stops) -> None:
    """After a kill the ids may hold a question that the notes do not know yet."""
    with opened(stops) as conversation:
        ids = conversation.question_ids("Which pier?")
        conversation.sequence.token_ids.extend(ids)
        assert conversation.turns == 0
        assert not conversation.is_fresh
        assert "Question" not in tiny_tokenizer().decode(conversation.question_ids("Why?"))
        conversation.read("reading")
        assert conversation.neutral is None


def test_a_source_map_without_spans_cites_nothing(talk: Conversation) -> None:
    talk.source_map = SourceMap()
    talk.neutral = None
    assert talk.ask("Which pier?", SHORT, silent).citations == ()


def test_the_words_of_a_question_count_for_its_citations(
    talk: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where attention drew every page alike, the page with the question's words came nowhere."""
    monkeypatch.setattr(
        Conversation, "draws", lambda *_: [1.0] * len(talk.words.look_up("").scores)
    )
    cited = talk.ask("What of pier 17?", SHORT, silent).citations
    assert cited and cited[0].lines == (17, 17)


def test_an_answer_that_closes_its_document_is_done(
    talk: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = tiny_tokenizer()("Yes.\n</document>\nQuestion: And now?").input_ids
    monkeypatch.setattr(talk.engine, "generate", lambda *_, **__: iter(ids))
    answer = talk.ask("Which pier?", SamplingConfig(max_tokens=99), silent)
    assert (answer.text, answer.ending) == ("Yes.", Ending.DONE)
    assert answer.new_tokens < len(ids)


# -- the text of an answer -------------------------------------------------------------------------


def test_characters_of_several_tokens_come_whole() -> None:
    backend = tiny_tokenizer().backend_tokenizer
    pieces: list[str] = []
    text = AnswerText(backend, pieces.append)
    for token in backend.encode("aß😀b").ids:
        text.add(token)
    text.finish()
    assert pieces == ["a", "ß", "😀", "b"]
    assert (text.text, text.num_tokens) == ("aß😀b", 8)


def test_what_is_no_whole_character_at_the_end_is_not_swallowed() -> None:
    backend = tiny_tokenizer().backend_tokenizer
    pieces: list[str] = []
    text = AnswerText(backend, pieces.append)
    for token in backend.encode("a😀").ids[:-1]:
        text.add(token)
    assert pieces == ["a"]
    text.finish()
    assert text.text == "".join(pieces) == "a\ufffd"


@pytest.mark.parametrize(
    ("said", "text", "is_over"),
    [
        ("Three.\n</document>\nQuestion: More?", "Three.", True),
        ("Three. </document2>", "Three.", True),
        ('Three.\n<document path="a.txt">\nPier 7', "Three.", True),
        ("a < b </doc and\n\nso on\n", "a < b </doc and\n\nso on\n", False),
        ("It ends with </docum", "It ends with </docum", False),
        ("</document>", "", True),
    ],
)
def test_an_answer_ends_where_it_closes_its_document(said: str, text: str, is_over: bool) -> None:
    """The default model answered "SmolLM2-135M-Instruct.</document>" and went on from there."""
    backend = tiny_tokenizer().backend_tokenizer
    pieces: list[str] = []
    answer = AnswerText(backend, pieces.append)
    for token in backend.encode(said).ids:
        answer.add(token)
    answer.finish()
    assert "".join(pieces) == answer.text == text
    assert answer.is_over == is_over
