"""E-books, Word documents, pages, mail and tables through the whole command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Kvcli, check_refused
from office_kit import docx, epub, paragraph

SHORT = ("--max-tokens", 4)


def write(folder: Path, name: str, data: str | bytes) -> str:
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return name


def test_a_word_document_is_inspected(kvcli: Kvcli, tmp_path: Path) -> None:
    body = paragraph("Use", style="U1") + paragraph("The pier is sound.")
    ran = kvcli("inspect", write(tmp_path, "a.docx", docx(body)), "--json")
    assert ran.code == 0
    (file,) = ran.json["files"]
    assert (file["path"], file["kind"]) == ("a.docx", "docx")
    assert file["tokens"] > 10


def test_a_chapter_is_cited_by_its_name(kvcli: Kvcli, tmp_path: Path) -> None:
    book = epub({"a.xhtml": "<p>The pier is sound.</p>" * 40}, {"a.xhtml": "The Pier"})
    write(tmp_path, "a.epub", book)
    ran = kvcli("ask", *SHORT, "--doc", "a.epub", "Is the pier sound?")
    assert ran.code == 0
    assert 'a.epub "The Pier"' in ran.err


def test_a_page_piped_in_is_read_as_one(kvcli: Kvcli) -> None:
    page = b"<!doctype html><script>x</script><h1>Pier</h1><p>It is sound.</p>"
    ran = kvcli("inspect", "-", "--json", stdin=page)
    assert ran.json["files"][0]["kind"] == "html"


def test_an_attachment_that_is_not_read_is_a_warning(kvcli: Kvcli, tmp_path: Path) -> None:
    mail = (
        "Subject: Pier\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nIt is sound.\n"
        "--b\nContent-Type: image/png; name=a.png\n\nx\n--b--\n"
    )
    ran = kvcli("ask", *SHORT, "--doc", write(tmp_path, "a.eml", mail), "Is it sound?")
    assert ran.code == 0
    assert "warning: a.eml: 1 attachment is not read: a.png" in ran.err


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.docx", b"PK\x03\x04", "damaged: not a whole zip archive"),
        ("a.doc", b"\xd0\xcf\x11\xe0\0", "an old Word document; save it as .docx"),
        ("a.html", b"<script>x</script>", "a page without text; scripts are not run"),
    ],
)
def test_what_cannot_be_read_is_refused(
    kvcli: Kvcli, tmp_path: Path, name: str, data: bytes, told: str
) -> None:
    check_refused(kvcli("summarize", write(tmp_path, name, data)), 3, told, tmp_path)


@pytest.mark.parametrize("command", ["summarize", "inspect"])
def test_a_url_is_refused_with_advice(kvcli: Kvcli, tmp_path: Path, command: str) -> None:
    ran = kvcli(command, "https://example.org/a.pdf?b=1")
    check_refused(ran, 2, "is a URL, and kvcli reads files only", tmp_path)
    assert "curl -LO 'https://example.org/a.pdf?b=1'" in ran.error[1]
