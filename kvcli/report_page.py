"""A run as one page for a browser: figures, and curves that can be zoomed. Needs no network.

Owns the page's words, colours and layout. What is drawn is `kvcli.run_log`'s.
"""

from __future__ import annotations

from html import escape
from string import Template

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.telemetry import Phase
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
    Phase.IDLE: "#c4c4c4",
}
PHASE_NAMES = {
    Phase.COMPUTE: "compute",
    Phase.READ: "stall: read",
    Phase.WRITE: "stall: write",
    Phase.IDLE: "idle",
}
TITLES = (
    "tokens per second",
    "where the time goes",
    "pages by their fastest tier",
    "page reads by the tier that served them",
    "disk, MB per second",
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
</style></head><body>
<h1>$name</h1>
<p>$summary</p>
$tiers
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
    runs = f"The last of {log.num_runs:,} runs in the file. " if log.num_runs > 1 else ""
    return _PAGE.substitute(
        name=escape(name),
        summary=_summary(log),
        tiers=_tier_table(log),
        note=f"{runs}{len(log.samples):,} samples. Drag to zoom; double-click to go back.",
        plots=_plots(log).to_html(full_html=False, include_plotlyjs=True),
    )


def _summary(log: RunLog) -> str:
    last, seconds = log.last, log.last["seconds"]
    wall = max(float(last["wall_s"]), 1e-3)
    tokens = last["tokens_done"] + last["decoded_tokens"]
    shares = ", ".join(f"{PHASE_NAMES[p]} {seconds[p.value] / wall:.1%}" for p in Phase)
    return (
        f"<b>{tokens:,} tokens</b> in {format_clock(wall)} ({tokens / wall:,.0f} per second), "
        f"{last['decoded_tokens']:,} of them generated. Read {format_size(last['read_bytes'])} and "
        f"wrote {format_size(last['written_bytes'])} on disk. Of the time: {shares}."
    )


def _tier_table(log: RunLog) -> str:
    last = log.last
    total = max(1, sum(last["hits"].values()))
    rows = []
    for use in last["tiers"]:
        capacity = use["capacity_bytes"]
        of = "as much as there is" if capacity is None else format_size(capacity)
        rows.append(
            f"<tr><td>{escape(use['name'])}</td><td>{of}</td><td>{format_size(use['used_bytes'])}"
            f"</td><td>{use['pages']:,}</td><td>{use['evictions']:,}</td>"
            f"<td>{last['hits'].get(use['name'], 0) / total:.1%}</td></tr>"
        )
    heads = ("tier", "room", "used", "pages", "evictions", "served of all page reads")
    head = "".join(f"<th>{text}</th>" for text in heads)
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _plots(log: RunLog) -> go.Figure:
    figure = make_subplots(
        rows=len(TITLES), cols=1, shared_xaxes=True, vertical_spacing=0.045, subplot_titles=TITLES
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
        area(4, tier.value, log.hit_shares[tier], colour)
    line(5, "read", [rate / 1e6 for rate in log.read_per_s], PHASE_COLOURS[Phase.READ])
    line(5, "write", [rate / 1e6 for rate in log.written_per_s], PHASE_COLOURS[Phase.WRITE])
    figure.update_yaxes(range=[0, 1], tickformat=".0%", row=2, col=1)
    figure.update_yaxes(range=[0, 1], tickformat=".0%", row=4, col=1)
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(title_text="minutes", row=len(TITLES), col=1)
    legends = {
        f"legend{row}": {"y": figure.layout[f"yaxis{row if row > 1 else ''}"].domain[1], "x": 1.01}
        for row in range(1, len(TITLES) + 1)
    }
    figure.update_layout(
        height=1250, template="plotly_white", margin={"t": 40, "r": 150}, hovermode="x unified",
        **legends,
    )  # fmt: skip
    return figure
