"""Readings beside the main sequence: how they are laid out, cited, and that they leave no trace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_kit import one_thread, open_engine, tiny
from tiny_models import tiny_tokenizer

from engine.config import SamplingConfig
from engine.errors import OverBudget
from engine.telemetry import Telemetry
from kvcli.answer import Ending
from kvcli.conversation import Conversation
from kvcli.corpus.spans import Corpus, Document, DocumentKind, Span
from kvcli.prompts import PromptBuilder
from kvcli.sections import Section, cut_sections
from kvcli.side_reader import Note, SideReader, silent
from kvcli.stopping import StopRequested
from kvcli.visits import visits
from kvcli.working_set import Reading

__all__ = ["one_thread"]

SHORT = SamplingConfig(max_tokens=6)


def document(name: str, first: int, last: int) -> Document:
    spans = tuple(
        Span(f"Pier {i} of {name} is sound.\n", lines=(i, i)) for i in range(first, last + 1)
    )
    return Document(name, DocumentKind.TEXT, spans, "0" * 64, 1)


@pytest.fixture
def talk() -> Iterator[Conversation]:
    """A conversation over two files that has been read."""
    builder = PromptBuilder(tiny_tokenizer(), "tiny")
    corpus = Corpus((document("a.txt", 1, 20), document("b.txt", 1, 9)), (), ())
    prompt = builder.documents(corpus)
    with open_engine(tiny(), num_tokens=2000) as engine:
        sequence = engine.new_sequence()
        sequence.token_ids += prompt.token_ids
        conversation = Conversation(
            engine, builder, sequence, prompt.source_map, len(prompt.token_ids), 0, lambda: None
        )
        conversation.read("reading")
        yield conversation


def sections_of(talk: Conversation) -> list[Section]:
    return cut_sections(talk.source_map, talk.document_tokens, 16, 192)


def text_of(ids: list[int]) -> str:
    return str(tiny_tokenizer().decode(ids))


@pytest.mark.parametrize("how", Reading)
def test_a_section_is_given_whole_and_nothing_behind_it(talk: Conversation, how: Reading) -> None:
    """Every line that lies wholly in a section stands in its reading, and none that lies behind."""
    sections = sections_of(talk)
    assert len(sections) > 3
    for section in sections:
        inside, behind = [], []
        for span in talk.source_map.spans:
            assert span.lines is not None
            line = f"Pier {span.lines[0]} of {span.path} is sound.\n"
            if section.first_token <= span.first_token and span.end_token <= section.end_token:
                inside.append(line)
            elif span.first_token >= section.end_token:
                behind.append(line)
        with SideReader(talk, how).section(section) as reading:
            text = text_of(reading.sequence.token_ids)
        assert inside
        assert all(line in text for line in inside)
        assert not any(line in text for line in behind)


def test_kept_sections_are_not_computed_again(talk: Conversation) -> None:
    section = sections_of(talk)[1]
    with SideReader(talk, Reading.STORED).section(section) as reading:
        assert reading.sequence.num_tokens == len(reading.sequence.token_ids)
    with SideReader(talk, Reading.REREAD).section(section) as reading:
        assert reading.sequence.num_tokens == 0


@pytest.mark.parametrize("how", Reading)
def test_a_reading_leaves_no_trace(talk: Conversation, how: Reading) -> None:
    before, pages = list(talk.sequence.token_ids), talk.engine.telemetry.sample().total_pages
    reader = SideReader(talk, how)
    with reader.section(sections_of(talk)[1]) as reading:
        answer = reader.write(reading, "Say more.", SHORT, silent)
    assert (answer.new_tokens, answer.ending) == (6, Ending.CUT)
    assert talk.sequence.token_ids == before
    assert talk.engine.telemetry.sample().total_pages == pages
    talk.engine.check_integrity()


def test_notes_stand_under_their_references_and_are_cited_as_sections(talk: Conversation) -> None:
    sections, reader = sections_of(talk), SideReader(talk)
    notes = [Note(section, f"Note {i}.") for i, section in enumerate(sections)]
    with reader.notes(notes) as reading:
        text = text_of(reading.sequence.token_ids)
        answer = reader.write(reading, "Say more.", SHORT, silent)
    for note in notes:
        assert f"Notes on {note.section.reference}:\n{note.text}\n" in text
    references = {section.reference for section in sections}
    assert answer.citations
    assert {citation.text for citation in answer.citations} <= references
    assert sum(citation.weight for citation in answer.citations) <= 1.001


def test_a_stop_while_writing_ends_the_answer_and_before_it_the_reading(
    talk: Conversation,
) -> None:
    reader, section = SideReader(talk), sections_of(talk)[0]
    checks = 0

    def stop_at_the_fourth() -> None:
        nonlocal checks
        checks += 1
        if checks == 4:
            raise StopRequested

    talk.check_stop = stop_at_the_fourth
    with reader.section(section) as reading:
        answer = reader.write(reading, "Say more.", SHORT, silent)
    assert (answer.ending, answer.new_tokens) == (Ending.STOPPED, 2)
    checks = 3
    with pytest.raises(StopRequested), reader.section(section) as reading:
        reader.write(reading, "Say more.", SHORT, silent)


def test_what_does_not_fit_is_refused_with_the_numbers(talk: Conversation) -> None:
    SideReader(talk).require_room(1024, "Why?", 900)
    with pytest.raises(OverBudget, match=r"1,024 tokens to read, .* more than the window of 2,048"):
        SideReader(talk).require_room(1024, "Why?", 1100)


# -- visits ----------------------------------------------------------------------------------------


def test_progress_of_visits_grows_in_tokens_up_to_all_of_them(talk: Conversation) -> None:
    sections, telemetry, said = sections_of(talk), Telemetry(), list[str]()
    seen = []
    for visit in visits(sections, 10, "notes", telemetry, said.append):
        for read, written in ((0, 0), (100, 0), (192, 1), (200, 10)):
            visit.on_step(read, written)
            seen.append(telemetry.sample().tokens_done)
    sample = telemetry.sample()
    assert seen == sorted(seen)
    assert sample.tokens_done == sample.tokens_total == talk.document_tokens
    assert said[0] == f"notes: {len(sections)} sections to read, {talk.document_tokens:,} tokens"
    assert len(said) == 2 and f"{len(sections) - 2} sections more, about" in said[1]


def test_nothing_to_visit_says_nothing() -> None:
    said: list[str] = []
    assert list(visits([], 10, "notes", Telemetry(), said.append)) == []
    assert said == []
