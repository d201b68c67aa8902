"""`kvcli models`: the named models and those in the hub's cache.

Owns the table. What there is comes from `kvcli.models`.
"""

from __future__ import annotations

import dataclasses

from rich import box
from rich.table import Table
from rich.text import Text

from kvcli.models import ModelEntry, ModelState, list_models
from kvcli.options import RunOptions
from kvcli.output import Output, clean
from kvcli.sizes import format_size


def run(options: RunOptions) -> None:
    """Print the models, or under --json `{"models": [...]}`."""
    output = Output(options)
    entries = list_models()
    if options.json:
        output.json({"models": [dataclasses.asdict(entry) for entry in entries]})
    else:
        output.show(_table(entries))


def _table(entries: list[ModelEntry]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("model", "state", "size", "licence", "from"):
        table.add_column(column, justify="right" if column == "size" else "left")
    for entry in entries:
        cached = entry.state is ModelState.CACHED
        table.add_row(
            Text(clean(entry.name), "bold"),
            Text("ready" if cached else "to fetch", "green" if cached else "yellow"),
            format_size(entry.size_bytes),
            Text(clean(entry.licence)),
            Text(clean(entry.source)),
        )
    return table
