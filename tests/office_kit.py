"""Small e-books, Word documents and hostile archives for tests, made on the spot."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

Parts = Mapping[str, str | bytes]

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_RELATIONSHIPS = "http://schemas.openxmlformats.org/package/2006/relationships"


def zipped(parts: Parts, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of parts by name, in order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def xhtml(body: str) -> str:
    """A page as e-books have it, with tags that close themselves."""
    return (
        '<?xml version="1.0"?>\n<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml">'
        f'<head><title/><script src="x.js"/></head><body>{body}</body></html>'
    )


def epub_parts(
    chapters: Mapping[str, str], titles: Mapping[str, str], *, with_ncx: bool = False
) -> dict[str, str | bytes]:
    """The parts of an e-book: bodies of chapters by file name, titles in its table of contents."""
    items = "".join(
        f'<item id="{name}" href="text/{name}" media-type="application/xhtml+xml"/>'
        for name in chapters
    )
    refs = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    links = "".join(f'<li><a href="text/{k}#top">{v}</a></li>' for k, v in titles.items())
    points = "".join(
        f'<navPoint><navLabel><text>{v}</text></navLabel><content src="text/{k}"/></navPoint>'
        for k, v in titles.items()
    )
    contents = (
        '<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
        if with_ncx
        else '<item id="nav" href="nav.xhtml" properties="nav"/>'
    )
    return {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": (
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="book/package.opf"/></rootfiles></container>'
        ),
        "book/package.opf": (
            f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{contents}{items}</manifest>'
            f'<spine toc="ncx">{refs}</spine></package>'
        ),
        "book/nav.xhtml": xhtml(f"<nav><ol>{links}</ol></nav>"),
        "book/toc.ncx": f"<!DOCTYPE ncx><ncx><navMap>{points}</navMap></ncx>",
        **{f"book/text/{name}": xhtml(body) for name, body in chapters.items()},
    }


def epub(chapters: Mapping[str, str], titles: Mapping[str, str]) -> bytes:
    """An e-book; its first part lies uncompressed, as the format wants it."""
    return zipped(epub_parts(chapters, titles), zipfile.ZIP_STORED)


def paragraph(text: str, *, style: str = "", level: int | None = None) -> str:
    """A paragraph of WordprocessingML: in a style, or an item of a numbered list."""
    properties = f'<w:pStyle w:val="{style}"/>' if style else ""
    if level is not None:
        properties += f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="1"/></w:numPr>'
    return (
        f'<w:p><w:pPr>{properties}</w:pPr><w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'
    )


def docx_parts(body: str, **more: str) -> dict[str, str | bytes]:
    """The parts of a Word document with styles U1 and U2 for headings and a list of two levels.

    Args:
        body: WordprocessingML.
        more: Contents of `word/NAME.xml`.
    """
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="U{n}"><w:name w:val="heading {n}"/></w:style>'
        for n in (1, 2)
    )
    levels = "".join(
        f'<w:lvl w:ilvl="{n}"><w:numFmt w:val="{kind}"/></w:lvl>'
        for n, kind in enumerate(("decimal", "bullet"))
    )
    return {
        "[Content_Types].xml": (
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
            '<Default Extension="xml" ContentType="application/xml"/></Types>'
        ),
        "_rels/.rels": f'<Relationships xmlns="{_RELATIONSHIPS}"/>',
        "word/document.xml": f"<w:document {_W}><w:body>{body}</w:body></w:document>",
        "word/styles.xml": f"<w:styles {_W}>{styles}</w:styles>",
        "word/numbering.xml": (
            f'<w:numbering {_W}><w:abstractNum w:abstractNumId="0">{levels}</w:abstractNum>'
            '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>'
        ),
        **{f"word/{name}.xml": f"<w:{name} {_W}>{data}</w:{name}>" for name, data in more.items()},
    }


def docx(body: str, **more: str) -> bytes:
    """A Word document."""
    return zipped(docx_parts(body, **more))


ENTITY_BOMB = (
    '<!DOCTYPE bomb [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(12))
    + "]>"
)
"""Entities that grow to 10^12 times their size; stands in front of a root element."""
