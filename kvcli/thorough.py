"""Thorough answers: every section is asked, and one answer is written from what they say.

Owns what is read of a section for a question, which of the lines count, and the requests. Of each
section the page that the question looks at most is read with its neighbours: of 6 questions on the
example report the default model told 4 right from that, 3 from the best two and 2 from the best
eight. Knows the engine through the conversation.

A small model says "none" badly, sometimes of the very section that has the answer, and invents
what it does not find. So a line counts only if it is worth something (`kvcli.worth`) and its
section does not draw far less attention than the best. A section that draws nearly as much as the
best, but says nothing, is asked once more without the way out. Of 12 questions on the example
report the section with the answer drew the most 7 times and was among the first two 10 times; by
the probability of "none" it was first twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.config import SamplingConfig
from kvcli.answer import Answer, Ending
from kvcli.focus_pages import choose_pages
from kvcli.lookup import Lookup
from kvcli.rounds import in_rounds
from kvcli.sections import Section, section_at
from kvcli.side_reader import Note, OnText, SideReader, SideText, silent
from kvcli.visits import Visit, visits
from kvcli.worth import is_worth_something

NEAR_PAGES = 3
"""Pages read of a section: the best one and its neighbours."""

LINE_TOKENS = 40
"""Longest line that a section is answered in."""

STANDS_OUT = 0.8
"""Share of the best section's score from which on a section is asked twice."""

COUNTS = 0.25
"""Share of the best section's score below which a line is noise."""

OR_NONE = "\nIf the text above does not answer it, write: none"
IN_ONE_LINE = "\nAnswer in one line."


@dataclass(frozen=True, slots=True)
class Line:
    """What one section says to a question."""

    note: Note
    """The line, under the best of the pages that it was read from; empty if it is worth nothing."""
    score: float
    """Of that page."""


@dataclass(slots=True)
class ThoroughSearch:
    """Asks every section one question.

    Args:
        reader: Reads pages and lines.
        sections: Of the documents.
        most_tokens: Most tokens of lines that are read at once.
        sampling: How answers are written.
        on_status: Told how far it is.
    """

    reader: SideReader
    sections: Sequence[Section]
    most_tokens: int
    sampling: SamplingConfig
    on_status: Callable[[str], None]

    def lines(self, question: str) -> list[Line]:
        """Ask every section.

        Returns:
            The lines that say something, in document order.

        Raises:
            StopRequested: The user stopped.
        """
        scores = self.reader.conversation.page_scores(question)
        best = max(scores, default=0.0)
        telemetry = self.reader.conversation.engine.telemetry
        lines = [
            self._line(visit, question, scores, best)
            for visit in visits(self.sections, LINE_TOKENS, "sections", telemetry, self.on_status)
        ]
        return [line for line in lines if line.score >= COUNTS * best and line.note.text]

    def _line(self, visit: Visit, question: str, scores: list[float], best: float) -> Line:
        size, section = self.reader.page_tokens, visit.section
        first, end = section.first_token // size, min(len(scores), -(-section.end_token // size))
        inside = [score if first <= page < end else -1.0 for page, score in enumerate(scores)]
        page = max(range(first, end), key=scores.__getitem__)
        pages = choose_pages(inside, NEAR_PAGES, most_anchors=1)
        manners = (OR_NONE, IN_ONE_LINE) if scores[page] >= STANDS_OUT * best else (OR_NONE,)
        text = ""
        for manner in manners:
            with self.reader.pages(pages) as reading:
                text = text or self._ask(reading, question, manner, visit.on_step)
        talk = self.reader.conversation
        last = min((page + 1) * size, talk.document_tokens)
        place = section_at(talk.source_map, page * size, last, size)
        return Line(Note(place, text), scores[page])

    def _ask(
        self,
        reading: SideText,
        question: str,
        manner: str,
        on_step: Callable[[int, int], None] | None = None,
    ) -> str:
        """Ask for a line; empty if it is worth nothing."""
        shorter = min(LINE_TOKENS, self.sampling.max_tokens)
        sampling = replace(self.sampling, max_tokens=shorter, temperature=0.0)
        request = f"Question: {question}{manner}"
        read = self.reader.text_of(reading)
        answer = self.reader.write(reading, request, sampling, silent, on_step)
        if answer.ending is Ending.STOPPED:
            self.reader.conversation.check_stop()
        line = answer.text.partition("\n")[0].strip()
        return line if is_worth_something(line, question, read) else ""

    def answer(self, question: str, lines: Sequence[Line], on_text: OnText) -> Answer:
        """Write one answer from the lines, with the pages they come from as its sources.

        Raises:
            StopRequested: The user stopped before it began.
        """
        notes = in_rounds(
            [line.note for line in lines],
            self.most_tokens,
            self.reader.note_sizes,
            lambda group: self._merged(question, group),
            self.on_status,
        )
        if not notes:
            return self._nothing(on_text)
        self.reader.publish("answer")
        with self.reader.notes(notes) as reading:
            answer = self.reader.write(reading, f"Question: {question}", self.sampling, on_text)
        total = sum(line.score for line in lines) or 1.0
        best_first = sorted(lines, key=lambda line: -line.score)
        return replace(
            answer,
            citations=tuple(
                line.note.section.citation(round(line.score / total, 4)) for line in best_first
            ),
        )

    def _merged(self, question: str, group: list[Note]) -> Note | None:
        with self.reader.notes(group) as reading:
            text = self._ask(reading, question, OR_NONE)
        return Note(self.reader.section_of(group), text) if text else None

    def _nothing(self, on_text: OnText) -> Answer:
        text = f"Not found: none of {len(self.sections):,} sections gave an answer."
        on_text(text)
        nothing = Lookup([], 0.0, 0.0, ())
        return Answer(text, (), Ending.DONE, 0, 0, 0.0, 0.0, lookup=nothing)
