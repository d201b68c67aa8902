"""E-books (EPUB 2 and 3) to spans, chapter by chapter in reading order.

Owns the way from the container to the spine, the titles of chapters from the table of contents, and
telling copy protection from fonts that are merely obfuscated. Chapters are pages for `html`; lines
within them are not told, for nobody sees them: a chapter is cited by its name.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from .archive import Archive, parse_xml
from .blocks import Block, spans_of
from .decode import NotText
from .html import decode_html, links_of_nav, read_html
from .reading import NotRead, Reading
from .spans import SkipReason, Span

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_FONT_OBFUSCATION = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_PAGES = ("application/xhtml+xml", "text/html")


def read_epub(file: BinaryIO) -> Reading:
    """Read the chapters of a book.

    Raises:
        NotRead: It is damaged or protected, or holds no text.
    """
    archive = Archive(file)
    _refuse_protected(archive)
    container = parse_xml(archive.read(_CONTAINER), _CONTAINER)
    package_path = next((one.get("full-path", "") for one in container.iter("rootfile")), "")
    package = parse_xml(archive.read(package_path), package_path)
    items = {item.get("id", ""): item for item in package.iter("item")}
    titles = _titles(archive, package, posixpath.dirname(package_path), items)
    spans: list[Span] = []
    warnings: list[str] = []
    name = ""
    for number, item in enumerate(_spine(package, items), start=1):
        path = _resolved(posixpath.dirname(package_path), item.get("href", ""))
        try:
            blocks = _chapter(archive, path)
        except NotRead as refusal:
            warnings.append(f"part {number} is not read: {refusal.detail}")
            continue
        # What the table of contents does not list goes on with the chapter before it.
        has_heading = any(block.level == 1 for block in blocks)
        name = titles.get(path) or ("" if has_heading else name)
        spans += spans_of(blocks, *([name] if name or has_heading else [f"part {number}"]))
    if not spans:
        told = warnings[0] if warnings else "an e-book without text"
        raise NotRead(SkipReason.DAMAGED if warnings else SkipReason.EMPTY, told)
    return Reading(spans, warnings)


def _refuse_protected(archive: Archive) -> None:
    if _ENCRYPTION not in archive.names:
        return
    root = parse_xml(archive.read(_ENCRYPTION), _ENCRYPTION)
    for data in root.iter("EncryptedData"):
        methods = [method.get("Algorithm", "") for method in data.iter("EncryptionMethod")]
        if not any(method in _FONT_OBFUSCATION for method in methods):
            raise NotRead(SkipReason.ENCRYPTED, "copy protection (DRM) locks its text")


def _spine(package: Element, items: dict[str, Element]) -> Iterator[Element]:
    """The manifest's items in reading order, pages only."""
    for reference in package.iter("itemref"):
        item = items.get(reference.get("idref", ""))
        if item is not None and item.get("media-type", _PAGES[0]) in _PAGES:
            yield item


def _chapter(archive: Archive, path: str) -> list[Block]:
    decoded = decode_html(archive.read(path))
    if isinstance(decoded, NotText):
        raise NotRead(SkipReason.DAMAGED, f"'{path}' is {decoded.detail}")
    return [replace(block, lines=None) for block in read_html(decoded.text, with_title=False)]


def _titles(
    archive: Archive, package: Element, folder: str, items: dict[str, Element]
) -> dict[str, str]:
    """What the table of contents calls each file; empty where there is none, or a damaged one."""
    titles: dict[str, str] = {}
    try:
        for target, title in _contents(archive, package, folder, items):
            titles.setdefault(target, " ".join(title.split())[:120])
    except NotRead:
        pass  # chapters are named by their own headings then
    return titles


def _contents(
    archive: Archive, package: Element, folder: str, items: dict[str, Element]
) -> Iterator[tuple[str, str]]:
    """File and title of every entry of the table of contents, the newer form first."""
    for item in items.values():
        if "nav" in item.get("properties", "").split():
            path = _resolved(folder, item.get("href", ""))
            page = decode_html(archive.read(path))
            if not isinstance(page, NotText):
                for target, title in links_of_nav(page.text):
                    yield _resolved(posixpath.dirname(path), target), title
    spine = package.find("spine")
    ncx = items.get(spine.get("toc", "")) if spine is not None else None
    if ncx is not None:
        path = _resolved(folder, ncx.get("href", ""))
        for point in parse_xml(archive.read(path), path).iter("navPoint"):
            label, content = point.find("navLabel/text"), point.find("content")
            if label is not None and content is not None:
                target = _resolved(posixpath.dirname(path), content.get("src", ""))
                yield target, label.text or ""


def _resolved(folder: str, href: str) -> str:
    """The name in the archive that a link means. Only names in the archive are ever looked up."""
    return posixpath.normpath(posixpath.join(folder, unquote(href.partition("#")[0])))
