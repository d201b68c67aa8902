"""A long answer looks at all pages again, and is read on from others once it draws on those."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_kit import Kvcli

from engine.attention.recorder import QueryRecorder
from engine.sequence import Sequence
from kvcli import focus_answer, opening
from kvcli.answer import Answer
from kvcli.conversation import Conversation
from kvcli.focus import FocusConversation
from kvcli.focus_pages import FocusPages
from kvcli.options import RunOptions
from kvcli.stopping import StopRequested
from kvcli.working_set import Reading, lay_out

TEXT = "\n\n".join(
    f"Chapter {number}. The ferry {number} leaves when the lamp is lit. " + "It rains. " * 12
    for number in range(60)
)
QUESTION = "When does the ferry leave?"
LENGTH, STRETCH = 30, 8


@pytest.fixture
def talk(
    kvcli: Kvcli, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FocusConversation]:
    monkeypatch.setattr(focus_answer, "STRETCH", STRETCH)
    monkeypatch.setattr(focus_answer, "LOOK_TOKENS", 3)
    Path("a.txt").write_text(TEXT)
    assert kvcli("ingest", "a.txt", "-o", "s.kv").code == 0
    options = RunOptions(model=str(tiny_model), dashboard="off", quiet=True, max_tokens=LENGTH)
    with opening.go_on(options, Path("s.kv")) as run:
        run.read()
        assert isinstance(run.conversation, FocusConversation)
        run.engine.model.eos_ids = frozenset()  # every answer is as long as it may be
        yield run.conversation
        run.engine.check_integrity()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[FocusPages, Sequence]]:
    """What was read, in turn."""
    seen = []

    def spy(talk: Conversation, pages: FocusPages, reading: Reading) -> Sequence:
        seen.append((pages, lay_out(talk, pages, reading)))
        return seen[-1][1]

    monkeypatch.setattr(focus_answer, "lay_out", spy)
    return seen


def ask(talk: FocusConversation) -> Answer:
    return talk.ask(QUESTION, RunOptions(max_tokens=LENGTH).sampling, lambda _: None)


def draw(monkeypatch: pytest.MonkeyPatch, page_of: list[int]) -> list[int]:
    """Let the answer draw on one page after the other; gives the queries put each time."""
    asked: list[int] = []

    def draws(talk: Conversation, recorder: QueryRecorder) -> list[float]:
        asked.append(next(iter(recorder.queries.values())).shape[1])
        scores = [0.0] * talk.engine.model.geometry.num_pages(talk.document_tokens)
        scores[page_of[min(len(asked), len(page_of)) - 1]] = 3.0
        return scores

    monkeypatch.setattr(Conversation, "draws", draws)
    return asked


@pytest.mark.parametrize("reading", Reading)
def test_an_answer_that_moves_on_is_read_on_from_there(
    talk: FocusConversation,
    read: list[tuple[FocusPages, Sequence]],
    reading: Reading,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second pages are there with everything that was said before, and the answer goes on."""
    talk.reading = reading
    queries = draw(monkeypatch, [50, 50])
    pages_before = talk.engine.telemetry.sample().total_pages
    answer = ask(talk)
    (first, _), (second, sequence) = read
    assert 50 not in first.pages and 50 in second.pages
    assert answer.new_tokens == LENGTH
    assert queries == [3] * (LENGTH // STRETCH)
    said = talk.sequence.token_ids[-LENGTH:]
    asked = talk.builder.first_question(QUESTION)
    assert sequence.token_ids[-LENGTH - len(asked) :] == asked + said
    assert answer.text == talk.builder.backend.decode(said).strip()
    turn_pages = (len(talk.sequence.token_ids) - talk.document_tokens) // 64 + 1
    assert talk.engine.telemetry.sample().total_pages <= pages_before + turn_pages


def test_an_answer_that_stays_is_left_alone(
    talk: FocusConversation,
    read: list[tuple[FocusPages, Sequence]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looking costs time only: the words are those of an answer that never looked."""
    fork = talk.engine.fork(talk.sequence)
    monkeypatch.setattr(focus_answer, "STRETCH", 10**6)
    undisturbed = ask(talk).text
    talk.sequence, talk.turns = fork, 0
    monkeypatch.setattr(focus_answer, "STRETCH", STRETCH)
    queries = draw(monkeypatch, [read[0][0].anchors[0]])
    assert ask(talk).text == undisturbed
    assert len(read) == 2 and len(queries) == LENGTH // STRETCH


def test_ctrl_c_while_other_pages_are_read_keeps_what_was_said(
    talk: FocusConversation,
    read: list[tuple[FocusPages, Sequence]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw(monkeypatch, [50])

    def stop() -> None:
        if len(read) == 2:
            raise StopRequested

    talk.check_stop = stop
    said: list[str] = []
    answer = talk.ask(QUESTION, RunOptions(max_tokens=LENGTH).sampling, said.append)
    assert answer.new_tokens == STRETCH
    assert answer.text == "".join(said).strip()
    assert talk.sequence.num_tokens == len(talk.sequence.token_ids)
