"""From facts and prose to what is typeset: front matter, sections, tables and component sheets.

Owns the small markup of `report.md`: `# heading`, paragraphs, `{fact}` and `@block`. Each fact
leaves an invisible mark where it is set, by which the layout knows its page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from reportlab.lib.units import mm
from reportlab.platypus import (
    CondPageBreak,
    Flowable,
    HRFlowable,
    KeepTogether,
    NextPageTemplate,
    PageBreak,
    Paragraph,
    Spacer,
    Table,
    TableStyle,
)

from bridge_report.facts import BridgeFacts, Fact
from bridge_report.figures import elevation, roller_travel, sea_bed
from bridge_report.layout import (
    ACCENT,
    BODY,
    CAPTION,
    CELL,
    CELL_RIGHT,
    HEADINGS,
    INK,
    NOTE,
    TEXT_WIDTH,
    Heading,
    contents_table,
)
from bridge_report.sheets import Sheet

BRIDGE = "Harrow Sound Bridge"
NUMBER = "Report HSB/PI/2024/03"


def build_story(facts: BridgeFacts, sheets: Sequence[Sheet]) -> list[Flowable]:
    """Everything that is typeset, from the title page to the last sheet."""
    return [*_title_page(facts), *_contents_page(), *_sections(facts), *_appendix(sheets)]


def marked(fact: Fact) -> str:
    """The fact's value in paragraph markup, with the mark that tells its page."""
    return f'<onDraw name="note_fact" label="{fact.key}"/>{escape(fact.value)}'


def _title_page(facts: BridgeFacts) -> Iterator[Flowable]:
    big = HEADINGS[0].clone("title", fontSize=31, leading=37, spaceAfter=4)
    middle = CAPTION.clone("subtitle", fontSize=15, leading=21, textColor=ACCENT)
    yield Spacer(1, 42 * mm)
    yield Paragraph(BRIDGE, big)
    yield Paragraph("Principal inspection 2024", middle)
    yield Spacer(1, 10 * mm)
    yield elevation(labelled=False)
    yield Spacer(1, 46 * mm)
    yield HRFlowable(width="100%", thickness=0.8, color=ACCENT, spaceAfter=9)
    small = CAPTION.clone("imprint", fontSize=10, leading=15)
    for line in (
        f"{NUMBER}, first issue",
        "Prepared for the Harrow Sound Crossing Authority, Port Elwick",
        "Prepared by Merrow Structural Surveys, Bridge Office",
    ):
        yield Paragraph(line, small)
    yield NextPageTemplate("front")
    yield PageBreak()


def _contents_page() -> Iterator[Flowable]:
    yield Heading("Contents", in_contents=False)
    yield contents_table()
    yield Spacer(1, 9 * mm)
    yield Paragraph(
        "This report is a specimen. The bridge, the people who inspected it and every measurement "
        "in it are invented. Grades run from 1 (as new) to 5 (unsafe). Piers and spans are "
        "numbered from the southern shore; chainages are in metres from the south abutment.",
        NOTE,
    )
    yield NextPageTemplate("body")
    yield PageBreak()


def _sections(facts: BridgeFacts) -> Iterator[Flowable]:
    blocks: dict[str, Callable[[BridgeFacts], Flowable]] = {
        "figure elevation": _elevation_figure,
        "figure travel": _travel_figure,
        "figure scour": _scour_figure,
        "table dimensions": _dimensions_table,
        "table ratings": _ratings_table,
        "table costs": _costs_table,
        "signatures": _signatures,
    }
    values = {key: marked(fact) for key, fact in facts.by_key.items()}
    section = 0
    for block in Path(__file__).with_name("report.md").read_text("utf-8").split("\n\n"):
        text = block.strip()
        if text.startswith("# "):
            section += 1
            # the summary has a page of its own
            yield PageBreak() if section == 2 else CondPageBreak(38 * mm)
            yield Heading(f"{section}  {text[2:]}")
        elif text.startswith("@"):
            yield blocks[text[1:]](facts)
        else:
            yield Paragraph(text.format_map(values), BODY)


def _appendix(sheets: Sequence[Sheet]) -> Iterator[Flowable]:
    """One component sheet a page, grouped by span."""
    for span, group in groupby(sheets, key=lambda sheet: sheet.span):
        for index, sheet in enumerate(group):
            yield PageBreak()
            if span == sheets[0].span and index == 0:
                yield Heading("Appendix  Component sheets")
            if index == 0:
                yield Heading(f"Sheets of Span {span}", level=1)
            yield Heading(sheet.title, level=1, in_contents=False)
            yield from _sheet(sheet)


def _sheet(sheet: Sheet) -> Iterator[Flowable]:
    cells = [text for label, value in sheet.details for text in (f"<b>{label}</b>", value)]
    yield _table([cells[i : i + 4] for i in (0, 4, 8)], [20, 50, 34, None], header=False)
    yield Spacer(1, 5 * mm)
    for paragraph in sheet.paragraphs:
        yield Paragraph(paragraph.format_map({sheet.fact.key: marked(sheet.fact)}), BODY)
    yield Spacer(1, 3 * mm)
    yield _table([("Other readings", sheet.column), *sheet.readings], [52, 50], right=(1,))
    yield Spacer(1, 5 * mm)
    yield _table([("Time", "Log"), *sheet.log], [18, 84])


def _elevation_figure(facts: BridgeFacts) -> Flowable:
    return _figure(
        elevation(),
        "Figure 1",
        "The bridge seen from the east, with the numbers of the piers. The approach spans are "
        "drawn shorter than they are; the towers and the water level at half tide are to scale.",
    )


def _travel_figure(facts: BridgeFacts) -> Flowable:
    bearing = facts.by_key["bearing"]
    return _figure(
        roller_travel(int(bearing.value[1:])),
        "Figure 2",
        "Travel of the outer roller bearings from June to September, in millimetres, by pier. "
        f"The towers have fixed bearings, and {marked(bearing)} shows no movement.",
    )


def _scour_figure(facts: BridgeFacts) -> Flowable:
    pier, scour = facts.by_key["scour_pier"], facts.by_key["scour"]
    return _figure(
        sea_bed(int(pier.value), float(scour.value)),
        "Figure 3",
        f"The sea bed along the piers that stand in water, from the soundings of the divers. Pier "
        f"{marked(pier)} shows the hole; depths are drawn five times larger than lengths.",
    )


def _dimensions_table(facts: BridgeFacts) -> Flowable:
    at = {key: marked(fact) for key, fact in facts.by_key.items()}
    rows = [
        ("Dimension", "Value"),
        ("Length between abutments", f"{at['length']} m"),
        ("Length of Span 8", f"{at['main_span']} m"),
        ("Width between parapets", "12.6 m"),
        ("Height of the towers above the deck", "48 m"),
        ("Clearance over the channel at highest tide", "29 m"),
    ]
    caption = (
        "Principal dimensions, from the drawings as built. They were checked on site by "
        "laser, and none was found to differ by more than the width of a hand."
    )
    return _captioned(_table(rows, [90, None], right=(1,)), "Table 1", caption)


def _ratings_table(facts: BridgeFacts) -> Flowable:
    rows = [
        ("Members", "Number", "2018", "2024", "Remark"),
        *[(group, str(n), before, now, remark) for group, n, before, now, remark in facts.ratings],
    ]
    caption = (
        "Condition ratings by group of members, from 1 (as new) to 5 (unsafe). Half steps are "
        "used where only a small part of a group is affected."
    )
    return _captioned(_table(rows, [40, 20, 17, 17, None], right=(1, 2, 3)), "Table 2", caption)


def _costs_table(facts: BridgeFacts) -> Flowable:
    rows = [
        ("Repair", "Section", "Urgency", "Cost (£)"),
        *[(r.item, r.section, r.urgency, f"{r.cost:,}") for r in facts.repairs],
        ("<b>Total</b>", "", "", f"<b>{marked(facts.by_key['total_cost'])}</b>"),
    ]
    caption = (
        "Repairs in order of urgency, with the section in which the defect is described. "
        "Prices of September 2024, access and traffic management included."
    )
    table = _table(rows, [72, 20, 28, None], right=(3,))
    table.setStyle(TableStyle([("LINEABOVE", (0, -1), (-1, -1), 0.4, INK)]))
    return _captioned(table, "Table 3", caption)


def _signatures(facts: BridgeFacts) -> Flowable:
    chief = facts.by_key["chief"]
    rows = [
        ("Signed", marked(chief), "chief inspector"),
        ("Date", "18 October 2024", "Port Elwick"),
    ]
    return KeepTogether([Spacer(1, 6 * mm), _table(rows, [24, 52, None], header=False)])


def _figure(drawing: Flowable, label: str, caption: str) -> Flowable:
    text = Paragraph(f"<b>{label}.</b> {caption}", CAPTION)
    return KeepTogether([Spacer(1, 3 * mm), drawing, Spacer(1, 2 * mm), text, Spacer(1, 2 * mm)])


def _captioned(table: Table, label: str, caption: str) -> Flowable:
    text = Paragraph(f"<b>{label}.</b> {caption}", CAPTION)
    return KeepTogether([Spacer(1, 2 * mm), text, table, Spacer(1, 5 * mm)])


def _table(
    rows: Sequence[Sequence[str]],
    widths_mm: Sequence[int | None],
    right: Sequence[int] = (),
    header: bool = True,
) -> Table:
    """A table ruled above, below and under its header; a width of None takes what is left."""
    fixed = sum(width for width in widths_mm if width is not None) * mm
    widths = [TEXT_WIDTH - fixed if width is None else width * mm for width in widths_mm]
    cells = [
        [
            Paragraph(
                f"<b>{text}</b>" if header and row == 0 else text,
                CELL_RIGHT if column in right else CELL,
            )
            for column, text in enumerate(texts)
        ]
        for row, texts in enumerate(rows)
    ]
    style = [
        ("LINEABOVE", (0, 0), (-1, 0), 0.9, INK),
        ("LINEBELOW", (0, -1), (-1, -1), 0.9, INK),
        ("TOPPADDING", (0, 0), (-1, -1), 2.5),
        ("BOTTOMPADDING", (0, 0), (-1, -1), 3.5),
        ("LEFTPADDING", (0, 0), (-1, -1), 2),
        ("RIGHTPADDING", (0, 0), (-1, -1), 9),
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
    ]
    if header:
        style.append(("LINEBELOW", (0, 0), (-1, 0), 0.4, INK))
    return Table(cells, colWidths=widths, style=TableStyle(style), hAlign="LEFT")
