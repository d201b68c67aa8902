"""What the live view is drawn with: bars, curves, the residency strip, and tables of them.

Owns glyphs and widths. Everything can be read without colours and in ASCII, and takes exactly the
columns it is given. Knows no meaning of what it draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from engine.telemetry import ResidencyMap
from engine.types import Tier

# Shades differ too, so that a bar can be read without colours.
SHADES, ASCII_SHADES = "█▓▒░▞", "#=-.+"
# No full block: curves under each other must not grow together.
LEVELS, ASCII_LEVELS = "▁▂▃▄▅▆▇", "_.:-=+*"
# The faster its tier, the higher a cell stands.
TIER_GLYPHS = {Tier.DEVICE: "█", Tier.HOST: "▄", Tier.DISK: "▁", None: " "}
HOT_GLYPH = "•"
_TO_ASCII = str.maketrans(
    dict(zip(SHADES + LEVELS, ASCII_SHADES + ASCII_LEVELS, strict=True))
    | {"▄": "=", "•": "^", "·": "-", "→": ">", "━": "#", "─": "."}
)
FAINT = "grey42"

LABEL_COLUMNS = 11
LEAST_DRAWING = 6
"""Columns of the narrowest drawing; columns of figures give way to it, the last ones first."""


def spelled(text: str, options: ConsoleOptions) -> str:
    """The text as it can be shown there."""
    return text.translate(_TO_ASCII) if options.ascii_only else text


@dataclass(frozen=True, slots=True)
class Bar:
    """Parts of a whole side by side, as wide as there is room; what is missing to 1 stays empty."""

    parts: Sequence[tuple[float, str]]
    """Share and style of each part."""
    glyphs: str = SHADES
    """One for each part."""
    track: str = " "
    """What the empty rest is filled with."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        glyphs, track = spelled(self.glyphs, options), spelled(self.track, options)
        text = Text(no_wrap=True)
        widths = self._widths(options.max_width)
        for glyph, (_, style), width in zip(glyphs, self.parts, widths, strict=False):
            text.append(glyph * width, style)
        text.append(track * (options.max_width - sum(widths)), "grey30")
        yield text

    def _widths(self, room: int) -> list[int]:
        """Columns of each part; what exists can be seen, at the expense of the largest."""
        widths = [max(1, round(share * room)) if share > 0 else 0 for share, _ in self.parts]
        whole = round(sum(share for share, _ in self.parts) * room)
        most = min(room, max(whole, sum(share > 0 for share, _ in self.parts)))
        while sum(widths) > most:
            widths[widths.index(max(widths))] -= 1
        return widths

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(LEAST_DRAWING, options.max_width)


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure over time: the newest on the right, nothing where it is 0 or unknown."""

    values: Callable[[int], Sequence[float | None]]
    """Gives as many as there are columns."""
    style: StyleType = ""
    top: float | None = None
    """What the highest level stands for; None: the highest value shown."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        values = self.values(options.max_width)
        top = self.top or max((value or 0.0 for value in values), default=0.0) or 1.0
        text = Text(no_wrap=True, style=self.style)
        for value in values:
            if not value:
                text.append(" ")
                continue
            level = min(len(LEVELS) - 1, int(value / top * len(LEVELS)))
            text.append((ASCII_LEVELS if options.ascii_only else LEVELS)[level])
        yield text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(LEAST_DRAWING, options.max_width)


@dataclass(frozen=True, slots=True)
class Strip:
    """The main sequence from left to right: where it lies, or what of it is hot."""

    shown: ResidencyMap | None
    styles: dict[Tier | None, str]
    heat: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = self.shown.cells if self.shown else ()
        text = Text(no_wrap=True)
        if not cells:
            text.append(" " * options.max_width)
        for column in range(options.max_width if cells else 0):
            cell = cells[column * len(cells) // options.max_width]
            style = self.styles.get(cell.tier, "")
            if self.heat:
                text.append(spelled(HOT_GLYPH, options) if cell.is_hot else " ", style)
            else:
                text.append(spelled(TIER_GLYPHS[cell.tier], options), style)
        yield text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(LEAST_DRAWING, options.max_width)


@dataclass(frozen=True, slots=True)
class Row:
    """One line: a label, a drawing, figures."""

    label: str
    drawing: RenderableType
    cells: Sequence[str] = ()
    style: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Rows under one heading. Columns of figures keep their widths, so that nothing jumps."""

    columns: Sequence[tuple[str, int]]
    """Heading and width of each column of figures."""
    rows: Sequence[Row]
    heading: str | None = None
    """Stands above the drawings; None: no line of headings."""
    label: str = ""
    heading_styles: Sequence[str] = field(default_factory=tuple)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns, room = list(self.columns), options.max_width - LABEL_COLUMNS - 1
        while columns and room - sum(width + 1 for _, width in columns) < LEAST_DRAWING:
            columns.pop()
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(no_wrap=True, overflow="crop", width=LABEL_COLUMNS)
        grid.add_column(no_wrap=True, overflow="crop", ratio=1)
        for _, width in columns:
            grid.add_column(no_wrap=True, overflow="crop", justify="right", width=width)
        if self.heading is not None:
            styles = [*self.heading_styles, *[FAINT] * len(columns)]
            heads = [
                Text(spelled(head, options), style)
                for (head, _), style in zip(columns, styles, strict=False)
            ]
            heading = Text(spelled(self.heading, options), FAINT)
            grid.add_row(Text(self.label, FAINT), heading, *heads)
        for row in self.rows:
            cells = [Text(spelled(cell, options)) for cell in row.cells[: len(columns)]]
            grid.add_row(Text(spelled(row.label, options), row.style), row.drawing, *cells)
        yield grid
