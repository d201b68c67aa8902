"""The nouns of reading: spans, documents, skips, and the corpus they make up.

Owns what a reader returns and how progress is told. Knows no file format and no token.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Span:
    """A run of text with one source. The spans of a text file, joined, are the file's text."""

    text: str
    lines: tuple[int, int] | None = None
    """First and last line, 1-based and inclusive; in a notebook, lines of the cell."""
    page: int | None = None
    """Physical page, 1-based."""
    label: str | None = None
    """The printed page label, where it differs from the physical number."""
    name: str | None = None
    """What the lines define: "Scheduler.step", a heading, or "cell 3"; of a page, its section."""
    note: str | None = None
    """What the text cannot be understood without and does not hold: a table's header row."""


class DocumentKind(StrEnum):
    """What a document was read as."""

    PDF = "pdf"
    TEXT = "text"
    MARKDOWN = "markdown"
    CODE = "code"
    NOTEBOOK = "notebook"
    RST = "rst"
    TABLE = "table"
    HTML = "html"
    EPUB = "epub"
    DOCX = "docx"
    MAIL = "mail"


class Parsed(StrEnum):
    """How code was cut into spans."""

    DEFINITIONS = "definitions"
    LINES = "lines"


@dataclass(frozen=True, slots=True)
class Document:
    """One input that was read."""

    path: str
    """As shown to the user: relative to the folder given, or as typed; printable UTF-8."""
    kind: DocumentKind
    spans: tuple[Span, ...]
    sha256: str
    """Of the bytes on disk, hexadecimal."""
    num_bytes: int
    warnings: tuple[str, ...] = ()
    language: str | None = None
    parsed: Parsed | None = None
    """None for everything but code."""
    notes: tuple[str, ...] = ()
    """What reading did to the text, such as lines left out; nothing to worry about."""
    by_lines: str | None = None
    """Why code was cut by lines; None where it was not, and of a single line."""


class SkipReason(StrEnum):
    """Why an input was not read."""

    BINARY = "binary"
    DAMAGED = "damaged"
    EMPTY = "empty"
    ENCRYPTED = "encrypted"
    GENERATED = "generated"
    LINK = "link"
    NOT_REGULAR = "not-regular"
    SCANNED = "scanned"
    SECRET = "secret"
    SUBMODULE = "submodule"
    TOO_LARGE = "too-large"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Skip:
    """One input that was not read, and why."""

    path: str
    reason: SkipReason
    detail: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far reading has come. Sent before each file and after each PDF page."""

    path: str
    files_done: int
    num_files: int
    pages_done: int = 0
    num_pages: int | None = None
    """Pages of the PDF being read; None for other formats and before they are known."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Everything that was read, in reading order, and everything that was not."""

    documents: tuple[Document, ...]
    skipped: tuple[Skip, ...]
    warnings: tuple[str, ...]
    """About folders and listings; each document carries its own."""
    hidden: int = 0
    """Files of folders that `.kvcliignore` files hide."""

    def all_warnings(self) -> tuple[str, ...]:
        """Every warning, those of documents with their path in front."""
        of_documents = (f"{doc.path}: {text}" for doc in self.documents for text in doc.warnings)
        return (*self.warnings, *of_documents)
