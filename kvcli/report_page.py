"""A run as one page for a browser: figures, and curves that can be zoomed. Needs no network.

Owns the page's words, colours and layout. What is drawn is `kvcli.run_log`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.telemetry import STALLS, Link, Phase
from engine.types import Tier
from kvcli.run_log import RunLog
from kvcli.sizes import format_clock, format_size

MARK = "<!-- kvcli report -->"
"""Begins every page, so that only a page of ours is ever replaced."""

TIER_COLOURS = {Tier.DEVICE: "#2a9d4a", Tier.HOST: "#d9a400", Tier.DISK: "#3b76c4"}
PHASE_COLOURS = {
    Phase.COMPUTE: "#2a9d4a",
    Phase.READ: "#3b76c4",
    Phase.WRITE: "#8e5bb5",
    Phase.COMMIT: "#c2569a",
    Phase.DECODE: "#e08a2e",
    Phase.LOCK: "#c0392b",
    Phase.IDLE: "#c4c4c4",
}
PHASE_NAMES = {Phase.COMPUTE: "compute", Phase.IDLE: "idle"} | {
    cause: f"stall: {cause.value}" for cause in STALLS
}
LINK_NAMES = {
    Link.HOST_TO_DEVICE: "host → device",
    Link.DISK_TO_HOST: "disk → host",
    Link.HOST_TO_DISK: "host → disk",
}
LINK_COLOURS = {
    Link.HOST_TO_DEVICE: PHASE_COLOURS[Phase.DECODE],
    Link.DISK_TO_HOST: PHASE_COLOURS[Phase.READ],
    Link.HOST_TO_DISK: PHASE_COLOURS[Phase.WRITE],
}
TITLES = (
    "tokens per second",
    "where the time goes",
    "pages by their fastest tier",
    "hot share of each tier's pages",
    "page reads by the tier that served them",
    "links, MB per second",
    "share of the time in which a link is busy",
)
BAR_PIXELS = 240
"""Length of the longest bar of a table."""

OLD = (
    "An older kvcli has written this file: commits count as stall: write, bringing up pages as "
    "compute, and hot pages, busy links and what came up from the host tier are not in it. "
)

_PAGE = Template(
    MARK
    + """
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>$name</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; color: #222; }
h1 { font-size: 1.3em; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: .2em .9em .2em 0; text-align: right; }
td:first-child, th:first-child { text-align: left; }
tr + tr td { border-top: 1px solid #ddd; }
.note { color: #666; }
.bar { background: #3b76c4; height: .8em; }
</style></head><body>
<h1>$name</h1>
<p>$summary</p>
$tables
<p class="note">$note</p>
$plots
</body></html>
"""
)


def report_page(log: RunLog, name: str) -> str:
    """Draw a run.

    Args:
        log: What happened.
        name: Stands above the page.

    Returns:
        HTML with everything in it.
    """
    age = OLD if log.is_old else ""
    runs = f"The last of {log.num_runs:,} runs in the file. " if log.num_runs > 1 else ""
    return _PAGE.substitute(
        name=escape(name),
        summary=_summary(log),
        tables=_tier_table(log) + _link_table(log) + _stall_table(log) + _reuse_table(log),
        note=f"{age}{runs}{len(log.samples):,} samples. Drag to zoom; double-click to go back.",
        plots=_plots(log).to_html(full_html=False, include_plotlyjs=True),
    )


def _summary(log: RunLog) -> str:
    last, seconds = log.last, log.last["seconds"]
    wall = max(float(last["wall_s"]), 1e-3)
    tokens = last["tokens_done"] + last["decoded_tokens"]
    stalled = sum(seconds[cause.value] for cause in STALLS)
    return (
        f"<b>{tokens:,} tokens</b> in {format_clock(wall)} ({tokens / wall:,.0f} per second), "
        f"{last['decoded_tokens']:,} of them generated. Read {format_size(last['read_bytes'])} and "
        f"wrote {format_size(last['written_bytes'])} on disk. Of the time: "
        f"compute {seconds['compute'] / wall:.1%}, stalls {stalled / wall:.1%}, "
        f"idle {seconds['idle'] / wall:.1%}."
    )


def _tier_table(log: RunLog) -> str:
    last = log.last
    total = max(1, sum(last["hits"].values()))
    rows = []
    for use in last["tiers"]:
        capacity = use["capacity_bytes"]
        rows.append(
            (
                use["name"],
                "as much as there is" if capacity is None else format_size(capacity),
                format_size(use["used_bytes"]),
                f"{use['pages']:,}",
                f"{use['hot_pages'] / max(1, use['pages']):.1%}",
                f"{use['evictions']:,}",
                f"{last['hits'].get(use['name'], 0) / total:.1%}",
            )
        )
    heads = ("tier", "room", "used", "pages", "hot", "evictions", "served of all page reads")
    return _table(heads, rows)


def _link_table(log: RunLog) -> str:
    rows = []
    for link, name in LINK_NAMES.items():
        use = log.last["links"][link.value]
        busy = use["busy_s"]
        rows.append(
            (
                name,
                format_size(use["moved_bytes"]),
                f"{use['moves']:,}",
                f"{busy:,.1f} s",
                f"{format_size(use['moved_bytes'] / busy)}/s" if busy else "",
                f"{format_size(log.peaks[link])}/s" if log.peaks[link] else "",
            )
        )
    return _table(("link", "moved", "moves", "busy", "rate when busy", "peak of a second"), rows)


def _stall_table(log: RunLog) -> str:
    seconds, wall = log.last["seconds"], max(float(log.last["wall_s"]), 1e-3)
    rows = [
        (cause.value, f"{seconds[cause.value]:,.2f} s", f"{seconds[cause.value] / wall:.2%}")
        for cause in STALLS
    ]
    return _table(("stalled by", "time", "of the run"), rows)


def _reuse_table(log: RunLog) -> str:
    """How many steps lay between two reads of a page, as bars in a table."""
    counts = log.last["reuse"]
    most = max(counts, default=0)
    if not most:
        return ""
    rows = []
    for octave, count in enumerate(counts):
        first, last = 2**octave, 2 ** (octave + 1) - 1
        steps = f"{first:,}" if first == last else f"{first:,}-{last:,}"
        rows.append((steps, f"{count:,}", f"{count / sum(counts):.1%}", _bar(count / most)))
    return _table(("steps between two reads of a page", "reads", "", ""), rows)


def _bar(share: float) -> str:
    return f'<div class="bar" style="width:{share * BAR_PIXELS:.0f}px"></div>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column names the rows."""
    head = "".join(f"<th>{text}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in (escape(row[0]), *row[1:])) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _plots(log: RunLog) -> go.Figure:
    figure = make_subplots(
        rows=len(TITLES), cols=1, shared_xaxes=True, vertical_spacing=0.033, subplot_titles=TITLES
    )
    minutes = [at / 60 for at in log.times]

    def line(row: int, name: str, values: list[float], colour: str) -> None:
        figure.add_scatter(
            x=minutes, y=values, name=name, mode="lines", legend=f"legend{row}",
            line={"color": colour, "width": 1.5}, row=row, col=1,
        )  # fmt: skip

    def area(row: int, name: str, values: list[float], colour: str) -> None:
        figure.add_scatter(
            x=minutes, y=values, name=name, mode="lines", legend=f"legend{row}",
            stackgroup=f"row{row}", line={"width": 0}, fillcolor=colour, row=row, col=1,
        )  # fmt: skip

    line(1, "read and generated", log.tokens_per_s, "#222222")
    for phase, name in PHASE_NAMES.items():
        area(2, name, log.shares[phase], PHASE_COLOURS[phase])
    for tier, colour in TIER_COLOURS.items():
        area(3, tier.value, [float(count) for count in log.pages[tier]], colour)
        line(4, tier.value, log.hot_shares[tier], colour)
        area(5, tier.value, log.hit_shares[tier], colour)
    for link, name in LINK_NAMES.items():
        line(6, name, [rate / 1e6 for rate in log.link_rates[link]], LINK_COLOURS[link])
        line(7, name, log.busy_shares[link], LINK_COLOURS[link])
    for row in (2, 4, 5, 7):
        figure.update_yaxes(range=[0, 1], tickformat=".0%", row=row, col=1)
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(title_text="minutes", row=len(TITLES), col=1)
    legends = {
        f"legend{row}": {
            "y": figure.layout[f"yaxis{row if row > 1 else ''}"].domain[1],
            "yanchor": "top",
            "x": 1.01,
        }
        for row in range(1, len(TITLES) + 1)
    }
    figure.update_layout(
        height=1750, template="plotly_white", margin={"t": 40, "r": 150}, hovermode="x unified",
        **legends,
    )  # fmt: skip
    return figure
