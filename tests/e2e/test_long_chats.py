"""Chats that go on for ever: over many sittings, past the window; what was said is found again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import Kvcli, Ran, kv_tokens, make_session, prose, stored_ids
from session_faults import spoil

from engine.session import SessionFile, verify
from engine.types import Part
from kvcli import opening
from kvcli.answer import Answer
from kvcli.corpus.source_map import CHAT
from kvcli.focus import FocusConversation
from kvcli.notes import Notes
from kvcli.options import RunOptions
from kvcli.recall import MOST_TOKENS, Recalled
from kvcli.run import Run
from kvcli.working_set import Reading

BRIEF = ("--dashboard", "off", "--max-tokens", 4)
REMARK, WANTED = "My parrot is called Zebulon.", "What is my parrot called?"
SMALL_TALK = tuple(f"Tell me about pier {number} then." for number in range(12))
TEXT = "\n\n".join(
    f"Chapter {number}. The ferry {number} leaves when the lamp is lit. " + "It rains. " * 12
    for number in range(60)
)


def notes_of(session: Path) -> Notes:
    with SessionFile.open(session, writable=False) as file:
        return Notes.from_json(file.notes)


def chat(kvcli: Kvcli, *lines: str) -> Ran:
    """One sitting."""
    typed = "".join(f"{line}\n" for line in lines).encode()
    ran = kvcli("resume", *BRIEF, "s.kv", stdin=typed)
    assert ran.code == 0, ran.err
    return ran


@pytest.fixture
def focus_session(kvcli: Kvcli, tmp_path: Path) -> Path:
    """A session of a text longer than the window."""
    Path("a.txt").write_text(TEXT)
    assert kvcli("ingest", "a.txt", "-o", "s.kv").code == 0
    return Path("s.kv")


@contextmanager
def opened_run(model: Path) -> Iterator[tuple[Run, FocusConversation]]:
    options = RunOptions(model=str(model), dashboard="off", quiet=True, max_tokens=4)
    with opening.go_on(options, Path("s.kv")) as run:
        run.read()
        assert isinstance(run.conversation, FocusConversation)
        yield run, run.conversation
        run.engine.check_integrity()


def cited_turns(answer: Answer) -> list[str | None]:
    return [one.name for one in answer.citations if one.path == CHAT]


# -- what was said is found again ------------------------------------------------------------------


@pytest.mark.parametrize("reading", Reading)
def test_a_remark_of_an_earlier_sitting_is_found_read_and_cited(
    kvcli: Kvcli, focus_session: Path, tiny_model: Path, reading: Reading
) -> None:
    """Only the very last turn was ever seen again, and that by follow-up questions alone."""
    chat(kvcli, "When does ferry 9 leave?", REMARK, *SMALL_TALK)
    with opened_run(tiny_model) as (_, talk):
        assert [turn.turn for turn in talk.history] == list(range(1, 15))
        answer = replace(talk, reading=reading).ask(WANTED, RunOptions(max_tokens=4).sampling, str)
        assert cited_turns(answer)[0] == "turn 2" and answer.citations[0].path == CHAT
        assert answer.is_found and not answer.text.startswith("Not found")
        assert sum(one.weight for one in answer.citations) == pytest.approx(1.0, abs=0.02)


def test_a_remark_stands_in_front_of_the_question_without_what_the_model_made_of_it(
    kvcli: Kvcli, focus_session: Path, tiny_model: Path
) -> None:
    chat(kvcli, REMARK, *SMALL_TALK)
    with opened_run(tiny_model) as (_, talk):
        _, recalled = talk._look_up_all(WANTED)
        text = talk.builder.backend.decode(list(recalled.ids), skip_special_tokens=False)
        assert text.endswith(f"Earlier I said: {REMARK}\n") and "You said" not in text


def test_an_answer_of_before_stands_there_with_its_question(
    kvcli: Kvcli, focus_session: Path, tiny_model: Path
) -> None:
    chat(kvcli, REMARK, *SMALL_TALK)
    with opened_run(tiny_model) as (run, talk):
        asked = talk.question_ids("Who is the keeper?")
        (answer,) = talk.builder.encode_content(["The keeper is Zebulon Quark."])
        talk._keep_turn([*asked, *answer])
        run.save()
        _, recalled = talk._look_up_all("Who is that keeper, Zebulon Quark?")
        text = talk.builder.backend.decode(list(recalled.ids))
        said = "Earlier I asked: Who is the keeper?\nYou said: The keeper is Zebulon Quark.\n"
        assert text.endswith(said)


def test_a_question_asked_before_is_answered_from_the_documents_again(
    kvcli: Kvcli, focus_session: Path, tiny_model: Path
) -> None:
    """Nothing matches a question better than itself: its last answer would be repeated for ever."""
    question = "When does the ferry of chapter 9 leave?"
    chat(kvcli, REMARK, question)
    with opened_run(tiny_model) as (run, _):
        assert cited_turns(run.ask(question)) == []


def test_a_short_question_looks_in_the_chat_before_it_follows_on_from_the_last_turn(
    kvcli: Kvcli, focus_session: Path, tiny_model: Path
) -> None:
    """`What am I allergic to?` was put behind the last turn, whatever that was about."""
    chat(kvcli, "I am allergic to walnuts.", *SMALL_TALK)
    with opened_run(tiny_model) as (run, talk):
        last = talk._last_turn()
        answer = run.ask("What am I allergic to?")
        assert cited_turns(answer)[0] == "turn 1"
        assert talk._request("And which lamp?", Recalled())[: len(last)] != last
        assert talk._request("And which lamp?", Recalled())[: len(talk._last_turn())] == (
            talk._last_turn()
        )


def test_what_was_said_does_not_change_where_in_the_documents_a_question_looks(
    kvcli: Kvcli, focus_session: Path, tiny_model: Path
) -> None:
    """Put behind a chat with questions like it, a question looked for those: of 8 questions to
    httpx the right place came first for 4 before a chat and for 1 after it."""
    question = "When does the ferry of chapter 9 leave?"
    with opened_run(tiny_model) as (_, talk):
        before = talk.page_scores(question)
    chat(kvcli, question, *(f"When does ferry {number} leave again?" for number in range(9)))
    with opened_run(tiny_model) as (_, talk):
        assert talk.page_scores(question) == pytest.approx(before, rel=0.05, abs=0.02)
        behind = talk.queries_of(talk.question_ids(question))
        assert talk._scores(talk.mass_of(behind)) != pytest.approx(before, rel=0.05, abs=0.02)


def test_a_long_turn_is_shown_where_it_matches(
    kvcli: Kvcli, focus_session: Path, tiny_model: Path
) -> None:
    filler = " ".join(f"the pier {number} is green" for number in range(40))
    chat(kvcli, f"{filler}. {REMARK}")
    with opened_run(tiny_model) as (_, talk):
        assert talk.history[0].num_tokens > 512
        _, recalled = talk._look_up_all(WANTED)
        assert recalled.is_any and len(recalled.ids) == MOST_TOKENS


def test_the_turns_are_named_where_a_damaged_page_lies(kvcli: Kvcli, focus_session: Path) -> None:
    chat(kvcli, REMARK, *SMALL_TALK)
    with SessionFile.open(focus_session, writable=False) as file:
        page = file.notes["document_tokens"] // file.geometry.page_tokens + 2
    spoil(focus_session, page, Part.KEYS)
    ran = kvcli("verify", focus_session)
    assert ran.code == 5 and "of this chat" in ran.out + ran.err


# -- past the window -------------------------------------------------------------------------------


def test_a_chat_in_one_sitting_outgrows_the_window_and_goes_on(
    kvcli: Kvcli, notes: Path, tiny_model: Path
) -> None:
    """It ended with an error and the advice to start a new session."""
    make_session(kvcli, notes)
    before = stored_ids(Path("s.kv"))
    ran = chat(kvcli, REMARK, *(SMALL_TALK * 5))
    assert "the chat has outgrown the window of 2,048" in ran.err
    told, ids = notes_of(Path("s.kv")), stored_ids(Path("s.kv"))
    assert told.mode == "focus" and told.turns == 1 + 5 * len(SMALL_TALK)
    assert len(ids) > 2048 >= told.exact_tokens > len(before)
    assert ids[: len(before)] == before and kv_tokens(Path("s.kv")) == len(ids)
    with opened_run(tiny_model) as (run, _):
        assert cited_turns(run.ask(WANTED))[0] == "turn 1"


def test_one_question_too_many_is_answered_beyond_the_window(kvcli: Kvcli, notes: Path) -> None:
    make_session(kvcli, notes)
    chat(kvcli, "tell me of pier 9 " * 20, "and of pier 8 " * 20)
    ids = stored_ids(Path("s.kv"))
    assert notes_of(Path("s.kv")).mode == "exact"
    more = "Which pier was painted in 1950? " + "Do tell. " * 150
    for words in (("resume", *BRIEF, "s.kv"), ("ask", *BRIEF, "--session", "s.kv")):
        ran = kvcli(*words, "--attention", "exact", more)
        assert ran.code == 4 and "more than the window" in ran.error[0]
        assert stored_ids(Path("s.kv")) == ids
    ran = kvcli("ask", *BRIEF, "--json", "--session", "s.kv", more)
    assert ran.code == 0 and ran.json["mode"] == "focus-reread"
    assert stored_ids(Path("s.kv"))[: len(ids)] == ids


@pytest.fixture
def outgrown(kvcli: Kvcli, notes: Path) -> Path:
    notes.write_text(prose(40))
    make_session(kvcli, notes)
    chat(kvcli, *(SMALL_TALK * 2))
    assert notes_of(Path("s.kv")).exact_tokens
    return Path("s.kv")


def test_pages_of_before_are_repaired_exactly(kvcli: Kvcli, outgrown: Path) -> None:
    """They were computed with all of the past in sight, not with a local window."""
    before = outgrown.read_bytes()
    for page in (0, 5):
        spoil(outgrown, page)
    ran = kvcli("verify", "--repair", outgrown)
    assert ran.code == 0 and "to the bit" in ran.out, (ran.out, ran.err)
    assert outgrown.read_bytes() == before


def test_new_documents_fit_the_window_again(kvcli: Kvcli, outgrown: Path, notes: Path) -> None:
    """The chat about the old ones is gone, and with it what did not fit."""
    notes.write_text(notes.read_text() + "A line more.\n")
    ran = kvcli("update", "--dashboard", "off", outgrown)
    assert ran.code == 0, ran.err
    told = notes_of(outgrown)
    assert (told.mode, told.exact_tokens, told.turns) == ("exact", 0, 0)
    fresh = kvcli("ingest", "--dashboard", "off", notes, "-o", "fresh.kv")
    assert fresh.code == 0 and stored_ids(outgrown) == stored_ids(Path("fresh.kv"))
    assert kv_tokens(outgrown) == len(stored_ids(outgrown))


def test_forks_and_copies_remember_the_chat(
    kvcli: Kvcli, tool: Kvcli, outgrown: Path, tiny_model: Path
) -> None:
    chat(kvcli, REMARK)
    turn = f"turn {notes_of(outgrown).turns}"
    assert tool("fork", outgrown, "fork.kv").code == 0
    assert tool("export", outgrown, "copy.kv").code == 0
    for name in ("fork.kv", "copy.kv"):
        ran = kvcli("resume", *BRIEF, "--json", name, WANTED)
        assert ran.code == 0 and ran.json["citations"][0]["name"] == turn
        assert verify(Path(name), lambda done, total: None).faults == ()


def test_a_rebuilt_session_is_of_one_kind(kvcli: Kvcli, outgrown: Path) -> None:
    ids = stored_ids(outgrown)
    assert kvcli("resume", *BRIEF, "--rebuild", outgrown, "Which pier?").code == 0
    told = notes_of(outgrown)
    assert (told.mode, told.exact_tokens) == ("focus", 0)
    assert stored_ids(outgrown)[: len(ids)] == ids
