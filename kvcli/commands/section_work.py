"""What commands do section by section: summaries beyond the window, and thorough answers.

Owns how a run's documents, notes and options come together for it. The work itself is done by
`kvcli.summary` and `kvcli.thorough`.
"""

from __future__ import annotations

from dataclasses import replace

from kvcli.answer import Answer
from kvcli.prompts import SUMMARY_QUESTION
from kvcli.results import SectionResult
from kvcli.run import Run
from kvcli.sections import Section, cut_sections, section_tokens
from kvcli.side_reader import Note, SideReader
from kvcli.summary import NOTE_TOKENS, SectionSummary
from kvcli.thorough import ThoroughSearch
from kvcli.working_set import Reading


def summarize(job: Run) -> Answer:
    """Make the notes that are missing, and stream a summary of all.

    Without a session the documents are read only in sections: nothing else would need their KV,
    unless sections are to be given by it (`--attention stored`).

    Raises:
        KVError: Whatever stops the run.
    """
    reading = Reading.STORED if job.options.attention == "stored" else Reading.REREAD
    most, reader = _most_tokens(job), SideReader(job.conversation, reading)
    reader.require_room(most, SUMMARY_QUESTION, job.options.max_tokens)
    if job.file is not None or reading is Reading.STORED:
        job.read()
    sections = _sections(job, most)
    job.num_sections = len(sections)
    summary = SectionSummary(
        reader,
        most,
        replace(job.options.sampling, max_tokens=min(NOTE_TOKENS, most // 8), temperature=0.0),
        {(note.first_token, note.end_token): note.text for note in job.notes.sections},
        job.keep_note,
        job.output.status,
    )
    notes = summary.notes(sections)
    job.sections = tuple(_result(note) for note in notes)
    last = summary.condense(notes)
    return job.stream(lambda on_text: summary.write(last, job.options.sampling, on_text))


def answer_thoroughly(job: Run, question: str) -> Answer:
    """Ask every section and stream one answer. The turn is not remembered.

    Raises:
        KVError: Whatever stops the run.
    """
    most, reader = _most_tokens(job), SideReader(job.conversation)
    reader.require_room(most, f"Question: {question}", job.options.max_tokens)
    search = ThoroughSearch(
        reader, _sections(job, most), most, job.options.sampling, job.output.status
    )
    lines = search.lines(question)
    job.sections = tuple(_result(line.note) for line in lines)
    for found in job.sections:
        job.output.status(f"  {found.reference}: {found.text}")
    return job.stream(lambda on_text: search.answer(question, lines, on_text))


def _most_tokens(job: Run) -> int:
    return section_tokens(job.model.window, job.model.geometry.page_tokens)


def _sections(job: Run, most_tokens: int) -> list[Section]:
    talk, page_tokens = job.conversation, job.model.geometry.page_tokens
    return cut_sections(talk.source_map, talk.document_tokens, page_tokens, most_tokens)


def _result(note: Note) -> SectionResult:
    source = note.section.source
    return SectionResult(note.section.reference, source.path, source.page, source.lines, note.text)
