"""E-books: chapters in reading order under their titles, and no bomb opened."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

import pytest
from office_kit import ENTITY_BOMB, epub, epub_parts, zipped

from kvcli.corpus.epub import read_epub
from kvcli.corpus.reading import NotRead, Reading
from kvcli.corpus.spans import SkipReason

CHAPTERS = {"z.xhtml": "<p>First.</p>", "a.xhtml": "<h1>Two</h1><p>x</p><h2>Sub</h2><p>Last.</p>"}
TITLES = {"z.xhtml": "The  Start", "a.xhtml": "Two"}
Parts = dict[str, str | bytes]


def read(data: bytes) -> Reading:
    return read_epub(io.BytesIO(data))


def named(data: bytes) -> list[tuple[str | None, str]]:
    return [(span.name, span.text) for span in read(data).spans]


@pytest.mark.parametrize("with_ncx", [False, True])
def test_chapters_come_in_reading_order_under_their_titles(with_ncx: bool) -> None:
    assert named(zipped(epub_parts(CHAPTERS, TITLES, with_ncx=with_ncx))) == [
        ("The Start", "First.\n"),
        ("Two", "# Two\n\nx\n"),
        ("Two > Sub", "## Sub\n\nLast.\n"),
    ]


def test_a_file_that_the_contents_do_not_list_goes_on_with_its_chapter() -> None:
    data = epub(CHAPTERS | {"more.xhtml": "<p>And on.</p>"}, TITLES)
    assert named(data)[-1] == ("Two", "And on.\n")


def test_without_titles_parts_are_counted() -> None:
    assert [name for name, _ in named(epub(CHAPTERS, {}))] == ["part 1", "Two", "Two > Sub"]


def test_a_numbered_heading_does_not_repeat_its_chapter() -> None:
    """Two manuals' chapters were cited as "Scope > 1. Scope > 1.1. Aims"."""
    chapters = {"a.xhtml": "<h1>1. Scope</h1><p>x</p><h2>1.1. Aims</h2><p>y</p>"}
    names = [name for name, _ in named(epub(chapters, {"a.xhtml": "Scope"}))]
    assert names == ["Scope", "Scope > 1.1. Aims"]


def test_a_missing_chapter_is_told_and_the_others_are_read() -> None:
    parts = epub_parts(CHAPTERS, TITLES)
    del parts["book/text/z.xhtml"]
    reading = read(zipped(parts))
    assert reading.warnings == ["part 1 is not read: damaged: 'book/text/z.xhtml' is missing"]
    assert [span.name for span in reading.spans] == ["Two", "Two > Sub"]


def test_a_damaged_table_of_contents_costs_no_chapter() -> None:
    parts = epub_parts(CHAPTERS, TITLES, with_ncx=True) | {"book/toc.ncx": "<ncx><navPoint>"}
    assert [name for name, _ in named(zipped(parts))] == ["part 1", "Two", "Two > Sub"]


def protected(algorithm: str) -> bytes:
    told = (
        '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData>'
        f'<EncryptionMethod Algorithm="{algorithm}"/></EncryptedData></encryption>'
    )
    return zipped(epub_parts(CHAPTERS, TITLES) | {"META-INF/encryption.xml": told})


def test_copy_protection_is_named_and_scrambled_fonts_are_none() -> None:
    with pytest.raises(NotRead, match="DRM") as caught:
        read(protected("http://www.w3.org/2001/04/xmlenc#aes128-cbc"))
    assert caught.value.reason is SkipReason.ENCRYPTED
    assert len(read(protected("http://www.idpf.org/2008/embedding")).spans) == 3


def with_package(change: Callable[[str], str]) -> bytes:
    parts = epub_parts(CHAPTERS, TITLES)
    return zipped(parts | {"book/package.opf": change(str(parts["book/package.opf"]))})


def with_sizes(claimed: int) -> bytes:
    """An archive whose first chapter claims another unpacked size than it has."""
    data = bytearray(epub({"z.xhtml": "<p>" + "x" * 100_000}, {}))
    at = data.rindex(b"book/text/z.xhtml") - 46 + 24
    data[at : at + 4] = claimed.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"PK\x03\x04 and no more", "not a whole zip archive"),
        (epub(CHAPTERS, TITLES)[:-30], "not a whole zip archive"),
        (zipped({"mimetype": "application/epub+zip"}), "container.xml' is missing"),
        (with_package(lambda text: text[:40]), "is not XML"),
        (with_package(lambda text: ENTITY_BOMB + text), "declares entities"),
        (with_package(lambda _: "<a>" * 5_000), "nested too deeply"),
        (with_package(lambda _: "<package/>"), "without text"),
        (zipped({f"{i}": b"" for i in range(20_001)}), "20,001 entries"),
        (with_sizes(1 << 30), "more than a document has"),
        (with_sizes(1 << 29), "unpacks to 536,870,912 bytes"),
        (with_sizes(5), "does not unpack"),
    ],
    ids=range(11),
)
def test_hostile_books_are_refused(data: bytes, told: str) -> None:
    with pytest.raises(NotRead) as caught:
        read(data)
    assert told in caught.value.detail


def test_a_chapter_outside_the_archive_is_only_a_name_that_is_missing() -> None:
    data = with_package(lambda text: text.replace("text/z.xhtml", "../../../../etc/hostname"))
    (warning,) = read(data).warnings
    assert "is missing" in warning


def test_any_damage_is_refused_or_read() -> None:
    whole = zipped(epub_parts(CHAPTERS, TITLES), zipfile.ZIP_STORED)
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        try:
            assert read(bytes(damaged)).spans
        except NotRead as refusal:
            assert "\n" not in refusal.detail
