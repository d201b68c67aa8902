"""Paths in, corpus out: finds the files, reads each by what it is, and accounts for the rest.

Owns the order of things (PDF by content, then what `formats` knows, then text) and what happens
when nothing was readable. The nouns it returns are defined in `spans` and can be imported from
here.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from engine.errors import ConfigError, NothingReadable

from .code import CodeCutter
from .decode import NotText, decode
from .discover import Found, Selection, discover
from .format_process import FormatReader
from .formats import ParsedFormat, cut_file, parsed_format, refusal, save_as
from .giveaways import Secret, says_generated, secrets_in
from .languages import language_of
from .pdf import PdfRefused, read_pdf
from .pdf_process import WorkerLimits
from .reading import NotRead, NotThisFormat
from .spans import (
    Corpus,
    Document,
    DocumentKind,
    Parsed,
    Progress,
    Skip,
    SkipReason,
    Span,
)
from .text import split_lines

__all__ = [
    "Corpus",
    "Document",
    "DocumentKind",
    "Parsed",
    "Progress",
    "Skip",
    "SkipReason",
    "Span",
    "read_corpus",
]

DEFAULT_MAX_FILE_BYTES = 1 << 20
MAX_TEXT_BYTES = 256 << 20
"""Of a file that was named; it is held in memory several times over."""
MAX_STDIN_BYTES = 4 << 30
"""Standard input may have no end, and is kept on disk."""
_GENERATED_LINE_CHARS = 10_000
_HEAD_BYTES = 1024

_ADVICE = {
    SkipReason.SCANNED: "Run ocrmypdf on it first, then give kvcli the result.",
    SkipReason.ENCRYPTED: "Give a PDF's password with --password; save others without one.",
    SkipReason.BINARY: "Give text, code, a notebook, PDF, EPUB, .docx, mail or HTML.",
    SkipReason.DAMAGED: "Try another copy of the file.",
    SkipReason.NOT_REGULAR: "Pipe its contents in and give - as the path.",
    SkipReason.TOO_LARGE: "Give a part of it, name the file itself, or raise the limit.",
    SkipReason.SECRET: "Name the file itself to have it read all the same.",
    SkipReason.GENERATED: "Name the file itself to have it read all the same.",
    SkipReason.LINK: "Name the link's target.",
    SkipReason.SUBMODULE: "Give the repository's own path.",
    SkipReason.UNREADABLE: "Check the file's permissions.",
}


@dataclass(slots=True)
class _Reader:
    """What is the same for every file of one corpus."""

    password: str | None
    limits: WorkerLimits
    cutter: CodeCutter
    formats: FormatReader
    stdin: BinaryIO | None


def read_corpus(
    paths: Sequence[Path | str],
    *,
    password: str | None = None,
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    on_progress: Callable[[Progress], None] | None = None,
    stdin: BinaryIO | None = None,
    limits: WorkerLimits | None = None,
) -> Corpus:
    """Read files, folders and "-" (standard input) into spans.

    Args:
        paths: In the order in which they are to be read; a file met twice is read once.
        password: For encrypted PDFs that do not open without one.
        max_file_bytes: Larger files found in folders are skipped; named files are always read.
        include: Patterns in gitignore's notation; of a folder only matching files are read.
        exclude: Patterns of files in folders to leave out without mention.
        on_progress: Called before each file, after each PDF page, and at the end.
        stdin: Where "-" is read from, instead of the process's own standard input.
        limits: Time and memory that one file may cost that has to be parsed to become text.

    Raises:
        ConfigError: no path was given, or one does not exist or is a URL.
        NothingReadable: nothing was left to read; the message says why.
    """
    if not paths:
        raise ConfigError("no document or folder was given", "Give at least one path, or -.")
    tell = on_progress or (lambda _: None)
    discovery = discover(paths, Selection.of(max_file_bytes, include, exclude))
    limits = limits or WorkerLimits()
    reader = _Reader(password, limits, CodeCutter(), FormatReader(limits), stdin)
    documents: list[Document] = []
    skipped = discovery.skipped
    total = len(discovery.found)
    with closing(reader.formats):
        for done, found in enumerate(discovery.found):
            tell(Progress(found.shown, done, total))
            outcome = _read(found, reader, _page_teller(tell, found.shown, done, total))
            if isinstance(outcome, Document):
                documents.append(outcome)
            else:
                skipped.append(outcome)
    if not documents:
        raise _nothing_readable(paths, skipped)
    tell(Progress(documents[-1].path, total, total))
    return Corpus(tuple(documents), tuple(skipped), tuple(discovery.warnings), discovery.hidden)


def _page_teller(
    tell: Callable[[Progress], None], shown: str, done: int, total: int
) -> Callable[[int, int], None]:
    return lambda page, pages: tell(Progress(shown, done, total, page, pages))


def _read(found: Found, reader: _Reader, on_page: Callable[[int, int], None]) -> Document | Skip:
    if found.path is None:
        with tempfile.NamedTemporaryFile(prefix="kvcli-stdin-") as copy:
            source = reader.stdin or sys.stdin.buffer
            while chunk := source.read(1 << 20):
                copy.write(chunk)
                if copy.tell() > MAX_STDIN_BYTES:
                    return _too_much(found, MAX_STDIN_BYTES)
            copy.flush()
            with open(copy.name, "rb") as file:
                return _read_open(file, Path(copy.name), found, reader, on_page)
    try:
        with _open_regular(found.path, follow=found.is_named) as file:
            return _read_open(file, found.path, found, reader, on_page)
    except OSError as error:
        return Skip(found.shown, SkipReason.UNREADABLE, error.strerror or str(error))


def _open_regular(path: Path, *, follow: bool) -> BufferedReader:
    """Open what was a regular file when it was looked at, and still has to be one."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    handle = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"'{path}' is no longer a regular file")
    return os.fdopen(handle, "rb")


def _read_open(
    file: BufferedReader,
    path: Path,
    found: Found,
    reader: _Reader,
    on_page: Callable[[int, int], None],
) -> Document | Skip:
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    named_pdf = found.shown.lower().endswith(".pdf")
    if not head:
        return Skip(found.shown, SkipReason.EMPTY, "the file is empty")
    if head.startswith(b"%PDF-") or (named_pdf and b"%PDF-" in head):
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        outcome = read_pdf(str(path), reader.password, reader.limits, on_page)
        if isinstance(outcome, PdfRefused):
            return Skip(found.shown, outcome.reason, outcome.detail)
        return Document(
            found.shown, DocumentKind.PDF, outcome.spans, digest, file.tell(), outcome.warnings,
            notes=outcome.notes,
        )  # fmt: skip
    if named_pdf:
        return Skip(found.shown, SkipReason.DAMAGED, "named .pdf, but it is not a PDF inside")
    if one := parsed_format(head, found.shown, is_named=found.is_named):
        try:
            return _read_parsed(one, file, path, found, reader)
        except NotThisFormat:
            file.seek(0)
            read = _read_text(file, found, reader)
            if isinstance(read, Skip):
                return read
            told = f"not {one.kind.value}; read as text"
            return replace(read, warnings=(told, *read.warnings))
    return refusal(head, found.shown) or _read_text(file, found, reader)


def _read_parsed(
    one: ParsedFormat, file: BufferedReader, path: Path, found: Found, reader: _Reader
) -> Document | Skip:
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        reading = reader.formats.read(one.reader, str(path))
    except NotRead as refused:
        return Skip(found.shown, refused.reason, refused.detail)
    spans, warnings = tuple(reading.spans), tuple(reading.warnings)
    return Document(found.shown, one.kind, spans, digest, file.tell(), warnings)


def _too_much(found: Found, limit: int) -> Skip:
    return Skip(found.shown, SkipReason.TOO_LARGE, f"more than {limit:,} bytes, the most it takes")


def _read_text(file: BufferedReader, found: Found, reader: _Reader) -> Document | Skip:
    data = file.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        return _too_much(found, MAX_TEXT_BYTES)
    decoded = decode(data)
    if isinstance(decoded, NotText):
        return Skip(found.shown, SkipReason.BINARY, save_as(found.shown) or decoded.detail)
    text = decoded.text
    if not text.strip():
        return Skip(found.shown, SkipReason.EMPTY, "nothing but blank space")
    lines = split_lines(text)
    longest = max(map(len, lines))
    is_notebook = found.shown.lower().endswith(".ipynb")
    if longest > _GENERATED_LINE_CHARS and not found.is_named and not is_notebook:
        told = f"a line of {longest:,} characters, so hardly written by hand"
        return Skip(found.shown, SkipReason.GENERATED, told)
    secrets = () if found.is_named else tuple(secrets_in(text))
    if not found.is_named and (given_away := _given_away(secrets, lines, found.shown)):
        return given_away
    cut = cut_file(text, lines[0], found.shown, reader.cutter)
    hints = (secret.told() for secret in secrets)
    warnings = (*filter(None, (decoded.warning, cut.warning)), *hints)
    digest = hashlib.sha256(data).hexdigest()
    if not cut.spans:
        return Skip(found.shown, SkipReason.EMPTY, "a notebook without a filled cell")
    return Document(
        found.shown,
        cut.kind,
        cut.spans,
        digest,
        len(data),
        warnings,
        cut.language,
        cut.parsed,
        by_lines=cut.by_lines,
    )


def _given_away(secrets: Sequence[Secret], lines: Sequence[str], shown: str) -> Skip | None:
    """A skip for code that says it is generated, and for what is little else than a secret."""
    if language_of(shown, lines[0]) and (at := says_generated(lines)):
        return Skip(shown, SkipReason.GENERATED, f"line {at} says that a program wrote it")
    found = next((secret for secret in secrets if secret.is_all), None)
    return None if found is None else Skip(shown, SkipReason.SECRET, found.told())


def _nothing_readable(paths: Sequence[Path | str], skipped: Sequence[Skip]) -> NothingReadable:
    given = f"'{paths[0]}'" if len(paths) == 1 else f"{len(paths)} inputs"
    if not skipped:
        return NothingReadable(
            f"nothing readable in {given}: no file was found there",
            "Check the path, the ignore rules and the include and exclude patterns.",
        )
    reasons = Counter(skip.reason for skip in skipped)
    advice = _ADVICE.get(reasons.most_common(1)[0][0], "")
    if len(skipped) == 1:
        only = skipped[0]
        where = "" if only.path == str(paths[0]) else f"{only.path}: "
        return NothingReadable(f"nothing readable in {given}: {where}{only.detail}", advice)
    told = ", ".join(f"{count} {reason.value}" for reason, count in reasons.most_common())
    return NothingReadable(f"nothing readable in {given}: {told}", advice)
