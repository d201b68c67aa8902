"""`kvcli bench evict RUN.jsonl...`: eviction policies compared on recorded runs.

Owns the capacities and the tables. What a policy would have done, `engine.policies` says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from engine.errors import ConfigError
from engine.policies.comparison import BELADY, Contender, compare, num_pages_read
from kvcli.access_log import AccessLog, read_accesses
from kvcli.options import RunOptions
from kvcli.output import Output, clean
from kvcli.sizes import format_size

SHARES = (1 / 8, 1 / 4, 1 / 2)
"""Of the pages that a run read, if nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One run replayed at several capacities."""

    path: Path
    log: AccessLog
    pages_read: int
    """Different pages that the run read."""
    contenders: dict[int, tuple[Contender, ...]]
    """By the tier's pages, ascending."""


def run(
    options: RunOptions,
    traces: tuple[Path, ...],
    *,
    pages: tuple[int, ...] = (),
    shares: tuple[float, ...] = (),
) -> None:
    """Print a table for each run, or under --json `{"traces": [...]}`.

    Args:
        options: How to speak.
        traces: What `--metrics` has written.
        pages: Capacities of the tier.
        shares: The same as shares of the pages that a run read; `SHARES` if neither is given.

    Raises:
        ConfigError: A capacity is no page at all.
        NothingReadable: There are no page accesses in a file.
    """
    output = Output(options)
    if not all(count > 0 for count in (*pages, *shares)):
        raise ConfigError("a tier of no pages holds nothing", "Give a number or a share above 0.")
    logs = [(path, read_accesses(path)) for path in traces]
    compared = []
    for path, log in logs:
        output.status(f"replaying {path}")
        compared.append(_compare(path, log, pages, shares if pages or shares else SHARES))
    if options.json:
        output.json({"traces": [_to_json(each) for each in compared]})
        return
    for each in compared:
        output.show(_table(each))


def _compare(path: Path, log: AccessLog, pages: Sequence[int], shares: Sequence[float]) -> Compared:
    pages_read = num_pages_read(log.accesses)
    asked = {*pages, *(max(1, round(share * pages_read)) for share in shares)}
    contenders = {capacity: compare(log.accesses, capacity) for capacity in sorted(asked)}
    return Compared(path, log, pages_read, contenders)


def _table(compared: Compared) -> Table:
    title = f"{compared.path.name}: {compared.pages_read:,} pages read {_reads(compared):,} times"
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False,
        title=Text(clean(title), "bold"), title_justify="left",
    )  # fmt: skip
    table.add_column("tier", justify="right")
    table.add_column("policy")
    for column in ("hit rate", "misses", "moved", "evictions", "regret"):
        table.add_column(column, justify="right")
    for capacity, contenders in compared.contenders.items():
        for contender in contenders:
            is_first = contender.policy == BELADY
            table.add_row(
                f"{capacity:,} pages" if is_first else "",
                Text(contender.policy, "dim" if is_first else "bold"),
                *_figures(contender, compared.log.page_bytes),
            )
        table.add_section()
    return table


def _figures(contender: Contender, page_bytes: int) -> tuple[str, ...]:
    result = contender.result
    return (
        f"{result.hit_rate:.1%}",
        f"{result.misses:,}",
        format_size(result.bytes_moved(page_bytes)),
        f"{result.evictions:,}",
        f"{contender.regret:.2f}" if math.isfinite(contender.regret) else "∞",
    )


def _reads(compared: Compared) -> int:
    """Reads of a page by an event; the same whoever replays them."""
    result = next(iter(compared.contenders.values()))[0].result
    return result.hits + result.misses


def _to_json(compared: Compared) -> dict[str, Any]:
    return {
        "path": str(compared.path),
        "pages_read": compared.pages_read,
        "reads": _reads(compared),
        "page_bytes": compared.log.page_bytes,
        "capacities": [
            {"pages": capacity, "policies": [_contender(each, compared.log) for each in contenders]}
            for capacity, contenders in compared.contenders.items()
        ],
    }


def _contender(contender: Contender, log: AccessLog) -> dict[str, Any]:
    """One policy's figures; a regret beyond all numbers is null."""
    result = contender.result
    return {
        "policy": contender.policy,
        "hit_rate": round(result.hit_rate, 4),
        "hits": result.hits,
        "misses": result.misses,
        "bytes_moved": result.bytes_moved(log.page_bytes),
        "evictions": result.evictions,
        "regret": round(contender.regret, 4) if math.isfinite(contender.regret) else None,
    }
