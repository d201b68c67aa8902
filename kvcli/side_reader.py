"""Reading beside the main sequence: one section, or notes under their references, and a request.

Owns how such a text is laid out and how the model writes about it. Each reading is a sequence of
its own, dropped at the end; the main sequence is never changed. Knows the engine and prompts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.probe import probe_scores
from engine.attention.recorder import QueryRecorder
from engine.config import SamplingConfig
from engine.errors import OverBudget
from engine.sequence import Sequence as TokenSequence
from kvcli.answer import Answer, Ending
from kvcli.answer_text import AnswerText
from kvcli.citations import cite
from kvcli.conversation import Conversation
from kvcli.corpus.source_map import SourceMap, TokenSpan
from kvcli.focus_pages import FocusPages
from kvcli.results import Citation
from kvcli.sections import Section, section_at
from kvcli.stopping import StopRequested
from kvcli.working_set import Reading, lay_out

OnText = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Note:
    """What was written about a section."""

    section: Section
    text: str


@dataclass(slots=True)
class SideText:
    """A text that lies ready for a request."""

    sequence: TokenSequence
    notes: tuple[Note, ...] = ()
    """Those that it consists of, if it does."""
    places: SourceMap | None = None
    """Where each of them lies; its path is its index."""


@dataclass(slots=True)
class SideReader:
    """Reads beside a conversation.

    Args:
        conversation: Whose documents are read, and with what.
        reading: How sections are given. Stored KV costs next to nothing, if the documents have been
            read as a whole, but makes vague notes: the default reads them again.
    """

    conversation: Conversation
    reading: Reading = Reading.REREAD

    @property
    def page_tokens(self) -> int:
        """Tokens per page."""
        return self.conversation.engine.model.geometry.page_tokens

    @contextmanager
    def section(self, section: Section) -> Iterator[SideText]:
        """Lay out one section of the documents."""
        first, end = section.first_token // self.page_tokens, section.end_token
        whole = FocusPages((), ((first, -(-end // self.page_tokens)),))
        with self.pages(whole, self.reading) as laid_out:
            yield laid_out

    @contextmanager
    def notes(self, notes: Iterable[Note]) -> Iterator[SideText]:
        """Lay out notes, each under the reference of its section."""
        talk, kept = self.conversation, tuple(notes)
        sequence = talk.engine.side_sequence()
        sequence.token_ids += talk.builder.scaffolding.head
        places = []
        for index, ids in enumerate(self.note_ids(kept)):
            places.append(TokenSpan(len(sequence.token_ids), len(ids), str(index)))
            sequence.token_ids += ids
        try:
            yield SideText(sequence, kept, SourceMap(places))
        finally:
            talk.engine.drop(sequence)

    def note_ids(self, notes: Iterable[Note]) -> list[list[int]]:
        """Each note as it is laid out, token ids."""
        texts = (f"Notes on {note.section.reference}:\n{note.text}\n\n" for note in notes)
        return self.conversation.builder.encode_content(texts)

    def note_sizes(self, notes: Sequence[Note]) -> list[int]:
        """Tokens of each note as it is laid out."""
        return [len(ids) for ids in self.note_ids(notes)]

    def section_of(self, notes: Sequence[Note]) -> Section:
        """What neighbouring notes are about together."""
        first, end = notes[0].section.first_token, notes[-1].section.end_token
        return section_at(self.conversation.source_map, first, end, self.page_tokens)

    @contextmanager
    def pages(self, pages: FocusPages, reading: Reading = Reading.REREAD) -> Iterator[SideText]:
        """Lay out some pages of the documents."""
        sequence = lay_out(self.conversation, pages, reading)
        try:
            yield SideText(sequence)
        finally:
            self.conversation.engine.drop(sequence)

    def text_of(self, reading: SideText) -> str:
        """What is laid out so far, as text."""
        return str(self.conversation.builder.backend.decode(reading.sequence.token_ids))

    def publish(self, task: str) -> None:
        """Say that all documents have been read and what comes now."""
        talk = self.conversation
        whole = talk.document_tokens
        talk.engine.telemetry.publish_task(task, whole, whole)

    def require_room(self, read_tokens: int, request: str, answer_tokens: int) -> None:
        """Refuse a request that cannot be put behind what is read.

        Raises:
            OverBudget: SideText, request and answer outgrow the window; nothing was computed.
        """
        window = self.conversation.engine.model.window
        asked = len(self.conversation.builder.first_request(request))
        need = read_tokens + asked + answer_tokens
        if need > window:
            raise OverBudget(
                f"{read_tokens:,} tokens to read, {asked:,} of the request and {answer_tokens:,} "
                f"for the answer are {need:,}: more than the window of {window:,}",
                "Ask for a shorter answer with --max-tokens, or shorten the question.",
            )

    def write(
        self,
        reading: SideText,
        request: str,
        sampling: SamplingConfig,
        on_text: OnText,
        on_step: Callable[[int, int], None] | None = None,
    ) -> Answer:
        """Write what a request asks for about a reading.

        Args:
            reading: Gets the request and the answer appended.
            request: Plain text.
            sampling: How to write.
            on_text: Given each piece as it comes.
            on_step: Told the tokens read and written so far.

        Returns:
            The answer, with the notes that drew the most attention as its sources.

        Raises:
            StopRequested: The user stopped before the answer began.
            OverBudget: It does not fit the window.
        """
        talk, sequence = self.conversation, reading.sequence
        engine, started = talk.engine, time.monotonic()
        asking, answering = (QueryRecorder(engine.model.lookup_layers) for _ in range(2))
        writing = AnswerText(talk.builder.backend, on_text)

        def check() -> None:
            if on_step is not None:
                on_step(sequence.num_tokens, writing.num_tokens)
            talk.check_stop()

        sequence.token_ids += talk.builder.first_request(request)
        prompt_tokens = len(sequence.token_ids)
        has_notes = reading.places is not None
        logits = engine.compute(sequence, recorder=asking if has_notes else None, on_step=check)
        ending = Ending.DONE
        tokens = engine.generate(
            sequence, logits, sampling, recorder=answering if has_notes else None
        )
        try:
            for token in tokens:
                writing.add(token)
                if writing.is_over:
                    break
                check()
        except StopRequested:
            ending = Ending.STOPPED
        writing.finish()
        was_ended = writing.is_over or sequence.token_ids[-1] in engine.model.eos_ids
        if ending is Ending.DONE and not was_ended:
            ending = Ending.CUT
        ended = time.monotonic()
        begun = writing.started_at or ended
        return Answer(
            text=writing.text.strip(),
            citations=self._cite(reading, asking, answering) if has_notes else (),
            ending=ending,
            prompt_tokens=prompt_tokens,
            new_tokens=writing.num_tokens,
            first_token_s=begun - started,
            decode_s=ended - begun,
        )

    def _cite(
        self, reading: SideText, asking: QueryRecorder, answering: QueryRecorder
    ) -> tuple[Citation, ...]:
        """The sections whose notes the answer looked at more than the request did."""
        assert reading.places is not None
        if not answering.queries or not reading.notes:
            return ()
        num_tokens = max(place.end_token for place in reading.places.spans)
        answer, request = (self._mass(reading, num_tokens, kept) for kept in (answering, asking))
        scores = probe_scores(answer, request)
        if not scores.any():  # the answer looked where the request had looked
            scores = probe_scores(answer, torch.zeros_like(answer))
        found = cite(scores.tolist(), reading.places, self.page_tokens)
        return tuple(
            reading.notes[int(source.path)].section.citation(source.weight) for source in found
        )

    def _mass(self, reading: SideText, num_tokens: int, recorder: QueryRecorder) -> Tensor:
        return self.conversation.engine.probe(reading.sequence, num_tokens, recorder)


def silent(_: str) -> None:
    """Hand a text to nobody."""
