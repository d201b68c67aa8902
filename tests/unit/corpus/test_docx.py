"""Word documents: text, lists, tables, notes and changes under headings, and no bomb opened."""

from __future__ import annotations

import io

import pytest
from office_kit import ENTITY_BOMB, docx, docx_parts, paragraph, zipped

from kvcli.corpus.docx import read_docx
from kvcli.corpus.reading import NotRead, Reading
from kvcli.corpus.spans import SkipReason


def read(data: bytes) -> Reading:
    return read_docx(io.BytesIO(data))


def text_of(body: str, **more: str) -> str:
    return "\n".join(span.text for span in read(docx(body, **more)).spans)


def test_spans_are_named_by_their_trail_of_headings() -> None:
    body = (
        paragraph("before") + paragraph("Use", style="U1") + paragraph("a")
        + paragraph("Linux", style="U2") + paragraph("b") + paragraph("End", style="U1")
    )  # fmt: skip
    assert [(span.name, span.text) for span in read(docx(body)).spans] == [
        (None, "before\n"),
        ("Use", "# Use\n\na\n"),
        ("Use > Linux", "## Linux\n\nb\n"),
        ("End", "# End\n"),
    ]


def test_lists_keep_their_order_and_nesting() -> None:
    items = (("a", 0), ("b", 1), ("c", 0))
    body = "".join(paragraph(text, level=level) for text, level in items)
    assert text_of(body) == "1. a\n  - b\n2. c\n"


def test_tables_keep_their_columns() -> None:
    rows = [("pier", "year"), ("7", "1990")]
    cells = ["".join(f"<w:tc>{paragraph(text)}</w:tc>" for text in row) for row in rows]
    header = f"<w:tr><w:trPr><w:tblHeader/></w:trPr>{cells[0]}</w:tr>"
    body = f"<w:tbl>{header}<w:tr>{cells[1]}</w:tr></w:tbl>"
    assert text_of(body) == "| pier | year |\n| --- | --- |\n| 7 | 1990 |\n"


def test_insertions_are_read_and_deletions_are_not() -> None:
    run = "<w:r><w:t>{}</w:t></w:r>"
    body = (
        f"<w:p>{run.format('It has ')}<w:del><w:r><w:delText>40</w:delText></w:r></w:del>"
        f"<w:ins>{run.format('50')}</w:ins>{run.format(' piers.')}</w:p>"
    )
    assert text_of(body) == "It has 50 piers.\n"


def test_notes_stand_under_a_name_of_their_own() -> None:
    body = (
        paragraph("Use", style="U1")
        + '<w:p><w:r><w:t>50 m</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r></w:p>'
    )
    note = f'<w:footnote w:id="2">{paragraph("Measured in 1998.")}</w:footnote>'
    named = [(span.name, span.text) for span in read(docx(body, footnotes=note)).spans]
    assert named == [
        ("Use", "# Use\n\n50 m^[1]\n"),
        ("Notes", "# Notes\n\n1. Measured in 1998.\n"),
    ]


def test_running_headers_are_told_once_and_page_numbers_never() -> None:
    parts = docx_parts(paragraph("text"), hdr=paragraph("Draft of May"), ftr=paragraph("12"))
    parts |= {"word/header1.xml": parts["word/hdr.xml"], "word/header2.xml": parts["word/hdr.xml"],
              "word/footer1.xml": parts["word/ftr.xml"]}  # fmt: skip
    (span,) = read(zipped(parts)).spans
    assert span.text == "[header: Draft of May]\n\ntext\n"


def test_what_is_not_read_is_told() -> None:
    namespace = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    body = f"<w:p><m:oMath {namespace}><m:r/></m:oMath></w:p>" + paragraph("text")
    reading = read(docx(body, comments=""))
    assert reading.warnings == ["1 equations are not read", "reviewers' comments are not read"]


def test_pictures_and_files_outside_are_not_opened() -> None:
    """A picture may name any file; mammoth is told to open none."""
    blip = (
        '<w:p><w:r><w:drawing><wp:inline xmlns:wp="http://schemas.openxmlformats.org/drawingml/'
        '2006/wordprocessingDrawing"><wp:docPr descr="the pier"/><a:graphic xmlns:a="http://'
        'schemas.openxmlformats.org/drawingml/2006/main"><a:graphicData><pic:pic xmlns:pic="http://'
        'schemas.openxmlformats.org/drawingml/2006/picture"><pic:blipFill><a:blip r:link="r9" '
        'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"/>'
        "</pic:blipFill></pic:pic></a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>"
    )
    links = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="r9" Type="image" TargetMode="External" Target="file:///etc/hostname"/>'
        "</Relationships>"
    )
    parts = docx_parts(blip + paragraph("text"))
    (span,) = read(zipped(parts | {"word/_rels/document.xml.rels": links})).spans
    assert span.text == "[image: the pier]\n\ntext\n"


@pytest.mark.parametrize(
    ("parts", "reason", "told"),
    [
        ({"xl/workbook.xml": ""}, SkipReason.BINARY, "a spreadsheet; save it as CSV"),
        ({"a.txt": "x"}, SkipReason.DAMAGED, "Could not find main document part"),
        (docx_parts(""), SkipReason.EMPTY, "a document without text"),
        (docx_parts("<w:p>") | {"word/styles.xml": "<w:styles"}, SkipReason.DAMAGED, "damaged"),
        (
            docx_parts("") | {"word/document.xml": ENTITY_BOMB + "<w>&l;</w>"},
            SkipReason.DAMAGED,
            "declares a document type",
        ),
        (
            docx_parts("") | {"word/styles.xml": (ENTITY_BOMB + "<w/>").encode("utf-16")},
            SkipReason.DAMAGED,
            "declares a document type",
        ),
    ],
    ids=range(6),
)
def test_what_is_no_document_is_refused(
    parts: dict[str, str | bytes], reason: SkipReason, told: str
) -> None:
    with pytest.raises(NotRead) as caught:
        read(zipped(parts))
    assert caught.value.reason is reason
    assert told in caught.value.detail
    assert "\n" not in caught.value.detail
