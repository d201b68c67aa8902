"""Which reader reads which file, by its name and by how it begins.

Owns two tables. A format that is text is cut here, in this process; a format that has to be parsed
to become text is read in a child process. To add one:

1. Write `kvcli/corpus/NAME.py` with `cut_NAME(text) -> spans` (they are the text, joined; None: it
   is not NAME) or, to be read in the child, `read_NAME(file) -> Reading`.
2. Name its kind in `spans.DocumentKind`.
3. Add a row to `TEXT_FORMATS` or to `PARSED_FORMATS`.
4. Write tests/unit/corpus/test_NAME.py: what is kept, what is left out, and what is hostile.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .code import CodeCutter
from .languages import language_of
from .notebook import cut_notebook
from .rst import cut_rst
from .spans import DocumentKind, Parsed, Skip, SkipReason, Span
from .table import cut_table
from .text import cut_markdown, cut_text


@dataclass(frozen=True, slots=True)
class TextFormat:
    """A format whose files are text, and whose spans are that text."""

    kind: DocumentKind
    suffixes: tuple[str, ...]
    cut: Callable[[str], Sequence[Span] | None]
    otherwise: str = ""
    """The warning where a file is named like one and is none inside; it is read as plain text."""


@dataclass(frozen=True, slots=True)
class ParsedFormat:
    """A format that a reader in the child process turns into text."""

    kind: DocumentKind
    suffixes: tuple[str, ...]
    reader: str
    """`module:function` of this package."""
    magic: tuple[bytes, ...] = ()
    """How each of its files begins, where that tells. A file named like one that does not is
    damaged."""
    is_source_in_folders: bool = False
    """In a folder such a file is read as the text that it is."""


TEXT_FORMATS = (
    TextFormat(DocumentKind.MARKDOWN, (".md", ".markdown", ".mdown", ".mkd", ".mdx"), cut_markdown),
    TextFormat(DocumentKind.NOTEBOOK, (".ipynb",), cut_notebook, "not a notebook; read as text"),
    TextFormat(DocumentKind.RST, (".rst", ".rest"), cut_rst),
    TextFormat(
        DocumentKind.TABLE, (".csv", ".tsv", ".tab"), cut_table, "not a table; read as text"
    ),
)

_ZIP = (b"PK\x03\x04",)
_EPUB_MARK = b"mimetypeapplication/epub+zip"

# An HTML file of a repository is source: a template, a test case, a page that is built from it and
# edited by its tags. One that is named, or piped in, is a page to be read.
HTML = ParsedFormat(
    DocumentKind.HTML, (".html", ".htm", ".xhtml"), "html:read_page", is_source_in_folders=True
)
EPUB = ParsedFormat(DocumentKind.EPUB, (".epub",), "epub:read_epub", _ZIP)
PARSED_FORMATS = (
    HTML,
    EPUB,
    ParsedFormat(DocumentKind.DOCX, (".docx", ".docm"), "docx:read_docx", _ZIP),
    ParsedFormat(DocumentKind.MAIL, (".eml",), "mail:read_mail"),
    ParsedFormat(DocumentKind.MAIL, (".mbox",), "mail:read_mailbox"),
)

_PROLOGUE = re.compile(r"<!--.*?-->|<\?xml\b[^>]*\?>", re.DOTALL)
_HTML_START = re.compile(r"\s*<(?:!doctype\s+html|html)\b", re.IGNORECASE)
_RTF = b"{\\rtf"
_OLE = b"\xd0\xcf\x11\xe0"
_SAVE_AS = {
    ".doc": "an old Word document; save it as .docx (libreoffice --convert-to docx FILE)",
    ".rtf": "rich text; save it as .docx (libreoffice --convert-to docx FILE)",
    ".odt": "an OpenDocument text; save it as .docx (libreoffice --convert-to docx FILE)",
    ".xls": "an old spreadsheet; save it as CSV",
    ".xlsx": "a spreadsheet; save it as CSV",
    ".ods": "a spreadsheet; save it as CSV",
    ".ppt": "an old slide show; save it as PDF",
    ".pptx": "a slide show; save it as PDF",
    ".odp": "a slide show; save it as PDF",
    ".mobi": "a Kindle book; convert it to EPUB",
    ".azw3": "a Kindle book; convert it to EPUB",
    ".djvu": "a DjVu document; convert it to PDF",
}


def parsed_format(head: bytes, shown: str, *, is_named: bool) -> ParsedFormat | None:
    """The format of a file that has to be parsed; None: read it as text.

    Args:
        head: How the file begins.
        shown: Its name.
        is_named: Whether it was given by name, not found in a folder.
    """
    suffix = _suffix(shown)
    if head.startswith(_ZIP) and head[30 : 30 + len(_EPUB_MARK)] == _EPUB_MARK:
        return EPUB
    for one in PARSED_FORMATS:
        if suffix in one.suffixes and (not one.magic or head.startswith(one.magic)):
            return None if one.is_source_in_folders and not is_named else one
    is_other = suffix in _known_suffixes() or language_of(shown, "") is not None
    return HTML if is_named and not is_other and _begins_as_html(head) else None


def _known_suffixes() -> set[str]:
    return {suffix for one in (*TEXT_FORMATS, *PARSED_FORMATS) for suffix in one.suffixes}


def _begins_as_html(head: bytes) -> bool:
    text = head.removeprefix(codecs.BOM_UTF8).decode("latin-1")
    return _HTML_START.match(_PROLOGUE.sub("", text)) is not None


def refusal(head: bytes, shown: str) -> Skip | None:
    """Why a file is not read as text although it may be: it is named like a format and is not one
    inside, or it is of one that another program has to convert."""
    suffix = _suffix(shown)
    if head.startswith(_RTF):
        return Skip(shown, SkipReason.BINARY, _SAVE_AS[".rtf"])
    if not any(suffix in one.suffixes and one.magic for one in PARSED_FORMATS):
        return None
    if head.startswith(_OLE):
        told = "encrypted, or an old Word document; save it as .docx without a password"
        return Skip(shown, SkipReason.ENCRYPTED, told)
    return Skip(shown, SkipReason.DAMAGED, f"named {suffix}, but it is not one inside")


def save_as(shown: str) -> str | None:
    """What a file that is not text is by its name, and what it can be converted to."""
    return _SAVE_AS.get(_suffix(shown))


@dataclass(frozen=True, slots=True)
class Cut:
    """A text file as spans, and what it was read as."""

    kind: DocumentKind
    spans: tuple[Span, ...]
    warning: str | None = None
    language: str | None = None
    parsed: Parsed | None = None
    by_lines: str | None = None
    """See `Document`."""


def cut_file(text: str, first_line: str, shown: str, cutter: CodeCutter) -> Cut:
    """Cut a text file by what its name says that it is."""
    suffix = _suffix(shown)
    for one in TEXT_FORMATS:
        if suffix in one.suffixes:
            spans = one.cut(text)
            if spans is not None:
                return Cut(one.kind, tuple(spans))
            return Cut(DocumentKind.TEXT, tuple(cut_text(text)), one.otherwise)
    if language := language_of(shown, first_line):
        cut = cutter.cut(text, language)
        return Cut(
            DocumentKind.CODE, cut.spans, cut.warning, cut.language, cut.parsed, cut.by_lines
        )
    return Cut(DocumentKind.TEXT, tuple(cut_text(text)))


def _suffix(shown: str) -> str:
    return os.path.splitext(shown)[1].lower()
