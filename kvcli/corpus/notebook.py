"""Jupyter notebooks: the source of each cell and what it printed; pictures as sized placeholders.

Owns the two fields of the format that are text. Whatever is not a notebook of version 4 inside is
refused, so that the caller can read it as plain text.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from .spans import Span
from .text import cut_lines, split_lines, whole_characters

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MAX_OUTPUT_CHARS = 4_000


def cut_notebook(text: str) -> list[Span] | None:
    """One span or more for each cell, named "cell 3"; None when this is not a notebook.

    Lines count within the cell. Each cell opens with a `# %%` line, which is not counted.
    """
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return None
    spans: list[Span] = []
    for number, cell in enumerate(cells, start=1):
        if isinstance(cell, dict):
            spans += _cell(number, cell)
    return [replace(span, text=whole_characters(span.text)) for span in spans]


def _cell(number: int, cell: dict[str, Any]) -> list[Span]:
    name = f"cell {number}"
    kind = cell.get("cell_type")
    lines = split_lines(_ended(_joined(cell.get("source"))))
    parts = cut_lines(lines, 0, len(lines), name=name)
    if parts:
        header = f"# %% {name}" + ("" if kind == "code" else f" [{kind}]") + "\n"
        parts[0] = Span(header + parts[0].text, lines=parts[0].lines, name=name)
    outputs = cell.get("outputs")
    told = (
        [_output(one) for one in outputs if isinstance(one, dict)]
        if isinstance(outputs, list)
        else []
    )
    printed = "".join(_ended(one) for one in told if one.strip())
    if printed:
        parts.append(Span(f"# output of {name}\n{printed}", name=f"{name} output"))
    return parts


def _output(output: dict[str, Any]) -> str:
    """What an output shows as text, cut where it floods."""
    if output.get("output_type") == "error":
        shown = f"{output.get('ename')}: {output.get('evalue')}"
    elif "text" in output:
        shown = _joined(output["text"])
    else:
        data = output.get("data")
        shown = _rich(data) if isinstance(data, dict) else ""
    shown = _ANSI.sub("", shown)
    if len(shown) <= _MAX_OUTPUT_CHARS:
        return shown
    left_out = len(shown) - _MAX_OUTPUT_CHARS
    return f"{shown[:_MAX_OUTPUT_CHARS]}\n[{left_out:,} more characters of output left out]"


def _rich(data: dict[str, Any]) -> str:
    images = [
        f"[{kind}, about {len(_joined(value)) * 3 // 4:,} bytes]"
        for kind, value in data.items()
        if kind.startswith("image/")
    ]
    text = "" if images else _joined(data.get("text/plain"))
    return "\n".join([*images, text]).strip()


def _joined(value: object) -> str:
    """A notebook's multi-line string: a list of pieces, or one string."""
    if isinstance(value, list):
        return "".join(piece for piece in value if isinstance(piece, str))
    return value if isinstance(value, str) else ""


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
