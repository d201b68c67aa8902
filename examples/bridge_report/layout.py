"""The look of the report: paper, styles, running lines, page labels and the contents page.

Owns where things go on a page, and on which page each fact came to stand. Knows no prose.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from reportlab.lib.colors import Color, HexColor
from reportlab.lib.enums import TA_JUSTIFY, TA_RIGHT
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import BaseDocTemplate, Flowable, Frame, PageTemplate, Paragraph
from reportlab.platypus.tableofcontents import TableOfContents

INK: Color = HexColor("#1b2a38")
ACCENT: Color = HexColor("#1f4e6b")
SOFT: Color = HexColor("#8a97a3")

MARGIN = 31 * mm
TEXT_WIDTH = A4[0] - 2 * MARGIN
FRONT_PAGES = 2
"""Title and contents, labelled i and ii; the page after them is labelled 1."""

_SERIF: dict[str, Any] = {"fontName": "Times-Roman", "textColor": INK}
_SANS: dict[str, Any] = {"fontName": "Helvetica", "textColor": INK}

BODY = ParagraphStyle(
    "body", **_SERIF, fontSize=12, leading=18, alignment=TA_JUSTIFY, spaceAfter=8,
    hyphenationLang="en_GB", hyphenationMinWordLength=7, allowWidows=0, allowOrphans=0,
)  # fmt: skip
NOTE = ParagraphStyle("note", **_SERIF, fontSize=9.5, leading=13, alignment=TA_JUSTIFY)
CAPTION = ParagraphStyle("caption", **_SANS, fontSize=9, leading=12.5, spaceBefore=4, spaceAfter=7)
CELL = ParagraphStyle("cell", **_SERIF, fontSize=10, leading=12.5)
CELL_RIGHT = ParagraphStyle("cell-right", parent=CELL, alignment=TA_RIGHT)
HEADINGS = (
    ParagraphStyle(
        "h1", fontName="Helvetica-Bold", fontSize=16, leading=20, textColor=ACCENT,
        spaceBefore=16, spaceAfter=9, keepWithNext=1,
    ),
    ParagraphStyle(
        "h2", fontName="Helvetica-Bold", fontSize=12, leading=15, textColor=ACCENT,
        spaceBefore=10, spaceAfter=6, keepWithNext=1,
    ),
)  # fmt: skip
CONTENTS = (
    ParagraphStyle("toc1", **_SERIF, fontSize=11.5, leading=16),
    ParagraphStyle("toc2", **_SERIF, fontSize=10.5, leading=12.5, leftIndent=8 * mm),
)


class Heading(Paragraph):  # type: ignore[misc]
    """A heading that enters itself into the contents and the running header."""

    def __init__(self, text: str, level: int = 0, in_contents: bool = True) -> None:
        super().__init__(text, HEADINGS[level])
        self.plain = text
        self.level = level
        self.in_contents = in_contents


class ReportTemplate(BaseDocTemplate):  # type: ignore[misc]
    """Typesets the report and notes the physical pages on which each fact is stated."""

    def __init__(self, path: Path, title: str, number: str) -> None:
        super().__init__(
            str(path), pagesize=A4, invariant=1, pageCompression=1, title=title,
            author="Specimen", subject="Principal inspection", lang="en-GB",
        )  # fmt: skip
        self.report_title = title
        self.number = number
        self.section = ""
        self.fact_pages: dict[str, set[int]] = defaultdict(set)
        frame = Frame(MARGIN, 26 * mm, TEXT_WIDTH, A4[1] - 55 * mm, 0, 0, 0, 0, id="text")
        self.addPageTemplates(
            [
                PageTemplate("title", [frame]),
                PageTemplate("front", [frame], onPageEnd=self._running_lines),
                PageTemplate("body", [frame], onPageEnd=self._running_lines),
            ]
        )

    def beforeDocument(self) -> None:
        """Start a pass: label the pages and forget what the pass before has noted."""
        self.section = ""
        self.fact_pages.clear()
        self.canv.addPageLabel(0, style="ROMAN_LOWER", start=1)
        self.canv.addPageLabel(FRONT_PAGES, style="ARABIC", start=1)
        self.canv.setNamedCB("note_fact", self._note_fact)

    def afterFlowable(self, flowable: Flowable) -> None:
        """Enter headings into the contents, the outline and the running header."""
        if not isinstance(flowable, Heading):
            return
        if flowable.level == 0 or flowable.in_contents:
            self.section = flowable.plain
        if flowable.in_contents:
            key = f"heading-{self.page}-{flowable.level}"
            self.canv.bookmarkPage(key)
            self.canv.addOutlineEntry(flowable.plain, key, flowable.level, closed=1)
            entry = (flowable.level, flowable.plain, self.page, key)
            self.notify("TOCEntry", entry)

    def _note_fact(self, canvas: Canvas, kind: str, key: str) -> None:
        self.fact_pages[key].add(canvas.getPageNumber())

    def _running_lines(self, canvas: Canvas, _: BaseDocTemplate) -> None:
        top, bottom, right = A4[1] - 19 * mm, 15 * mm, A4[0] - MARGIN
        canvas.saveState()
        canvas.setFillColor(SOFT)
        canvas.setStrokeColor(SOFT)
        canvas.setLineWidth(0.4)
        canvas.setFont("Helvetica", 8.5)
        canvas.drawString(MARGIN, top, self.report_title)
        canvas.drawRightString(right, top, self.section)
        canvas.line(MARGIN, top - 5, right, top - 5)
        canvas.drawString(MARGIN, bottom, self.number)
        canvas.drawRightString(right, bottom, page_label(self.page))
        canvas.restoreState()


def page_label(page: int) -> str:
    """The label printed on a physical page, counted from 1."""
    return "i" * page if page <= FRONT_PAGES else str(page - FRONT_PAGES)


def contents_table() -> TableOfContents:
    """An empty table of contents, filled while the report is typeset.

    Without leader dots: they read as text, and a model would pay for each of them.
    """
    return TableOfContents(levelStyles=list(CONTENTS), dotsMinLevel=-1, formatter=page_label)
