"""Questions beyond the window: turns that follow on from each other, both readings, not found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import Kvcli
from tiny_models import ARCHITECTURES, make_tiny_model

from kvcli import opening
from kvcli.answer import Answer
from kvcli.focus import FocusConversation
from kvcli.options import RunOptions
from kvcli.recall import Recalled
from kvcli.working_set import Reading

TEXT = "\n\n".join(
    f"Chapter {number}. The ferry {number} leaves when the lamp is lit. " + "It rains. " * 12
    for number in range(60)
)


@pytest.fixture
def conversation(kvcli: Kvcli, tmp_path: Path, tiny_model: Path) -> Iterator[FocusConversation]:
    Path("a.txt").write_text(TEXT)
    assert kvcli("ingest", "a.txt", "-o", "s.kv").code == 0
    options = RunOptions(model=str(tiny_model), dashboard="off", quiet=True, max_tokens=8)
    with opening.go_on(options, Path("s.kv")) as run:
        run.read()
        assert isinstance(run.conversation, FocusConversation)
        yield run.conversation
        run.engine.check_integrity()


def ask(conversation: FocusConversation, question: str) -> Answer:
    return conversation.ask(question, RunOptions(max_tokens=8).sampling, lambda _: None)


@pytest.mark.parametrize("reading", Reading)
def test_both_readings_answer_and_leave_no_pages_behind(
    conversation: FocusConversation, reading: Reading
) -> None:
    talk = replace(conversation, reading=reading)
    pages = talk.engine.telemetry.sample().total_pages
    answer = ask(talk, "When does the ferry leave?")
    assert answer.reading == reading.value and answer.citations
    assert answer.prompt_tokens < talk.engine.model.window
    size = talk.engine.model.geometry.page_tokens
    turn = len(talk.sequence.token_ids) - talk.document_tokens
    assert talk.engine.telemetry.sample().total_pages <= pages + turn // size + 1


def test_a_turn_is_kept_and_stands_in_front_of_a_question_that_follows_on(
    conversation: FocusConversation,
) -> None:
    """In front of any other question it did harm: the model repeated its last answer."""
    asked = conversation.question_ids("Which lamp?")
    ask(conversation, "Which lamp?")
    assert conversation.turns == 1 and not conversation.is_fresh
    kept = conversation.sequence.token_ids[conversation.document_tokens :]
    assert kept[: len(asked)] == asked and len(kept) > len(asked)
    assert conversation.sequence.num_tokens == len(conversation.sequence.token_ids)
    assert conversation._last_turn() == kept
    standing_alone = "When does the ferry of chapter 9 leave?"
    first = conversation.builder.first_question(standing_alone)
    assert conversation._request(standing_alone, Recalled()) == first
    following_on = conversation._request("And which ferry?", Recalled())
    assert following_on == kept + conversation.question_ids("And which ferry?")
    ask(conversation, "And which ferry?")
    text = conversation.builder.backend.decode(conversation._last_turn())
    assert "And which ferry?" in text and "Which lamp?" not in text


def test_a_name_that_occurs_nowhere_is_said_plainly(conversation: FocusConversation) -> None:
    answer = ask(conversation, "When does the Zanzibar ferry leave?")
    assert not answer.is_found
    assert answer.text.startswith('Not found: "Zanzibar" occurs nowhere in the documents.')


def test_turns_survive_a_resume(kvcli: Kvcli) -> None:
    Path("a.txt").write_text(TEXT)
    assert kvcli("ingest", "a.txt", "-o", "s.kv").code == 0
    first = kvcli("resume", "s.kv", "When does it leave?", "--json", "--max-tokens", 8)
    again = kvcli("resume", "s.kv", "And the lamp?", "--json", "--max-tokens", 8)
    assert first.code == again.code == 0
    usage = again.json["usage"]
    assert usage["recomputed_tokens"] == 0
    assert usage["reused_tokens"] > first.json["usage"]["reused_tokens"]


def test_a_question_that_leaves_no_room_is_refused_before_anything_is_read(kvcli: Kvcli) -> None:
    """It was refused only after half a minute of reading, and the session was there already."""
    Path("a.txt").write_text(TEXT)
    ran = kvcli("ask", "--doc", "a.txt", "--session", "s.kv", "why " * 4000)
    assert ran.code == 4
    assert "to read with" in ran.error[0] and "shorten the question" in ran.error[1]
    assert "reading" not in ran.err and not Path("s.kv").exists()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_is_read_asked_and_resumed(
    architecture: str, kvcli: Kvcli, tmp_path: Path
) -> None:
    """Nothing is tuned to one: sliding layers, soft caps, biases, partial and layered rotation."""
    model = make_tiny_model(tmp_path / "model", architecture, max_position_embeddings=1024)
    Path("a.txt").write_text(TEXT.replace("The ferry 50", "The Zanzibar ferry"))
    read = kvcli("ingest", "a.txt", "-o", "s.kv", "--json", model=model)
    assert read.code == 0 and read.json["mode"] == "focus"
    for attention in ("reread", "stored"):
        for lookup in ("scan", "sketch"):
            ran = kvcli(
                "resume", "s.kv", "When does the Zanzibar ferry leave?", "--json",
                "--attention", attention, "--lookup", lookup, "--max-tokens", 5, model=model,
            )  # fmt: skip
            assert ran.code == 0 and ran.json["mode"] == f"focus-{attention}"
            assert ran.json["usage"]["recomputed_tokens"] == 0
            first, last = ran.json["citations"][0]["lines"]
            assert first <= 101 <= last
