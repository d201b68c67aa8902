"""Which reader reads which file, and what becomes of files that harm their reader."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from corpus_kit import MakeTree
from office_kit import docx, epub, paragraph, zipped

from engine.errors import NothingReadable
from kvcli.corpus.corpus import DocumentKind, SkipReason, read_corpus
from kvcli.corpus.format_process import FormatReader
from kvcli.corpus.formats import PARSED_FORMATS, TEXT_FORMATS, parsed_format
from kvcli.corpus.pdf_process import WorkerLimits
from kvcli.corpus.reading import NotRead

BOOK = epub({"a.xhtml": "<p>Text.</p>"}, {"a.xhtml": "One"})
LETTER = docx(paragraph("Text."))
PAGE = "<!-- c -->\n<!DOCTYPE html><p>Text.</p>"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600


def kind_of(path: Path) -> tuple[DocumentKind, str]:
    (document,) = read_corpus([path]).documents
    return document.kind, document.spans[-1].text


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.epub", BOOK, DocumentKind.EPUB),
        ("a.zip", BOOK, DocumentKind.EPUB),
        ("a.docx", LETTER, DocumentKind.DOCX),
        ("a.DOCX", LETTER, DocumentKind.DOCX),
        ("a.html", "<p>Text.", DocumentKind.HTML),
        ("a.txt", PAGE, DocumentKind.HTML),
        ("a", PAGE, DocumentKind.HTML),
        ("a.eml", "Subject: s\n\nText.\n", DocumentKind.MAIL),
        ("a.mbox", "From x\nSubject: s\n\nText.\n", DocumentKind.MAIL),
        ("a.rst", "Text.\n", DocumentKind.RST),
        ("a.csv", "a,b\nText.\n", DocumentKind.TABLE),
    ],
)
def test_a_named_file_is_read_as_what_it_is(
    tree: MakeTree, name: str, data: str | bytes, kind: DocumentKind
) -> None:
    found, text = kind_of(tree({name: data}) / name)
    assert found is kind
    assert text.endswith("Text.\n")


def test_html_is_source_in_folders_and_a_page_when_named(tree: MakeTree) -> None:
    root = tree({"a.html": "<p>Text.\n", "b.py": PAGE})
    assert [doc.kind for doc in read_corpus([root]).documents] == [DocumentKind.CODE] * 2
    assert kind_of(root / "b.py")[0] is DocumentKind.CODE
    assert kind_of(root / "a.html")[0] is DocumentKind.HTML


def test_documents_in_folders_are_read_by_one_worker(tree: MakeTree) -> None:
    files = {f"{i}.docx": docx(paragraph(f"Text {i}.")) for i in range(3)} | {"b.epub": BOOK}
    corpus = read_corpus([tree(files)])
    assert [doc.spans[0].text for doc in corpus.documents] == [
        "Text 0.\n", "Text 1.\n", "Text 2.\n", "Text.\n"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "reason", "told"),
    [
        ("a.docx", "text", SkipReason.DAMAGED, "named .docx, but it is not one inside"),
        ("a.epub", "<html>", SkipReason.DAMAGED, "named .epub, but it is not one inside"),
        ("a.docx", OLE, SkipReason.ENCRYPTED, "encrypted, or an old Word document"),
        ("a.doc", OLE, SkipReason.BINARY, "libreoffice --convert-to docx FILE"),
        ("a.rtf", r"{\rtf1 text}", SkipReason.BINARY, "rich text; save it as .docx"),
        ("a.xlsx", zipped({"xl/workbook.xml": "x"}), SkipReason.BINARY, "save it as CSV"),
        ("a.docx", zipped({"xl/workbook.xml": "x"}), SkipReason.BINARY, "save it as CSV"),
        ("a.docx", LETTER[:-40], SkipReason.DAMAGED, "not a whole zip archive"),
        ("a.html", b"\0\0", SkipReason.BINARY, "not text"),
        ("a.html", "<script>x</script>", SkipReason.EMPTY, "scripts are not run"),
        ("a.epub", "", SkipReason.EMPTY, "the file is empty"),
    ],
)
def test_what_cannot_be_read_says_why(
    tree: MakeTree, name: str, data: str | bytes, reason: SkipReason, told: str
) -> None:
    (skip,) = read_corpus([tree({name: data, "b.txt": "x"}) / name, tree({}) / "b.txt"]).skipped
    assert skip.reason is reason
    assert told in skip.detail


@pytest.mark.parametrize(
    ("name", "told"),
    [("a.eml", "not mail"), ("a.mbox", "not mail"), ("a.csv", "not a table")],
)
def test_what_is_named_wrong_is_read_as_text(tree: MakeTree, name: str, told: str) -> None:
    (document,) = read_corpus([tree({name: "only text\n"}) / name]).documents
    assert (document.kind, document.spans[0].text) == (DocumentKind.TEXT, "only text\n")
    assert document.warnings == (f"{told}; read as text",)


def test_text_that_cannot_be_encoded_does_not_reach_a_prompt(tree: MakeTree) -> None:
    """An encoding that writes half a character, which no tokenizer takes."""
    mail = "Subject: s\nContent-Type: text/plain; charset=unicode_escape\n\n\\ud800 half\n"
    assert kind_of(tree({"a.eml": mail}) / "a.eml")[1] == "? half\n"


def test_a_file_that_takes_too_long_does_not_cost_the_next(tree: MakeTree) -> None:
    """Opening a pipe that nobody writes to takes for ever. Another worker reads on."""
    root = tree({"b.docx": LETTER})
    os.mkfifo(root / "a.html")
    with closing(FormatReader(WorkerLimits(base_seconds=6.0))) as reader:
        with pytest.raises(NotRead, match="its reader took too long"):
            reader.read("html:read_page", str(root / "a.html"))
        assert reader.read("docx:read_docx", str(root / "b.docx")).spans[0].text == "Text.\n"


def test_deep_nesting_is_refused_not_a_crash(tree: MakeTree) -> None:
    deep = "<w:sdt><w:sdtContent>" * 20_000
    path = tree({"a.docx": docx(deep)}) / "a.docx"
    with pytest.raises(NothingReadable, match=r"damaged|nested|crashed"):
        read_corpus([path])


def test_memory_is_bounded(tree: MakeTree) -> None:
    path = tree({"a.docx": docx(paragraph("x") * 100_000)}) / "a.docx"
    with pytest.raises(NothingReadable, match=r"more memory|out of memory"):
        read_corpus([path], limits=WorkerLimits(memory_bytes=160 << 20))


def test_every_format_has_a_kind_and_suffixes_of_its_own() -> None:
    rows = [*TEXT_FORMATS, *PARSED_FORMATS]
    suffixes = [suffix for row in rows for suffix in row.suffixes]
    assert len(suffixes) == len(set(suffixes))
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in suffixes)
    assert parsed_format(b"x", "a.txt", is_named=True) is None
