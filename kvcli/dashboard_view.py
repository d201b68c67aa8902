"""How the live view looks: progress, tiers, where the document lies, links, where the time goes.

Owns what stands where, at 80 columns and in two halves beside each other from `WIDE` on. Draws from
samples alone (progress.py), with the marks of dashboard_marks.py, and prints nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from engine.telemetry import STALLS, Link, Phase, ResidencyMap, Sample, TierUse
from engine.types import Tier
from kvcli.dashboard_marks import (
    LABEL_COLUMNS,
    SHADES,
    Bar,
    Curve,
    Row,
    Section,
    Strip,
    spelled,
)
from kvcli.progress import (
    History,
    LinkRate,
    Rates,
    format_count,
    format_share,
    format_speed,
    hits_and_misses,
    time_shares,
)
from kvcli.sizes import format_clock, format_size

TIER_STYLES: dict[Tier | None, str] = {
    Tier.DEVICE: "bright_cyan",
    Tier.HOST: "dodger_blue2",
    Tier.DISK: "medium_purple3",
}
STALL_STYLES = {
    Phase.READ: "yellow3",
    Phase.WRITE: "dark_orange",
    Phase.COMMIT: "orange_red1",
    Phase.DECODE: "deep_pink2",
    Phase.LOCK: "red3",
}
LINK_NAMES = {
    Link.HOST_TO_DEVICE: "host→device",
    Link.DISK_TO_HOST: "disk→host",
    Link.HOST_TO_DISK: "host→disk",
}
LINK_STYLES = {
    Link.HOST_TO_DEVICE: STALL_STYLES[Phase.DECODE],
    Link.DISK_TO_HOST: STALL_STYLES[Phase.READ],
    Link.HOST_TO_DISK: STALL_STYLES[Phase.WRITE],
}
ECHO_COLUMNS = 2
"""Left free beside the panel: a terminal's echo of ^C must not wrap, or a line is left behind."""

WIDE, GAP = 160, 4
"""Columns from which two halves stand side by side, and what is free between them."""

_FRAME = 4
"""Columns of border and padding."""


def strip_columns(width: int) -> int:
    """Columns of the residency strip in a terminal of so many columns."""
    return max(1, width - ECHO_COLUMNS - _FRAME - LABEL_COLUMNS - 1)


@dataclass(frozen=True, slots=True)
class LivePanel:
    """The live view at one moment, as wide as the console less `ECHO_COLUMNS`."""

    sample: Sample
    history: History
    rates: Rates
    model: str
    shown: ResidencyMap | None = None
    """Where the main sequence lies; None: not known yet."""
    limits: Mapping[Link, float] = field(default_factory=dict)
    """Bytes per second that a link was measured to give, where that is known."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title = Text.assemble(
            (self.sample.task or "starting", "bold default"),
            (spelled(f" · {self.model}", options), "default"),
        )
        foot = f"{self.sample.total_pages:,} pages · {format_clock(self.sample.wall_s)} elapsed"
        yield Panel(
            Group(*self._body(options.max_width >= WIDE)),
            box=box.ROUNDED,
            border_style="grey42",
            title=title,
            title_align="left",
            subtitle=Text(spelled(foot, options)),
            subtitle_align="right",
            width=max(1, options.max_width - ECHO_COLUMNS),
        )

    def _body(self, is_wide: bool) -> list[RenderableType]:
        first = [self._progress(), self._where()]
        if not is_wide:
            return [*first, self._tiers(), self._links(), self._time(), self._stalls()]
        halves = Table.grid(padding=(0, GAP, 0, 0), expand=True)
        halves.add_column(ratio=1)
        halves.add_column(ratio=1)
        halves.add_row(Group(self._tiers(), self._time()), Group(self._links(), self._stalls()))
        return [*first, halves]

    def _progress(self) -> Section:
        sample, rates = self.sample, self.rates
        done, total = sample.tokens_done, sample.tokens_total
        share = done / total if total else 0.0
        if sample.decoded_tokens and done >= total:
            count, last = f"{sample.decoded_tokens:,} new tokens", ""
        else:
            count = f"{done:,} / {total:,}" if total else ""
            last = f"ETA {format_clock(rates.eta_s)}" if rates.eta_s is not None else ""
        bar = Bar([(share, "bold white")], glyphs="━", track="─")
        speed = f"{format_speed(rates.tokens)} tok/s" if rates.tokens else ""
        cells = [count, format_share(share) if total else "", speed, last]
        columns = [("", max(15, len(count))), ("", 4), ("", 11), ("", max(8, len(last)))]
        return Section(columns, [Row("tokens", bar, cells)])

    def _where(self) -> Section:
        legend = "█ device ▄ host ▁ disk"
        if self.shown is not None and self.shown.cells:
            each = self.shown.num_pages / len(self.shown.cells)
            about = "" if each.is_integer() else "~"
            if each > 1:
                legend += f" · cell = fastest of {about}{ceil(each):,} pages"
        where = Row("where", Strip(self.shown, TIER_STYLES))
        heat = Row("hot", Strip(self.shown, TIER_STYLES, heat=True))
        return Section([], [where, heat], heading=legend, label="document")

    def _tiers(self) -> Section:
        tiers = self.sample.tiers
        scale = max([*(t.capacity_bytes or 0 for t in tiers), *(t.used_bytes for t in tiers), 1])
        columns = [("used", 17), ("pages", 7), ("hot", 4), ("hit", 4), ("out", 7)]
        rows = [self._tier(use, scale) for use in tiers]
        return Section(columns, rows, heading="█ hot ▒ in use", label="tiers")

    def _tier(self, use: TierUse, scale: int) -> Row:
        style = TIER_STYLES[Tier(use.name)]
        room = use.capacity_bytes or scale
        parts = [
            (use.hot_bytes / room, f"bold {style}"),
            ((use.used_bytes - use.hot_bytes) / room, style),
        ]
        total, (hits, _) = sum(self.sample.hits.values()), hits_and_misses(self.sample, use.name)
        used = format_size(use.used_bytes)
        bounded = use.capacity_bytes is not None
        cells = [
            f"{used} / {format_size(use.capacity_bytes)}" if use.capacity_bytes else used,
            format_count(use.pages),
            format_share(use.hot_pages / use.pages) if use.pages else "",
            format_share(hits / total) if total else "",
            format_count(use.evictions) if bounded else "",
        ]
        return Row(use.name, Bar(parts, glyphs="█▒", track="─"), cells, style)

    def _links(self) -> Section:
        columns = [("now", 9), ("peak", 9), ("busy", 4), ("when busy", 9), ("moved", 7)]
        if self.limits:
            columns.insert(1, ("of max", 6))
        rows = [self._link(link) for link in Link]
        return Section(columns, rows, heading="last minute", label="links")

    def _link(self, link: Link) -> Row:
        rate = self.rates.links.get(link, LinkRate())
        curve = Curve(
            lambda columns: self.history.growth(lambda s: s.links[link].moved_bytes, columns),
            LINK_STYLES[link],
        )
        cells = [
            f"{format_size(rate.now)}/s",
            f"{format_size(rate.peak)}/s" if rate.peak else "",
            format_share(rate.busy),
            f"{format_size(rate.when_busy)}/s" if rate.when_busy else "",
            format_size(self.sample.links[link].moved_bytes),
        ]
        if self.limits:
            most = self.limits.get(link)
            cells.insert(1, format_share(rate.now / most) if most else "")
        return Row(LINK_NAMES[link], curve, cells)

    def _time(self) -> Section:
        sample, wall = self.sample, sum(self.sample.seconds.values()) or 1.0
        groups = {
            "compute": ((Phase.COMPUTE,), "green3"),
            "stall": (STALLS, "yellow3"),
            "idle": ((Phase.IDLE,), "grey62"),
        }
        rows = []
        for name, (phases, style) in groups.items():
            spent = sum(sample.seconds[phase] for phase in phases)
            curve = Curve(
                lambda columns, phases=phases: self.history.growth(  # type: ignore[misc]
                    lambda s: sum(s.seconds[phase] for phase in phases), columns
                ),
                style,
                top=1.0,
            )
            rows.append(Row(name, curve, [_format_span(spent), format_share(spent / wall)]))
        columns = [("in all", 7), ("share", 5)]
        return Section(columns, rows, heading="last minute", label="time")

    def _stalls(self) -> Section:
        spent = time_shares(self.sample)
        total = sum(spent[cause] for cause in STALLS) or 1.0
        bar = Bar([(spent[cause] / total, STALL_STYLES[cause]) for cause in STALLS])
        heads = [f"{shade} {cause.value}" for shade, cause in zip(SHADES, STALLS, strict=True)]
        columns = [(head, len(head)) for head in heads]
        cells = [format_share(spent[cause]) for cause in STALLS]
        return Section(
            columns,
            [Row("causes", bar, cells)],
            heading="share of the run",
            label="stalls",
            heading_styles=[STALL_STYLES[cause] for cause in STALLS],
        )


def _format_span(seconds: float) -> str:
    """Write seconds in seven letters at most."""
    return f"{seconds:.1f} s" if seconds < 100 else format_clock(seconds)
