"""How the live view looks: a panel with progress, tiers, disk traffic and where the time goes.

Owns bars, colours and columns. Draws from samples alone (progress.py) and prints nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from engine.telemetry import Phase, Sample, TierUse
from kvcli.progress import History, Rates, format_speed, hits_and_misses, time_shares
from kvcli.sizes import format_clock, format_size

TIER_STYLES = {"device": "bright_cyan", "host": "dodger_blue2", "disk": "medium_purple3"}
PHASE_STYLES = {
    Phase.COMPUTE: "green3",
    Phase.READ: "yellow3",
    Phase.WRITE: "dark_orange",
    Phase.IDLE: "grey42",
}
# Shades differ too, so that a bar can be read without colours.
SHADES, ASCII_SHADES = "█▓▒░", "#=-."
LEVELS, ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
WIDE = 110
"""Columns from which counts of hits and misses have room."""


ECHO_COLUMNS = 2
"""Left free beside the panel: a terminal's echo of ^C must not wrap, or a line is left behind."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Parts of a whole side by side, as wide as there is room; what is missing to 1 stays empty."""

    parts: Sequence[tuple[float, str]]
    """Share and style of each part."""
    shaded: bool = True
    """Each part in a shade of its own; else all solid."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        solid, empty = ("#", "-") if options.ascii_only else ("━", "─")
        shades = ASCII_SHADES if options.ascii_only else SHADES
        text = Text(no_wrap=True)
        widths = self._widths(options.max_width)
        for index, ((_, style), width) in enumerate(zip(self.parts, widths, strict=True)):
            text.append((shades[index % 4] if self.shaded else solid) * width, style)
        left = options.max_width - sum(widths)
        text.append((" " if self.shaded else empty) * left, "grey30")
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
        return Measurement(6, options.max_width)


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Traffic over time; the colour says which way most of it went."""

    traffic: Sequence[tuple[float, float]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        levels = ASCII_LEVELS if options.ascii_only else LEVELS
        shown = self.traffic[-options.max_width :]
        peak = max((read + written for read, written in shown), default=0.0) or 1.0
        text = Text(" " * (options.max_width - len(shown)), no_wrap=True)
        for read, written in shown:
            style = PHASE_STYLES[Phase.READ] if read > written else TIER_STYLES["disk"]
            level = round((read + written) / peak * (len(levels) - 1))
            text.append(levels[level], style if level else "grey30")
        yield text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(6, options.max_width)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the panel."""

    label: str
    drawing: RenderableType
    cells: Sequence[str]
    style: str = ""


def live_panel(sample: Sample, history: History, rates: Rates, model: str, width: int) -> Panel:
    """The live view: progress, a row per tier, pages, disk traffic and where the time goes."""
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    for _ in range(6 if width >= WIDE else 4):
        grid.add_column(no_wrap=True, justify="right")
    for row in _rows(sample, history, rates, width):
        cells = [Text(cell) for cell in row.cells]
        grid.add_row(Text(row.label, row.style), row.drawing, *cells)
    title = Text.assemble(" ", (sample.task or "starting", "bold"), (f" · {model} ", "default"))
    return Panel(
        grid,
        box=box.ROUNDED,
        border_style="grey42",
        title=title,
        title_align="left",
        subtitle=Text(f" {format_clock(sample.wall_s)} elapsed "),
        subtitle_align="right",
        width=max(1, width - ECHO_COLUMNS),
    )


def _rows(sample: Sample, history: History, rates: Rates, width: int) -> Iterator[Row]:
    yield _progress_row(sample, rates)
    scale = max(
        [*(t.capacity_bytes or 0 for t in sample.tiers), *(t.used_bytes for t in sample.tiers), 1]
    )
    for use in sample.tiers:
        yield _tier_row(sample, use, scale, wide=width >= WIDE)
    pages = max(1, sample.total_pages)
    shares = [(use.pages / pages, TIER_STYLES.get(use.name, "")) for use in sample.tiers]
    cells = [f"{use.name} {use.pages / pages:.0%}" for use in sample.tiers]
    yield Row("pages", Bar(shares), [f"{sample.total_pages:,} in all", *cells])
    yield Row(
        "disk I/O",
        Sparkline(history.traffic()),
        [
            f"read {format_size(rates.read)}/s",
            f"write {format_size(rates.written)}/s",
            f"{format_size(sample.read_bytes)} in",
            f"{format_size(sample.written_bytes)} out",
        ],
    )
    spent = time_shares(sample)
    parts = [(spent[phase], style) for phase, style in PHASE_STYLES.items()]
    yield Row("time", Bar(parts), [f"{phase.value} {spent[phase]:.0%}" for phase in PHASE_STYLES])


def _progress_row(sample: Sample, rates: Rates) -> Row:
    done, total = sample.tokens_done, sample.tokens_total
    share = done / total if total else 0.0
    if sample.decoded_tokens and done >= total:
        count, last = f"{sample.decoded_tokens:,} new tokens", ""
    else:
        count = f"{done:,} / {total:,}" if total else ""
        last = f"ETA {format_clock(rates.eta_s)}" if rates.eta_s is not None else ""
    bar = Bar([(share, "bold white")], shaded=False)
    speed = f"{format_speed(rates.tokens)} tok/s" if rates.tokens else ""
    return Row("tokens", bar, [count, speed, f"{share:.0%}" if total else "", last])


def _tier_row(sample: Sample, use: TierUse, scale: int, *, wide: bool) -> Row:
    style = TIER_STYLES.get(use.name, "")
    bar = Bar([(use.used_bytes / (use.capacity_bytes or scale), style)], shaded=False)
    bounded = use.capacity_bytes is not None
    hits, misses = hits_and_misses(sample, use.name)
    total = sum(sample.hits.values())
    cells = [
        format_size(use.used_bytes)
        + (f" / {format_size(use.capacity_bytes or 0)}" if bounded else ""),
        f"{use.pages:,} pages",
        f"hit {hits / total:.0%}" if total else "",
        f"{use.evictions:,} out" if bounded else "",
    ]
    counts = [f"{hits:,} hits", f"{misses:,} misses"] if wide else []
    return Row(use.name, bar, [*cells, *counts], style)
