"""Summaries of documents of any length: a note on each section, and a summary of the notes.

Owns the requests, and the rounds in which notes on notes are written until they can be read at
once. Every note stands under the reference of what it is about. Nothing is looked up: each section
is read, whatever a question would find in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.config import SamplingConfig
from kvcli.answer import Answer, Ending
from kvcli.notes import SectionNote
from kvcli.prompts import SUMMARY_QUESTION
from kvcli.rounds import in_rounds
from kvcli.sections import Section
from kvcli.side_reader import Note, OnText, SideReader, silent
from kvcli.visits import Visit, visits

NOTE_REQUEST = (
    "Summarize the text above in two sentences, with its most important facts and numbers."
)
NOTES_REQUEST = "Summarize the notes above in three sentences, with the most important facts."
NOTE_TOKENS = 96
"""Longest note."""


@dataclass(slots=True)
class SectionSummary:
    """Writes a summary by sections.

    Args:
        reader: Reads sections and notes.
        most_tokens: Most tokens of notes that are read at once.
        sampling: How notes are written.
        known: Texts of notes there are already, by first and end token.
        keep: Takes each new note.
        on_status: Told how far it is.
    """

    reader: SideReader
    most_tokens: int
    sampling: SamplingConfig
    known: dict[tuple[int, int], str]
    keep: Callable[[SectionNote], None]
    on_status: Callable[[str], None]

    def notes(self, sections: Sequence[Section]) -> list[Note]:
        """Write the notes on sections that are not there yet.

        Raises:
            StopRequested: The user stopped; the notes so far were kept.
        """
        missing = [one for one in sections if (one.first_token, one.end_token) not in self.known]
        telemetry = self.reader.conversation.engine.telemetry
        length = self.sampling.max_tokens
        for visit in visits(missing, length, "notes", telemetry, self.on_status):
            self._write_note(visit)
        return [
            Note(section, self.known[section.first_token, section.end_token])
            for section in sections
        ]

    def _write_note(self, visit: Visit) -> None:
        with self.reader.section(visit.section) as reading:
            answer = self.reader.write(reading, NOTE_REQUEST, self.sampling, silent, visit.on_step)
        self._keep(visit.section, answer)

    def _keep(self, section: Section, answer: Answer) -> str:
        if answer.ending is Ending.STOPPED:
            self.reader.conversation.check_stop()
        text = whole_sentences(answer.text) if answer.ending is Ending.CUT else answer.text
        self.known[section.first_token, section.end_token] = text
        self.keep(SectionNote(section.first_token, section.end_token, text))
        return text

    def condense(self, notes: Sequence[Note]) -> list[Note]:
        """Write notes on notes, round by round, until all can be read at once."""
        return in_rounds(
            notes, self.most_tokens, self.reader.note_sizes, self._note_on, self.on_status
        )

    def _note_on(self, group: list[Note]) -> Note:
        section = self.reader.section_of(group)
        text = self.known.get((section.first_token, section.end_token))
        if text is None:
            with self.reader.notes(group) as reading:
                answer = self.reader.write(reading, NOTES_REQUEST, self.sampling, silent)
            text = self._keep(section, answer)
        return Note(section, text)

    def write(self, notes: Sequence[Note], sampling: SamplingConfig, on_text: OnText) -> Answer:
        """Write the summary of notes that can be read at once.

        Raises:
            StopRequested: The user stopped before it began.
        """
        self.reader.publish("summary")
        with self.reader.notes(notes) as reading:
            return self.reader.write(reading, SUMMARY_QUESTION, sampling, on_text)


def whole_sentences(text: str) -> str:
    """Leave out the sentence that was cut off, if there is another one before it."""
    ends = [text.rfind(mark) for mark in (". ", ".\n", "! ", "? ")]
    return text[: max(ends) + 1] if max(ends) > 0 else text
