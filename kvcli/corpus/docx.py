"""Word documents (.docx) to spans, named by their trail of headings.

Owns what mammoth does not do: refusing bombs, running headers, and a name for the notes. mammoth
turns styles, lists, tables and notes into HTML: insertions that are still tracked are read,
deletions are not, nor are comments. A document has no lines or pages before it is laid out, so
places are cited by their headings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

import mammoth

from .archive import Archive, parse_xml
from .blocks import Block, spans_of
from .html import read_html
from .reading import NotRead, Reading
from .spans import SkipReason

_STYLES = "p[style-name='Title'] => h1:fresh"
_ID = "kvcli-"
_NOTES = re.compile(rf'<ol><li id="{_ID}(?:foot|end)note-')
_BACK = re.compile(rf' ?<a href="#{_ID}(?:foot|end)note-ref-[^"]*">↑</a>')
_MARGINS = re.compile(r"word/(header|footer)\d*\.xml")
_OTHERS = {
    "xl/workbook.xml": "a spreadsheet; save it as CSV",
    "ppt/presentation.xml": "a slide show; save it as PDF",
    "content.xml": "an OpenDocument file; save it as .docx or PDF",
}


def read_docx(file: BinaryIO) -> Reading:
    """Read a document's text.

    Raises:
        NotRead: It is damaged or encrypted, or holds no text.
    """
    archive = Archive(file)
    for name, what in _OTHERS.items():
        if name in archive.names:
            raise NotRead(SkipReason.BINARY, what)
    parts = [name for name in archive.names if name.endswith((".xml", ".rels"))]
    for name in parts:
        if b"<!DOCTYPE" in archive.read(name).replace(b"\0", b""):  # also as UTF-16
            raise NotRead(SkipReason.DAMAGED, f"'{name}' declares a document type; Word never does")
    try:
        html = str(_convert(file))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # damage shows as whatever the library trips over first
        raise NotRead(SkipReason.DAMAGED, f"damaged: {_told(error)}") from error
    blocks = [*_margins(archive), *_blocks(html)]
    if not blocks:
        raise NotRead(SkipReason.EMPTY, "a document without text")
    return Reading(spans_of(blocks), list(_warnings(archive)))


def _convert(file: BinaryIO) -> Any:
    file.seek(0)
    return mammoth.convert_to_html(
        file,
        style_map=_STYLES,
        id_prefix=_ID,
        convert_image=mammoth.images.img_element(lambda _: {}),
        include_embedded_style_map=False,
        external_file_access=False,
    ).value


def _blocks(html: str) -> list[Block]:
    notes = _NOTES.search(html)
    if notes:
        html = f"{html[: notes.start()]}<h1>Notes</h1>{html[notes.start() :]}"
    read = read_html(_BACK.sub("", html), with_title=False)
    return [replace(block, lines=None) for block in read]


def _margins(archive: Archive) -> Iterator[Block]:
    """The text of running headers and footers, each once; page numbers alone say nothing."""
    told = set()
    for name in sorted(archive.names):
        if margin := _MARGINS.fullmatch(name):
            root = parse_xml(archive.read(name), name)
            pieces = [node.text or "" if node.tag == "t" else " " for node in root.iter()
                      if node.tag in ("t", "p", "tab", "br")]  # fmt: skip
            text = " ".join("".join(pieces).split())
            if re.search(r"[^\W\d_]{2}", text) and text not in told:
                told.add(text)
                yield Block(f"[{margin[1]}: {text}]", is_tight=len(told) > 1)


def _warnings(archive: Archive) -> Iterator[str]:
    body = archive.read("word/document.xml") if "word/document.xml" in archive.names else b""
    if equations := len(re.findall(rb"<m:oMath[ >]", body)):
        yield f"{equations} equations are not read"
    if any(name.startswith("word/comments") for name in archive.names):
        yield "reviewers' comments are not read"


def _told(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
