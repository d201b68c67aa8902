"""The drawings of the report: the bridge from the side, and the sea bed along the piers."""

from __future__ import annotations

from itertools import pairwise

from reportlab.graphics.shapes import Drawing, Group, Line, Polygon, Rect, String
from reportlab.lib.colors import Color, HexColor

from bridge_report.layout import ACCENT, INK, SOFT, TEXT_WIDTH

WATER: Color = HexColor("#dbe8ef")
SAND: Color = HexColor("#e6dcc6")
PIERS = range(1, 14)
BEARINGS_PER_PIER = 4
MAIN_SPAN_SHARE = 2.2
"""Length of Span 8 as drawn, in approach spans."""


def _pier_positions(width: float) -> dict[int, float]:
    step = width / (13 + MAIN_SPAN_SHARE)
    return {pier: step * (pier if pier < 8 else pier - 1 + MAIN_SPAN_SHARE) for pier in PIERS}


def elevation(labelled: bool = True) -> Drawing:
    """Draw the whole bridge from the east, with or without the numbers of the piers."""
    width, height, deck = TEXT_WIDTH, 104.0, 44.0
    at = _pier_positions(width)
    drawing = Drawing(width, height)
    drawing.add(Rect(at[4] - 22, 6, at[10] - at[4] + 44, 16, fillColor=WATER, strokeColor=None))
    for pier, x in at.items():
        foot = 6 if 4 <= pier <= 10 else 22
        drawing.add(Rect(x - 1.6, foot, 3.2, deck - foot, fillColor=SOFT, strokeColor=None))
        if labelled:
            drawing.add(_label(x, -4, str(pier)))
    drawing.add(Rect(0, deck, width, 3.2, fillColor=INK, strokeColor=None))
    drawing.add(_abutment(0, deck, 1))
    drawing.add(_abutment(width, deck, -1))
    for tower in (at[7], at[8]):
        drawing.add(_tower(tower, deck, (at[8] - at[7]) / 2))
    if labelled:
        drawing.add(_label(12, deck + 10, "South"))
        drawing.add(_label(width - 12, deck + 10, "North"))
        drawing.add(_label((at[7] + at[8]) / 2, deck - 11, "Span 8"))
    return drawing


def _tower(x: float, deck: float, reach: float) -> Group:
    top = deck + 56
    group = Group(Rect(x - 2, 6, 4, top - 6, fillColor=ACCENT, strokeColor=None))
    for step in range(1, 6):
        share = step / 5
        for side in (-1, 1):
            foot = x + side * reach * 0.96 * share
            group.add(
                Line(
                    x,
                    top - 22 * (1 - share) - 2,
                    foot,
                    deck + 3,
                    strokeColor=ACCENT,
                    strokeWidth=0.5,
                )
            )
    return group


def _abutment(x: float, deck: float, inward: int) -> Polygon:
    points = [x, deck, x + 10 * inward, deck, x + 26 * inward, 22, x, 22]
    return Polygon(points, fillColor=SAND, strokeColor=None)


def sea_bed(scour_pier: int, scour: float) -> Drawing:
    """Draw the bed along the piers that stand in water, with the hole beside one of them."""
    width, height, surface = TEXT_WIDTH, 118.0, 96.0
    depths = {4: 4.1, 5: 6.3, 6: 8.2, 7: 11.4, 8: 11.9, 9: 7.6, 10: 4.4}
    scale = 5.6
    x = {pier: width * (index + 0.9) / 7.4 for index, pier in enumerate(depths)}
    bed = [(0.0, surface - 2.2 * scale)]
    for pier, depth in depths.items():
        level = surface - depth * scale
        if pier == scour_pier:
            hole = level - scour * scale
            bed += [(x[pier] - 17, level), (x[pier] - 8, hole), (x[pier] + 6, hole)]
        bed.append((x[pier] + 16, level))
    bed.append((width, surface - 2.0 * scale))
    drawing = Drawing(width, height)
    drawing.add(Rect(0, 0, width, surface, fillColor=WATER, strokeColor=None))
    outline = [*bed, (width, 0), (0.0, 0)]
    flat = [coordinate for point in outline for coordinate in point]
    drawing.add(Polygon(flat, fillColor=SAND, strokeColor=None))
    for start, end in pairwise(bed):
        drawing.add(Line(*start, *end, strokeColor=INK, strokeWidth=0.7))
    for pier in depths:
        drawing.add(Rect(x[pier] - 3, 12, 6, height - 26, fillColor=SOFT, strokeColor=None))
        drawing.add(_label(x[pier], height - 8, f"Pier {pier}"))
    drawing.add(Line(0, surface, width, surface, strokeColor=ACCENT, strokeWidth=0.6))
    return drawing


def roller_travel(seized: int) -> Drawing:
    """Draw the travel of one roller bearing a pier; bearing `seized` has none."""
    width, height = TEXT_WIDTH, 84.0
    step = width / len(PIERS)
    drawing = Drawing(width, height)
    for pier in PIERS:
        x = step * (pier - 0.5)
        drawing.add(_label(x, 0, str(pier)))
        fixed = pier in (7, 8)
        travel = (
            0 if fixed or pier == (seized - 1) // BEARINGS_PER_PIER + 1 else 35 - abs(7.5 - pier)
        )
        drawing.add(Rect(x - 9, 12, 18, travel * 1.6, fillColor=SOFT, strokeColor=None))
        drawing.add(_label(x, 15 + travel * 1.6, "fixed" if fixed else f"{travel:.0f}"))
    drawing.add(Line(0, 12, width, 12, strokeColor=INK, strokeWidth=0.7))
    return drawing


def _label(x: float, y: float, text: str) -> String:
    return String(
        x, y, text, fontName="Helvetica", fontSize=7.5, fillColor=INK, textAnchor="middle"
    )
