"""What a session file keeps for kvcli comes back as it was, or is refused by name."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch

from engine.errors import SessionError
from kvcli.ingest_settings import IngestSettings
from kvcli.notes import Notes, SectionNote

NOTES = Notes("smollm2-135m", ("a.txt", "b.pdf"), "exact", 2, 1234, None)


def test_notes_come_back_through_json() -> None:
    assert Notes.from_json(json.loads(json.dumps(NOTES.to_json()))) == NOTES


def test_notes_on_sections_come_back_in_order_and_take_no_room_before() -> None:
    sections = (SectionNote(64, 128, "Zweite."), SectionNote(0, 64, "Erste.\n"))
    notes = dataclasses.replace(NOTES, sections=sections)
    assert Notes.from_json(json.loads(json.dumps(notes.to_json()))) == notes
    assert "sections" not in NOTES.to_json()


def test_the_layers_come_back_and_notes_of_before_have_none() -> None:
    notes = dataclasses.replace(NOTES, lookup_layers=(14, 16))
    assert Notes.from_json(json.loads(json.dumps(notes.to_json()))) == notes
    assert Notes.from_json(NOTES.to_json()).lookup_layers == ()


def test_a_chat_that_outgrew_the_window_remembers_how_far_it_was_exact() -> None:
    notes = dataclasses.replace(NOTES, mode="focus", exact_tokens=2000)
    assert Notes.from_json(json.loads(json.dumps(notes.to_json()))) == notes
    assert "exact_tokens" not in NOTES.to_json()


def test_how_it_was_read_comes_back_and_notes_of_before_say_nothing() -> None:
    notes = dataclasses.replace(NOTES, settings=IngestSettings(step=512))
    assert Notes.from_json(json.loads(json.dumps(notes.to_json()))) == notes
    fields = NOTES.to_json()
    del fields["settings"]
    assert Notes.from_json(fields) == NOTES


def test_sessions_that_do_not_tell_were_read_as_today() -> None:
    """Once a constant changes, they are refused by its name instead of being mixed with others."""
    assert IngestSettings() == IngestSettings.of_now()


def test_the_neutral_mass_comes_back_in_its_shape_to_the_bit() -> None:
    """Its values are those of fp16, so nothing is lost."""
    neutral = torch.rand(3, 4, 17).half().float()
    notes = Notes("m", (), "exact", 0, 9, neutral)
    back = Notes.from_json(json.loads(json.dumps(notes.to_json())))
    assert back.neutral is not None
    assert torch.equal(back.neutral, neutral)


def test_no_neutral_mass_takes_no_room() -> None:
    assert "neutral" not in NOTES.to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"model": None},
        {"turns": "many"},
        {"sources": 7},
        {"document_tokens": None},
        {"neutral": {"shape": [2, 2, 2], "float16": "AAAA"}},
        {"neutral": {"shape": [1], "float16": "***"}},
        {"neutral": "soon"},
        {"sections": [{"at": 0, "text": "no end"}]},
        {"sections": 7},
        {"lookup_layers": "all"},
    ],
)
def test_unusable_notes_are_a_session_error(change: dict[str, Any]) -> None:
    """A note that is missing (None here) or of another kind."""
    fields = {k: v for k, v in (NOTES.to_json() | change).items() if v is not None}
    with pytest.raises(SessionError, match="notes are unusable") as caught:
        Notes.from_json(fields)
    assert "\n" not in caught.value.message
