"""`kvcli sessions [FOLDER...]`: sessions that were used lately, and those that lie in a folder.

Owns the table and what is said of a session's state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from engine.errors import ConfigError, KVError, SessionLocked
from engine.session import describe, require_unwritten
from kvcli.options import RunOptions
from kvcli.output import Output, clean
from kvcli.recent_sessions import recent_sessions
from kvcli.sizes import format_ago, format_size

MOST_SOURCES = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One session."""

    path: str
    used: datetime
    """When it was last worked with, or else written."""
    bytes: int
    tokens: int
    model: str
    sources: tuple[str, ...]
    state: str
    """"finished", "45% read", "in use", or what is wrong."""


def run(options: RunOptions, folders: tuple[Path, ...]) -> None:
    """Print the sessions, those used last first, or under --json `{"sessions": [...]}`.

    Raises:
        ConfigError: A folder is none.
    """
    output = Output(options)
    rows = sorted(list_sessions(folders), key=lambda row: row.used, reverse=True)
    if options.json:
        fields = [{**asdict(row), "used": row.used.isoformat()} for row in rows]
        output.json({"sessions": fields})
    elif rows:
        output.show(_table(rows))
    else:
        output.status("no session was found; kvcli ingest PATH -o NAME.kv makes one")


def list_sessions(folders: Iterable[Path]) -> list[Row]:
    """Every session that is remembered and still there, and every one in the folders.

    Raises:
        ConfigError: A folder is none.
    """
    recent = recent_sessions()
    found = {path for path in recent if path.is_file()}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder", "Name folders that hold sessions.")
        found |= {path.resolve() for path in folder.glob("*.kv") if path.is_file()}
    return [_row(path, recent.get(path)) for path in found]


def _row(path: Path, used: datetime | None) -> Row:
    status = path.stat()
    when = used or datetime.fromtimestamp(status.st_mtime, UTC)
    size = status.st_blocks * 512
    try:
        summary = describe(path)
    except KVError as error:
        return Row(str(path), when, size, 0, "", (), error.message.removeprefix(f"{path}: "))
    notes = summary.notes
    sources = notes.get("sources")
    return Row(
        str(path), when, size, summary.tokens,
        model=str(notes.get("model", summary.identity.model)),
        sources=tuple(map(str, sources)) if isinstance(sources, list) else (),
        state=_state(path, summary.tokens, summary.kv_tokens, summary.recovered),
    )  # fmt: skip


def _state(path: Path, tokens: int, kv_tokens: int, recovered: str) -> str:
    try:
        require_unwritten(path)
    except SessionLocked:
        return "in use"
    except KVError as error:
        return error.message.removeprefix(f"{path}: ")
    if recovered:
        return recovered
    return "finished" if kv_tokens >= tokens - 1 else f"{kv_tokens / tokens:.0%} read"


def _table(rows: list[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("session", overflow="fold")
    for column in ("used", "size", "tokens"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("model", "sources", "state"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(
            Text(clean(_shown(row.path)), "bold"),
            format_ago((datetime.now(UTC) - row.used).total_seconds()),
            format_size(row.bytes),
            f"{row.tokens:,}",
            Text(clean(Path(row.model).name)),
            Text(clean(_some(row.sources))),
            Text(clean(row.state), "green" if row.state == "finished" else "yellow"),
        )
    return table


def _shown(path: str) -> str:
    """Shorter if it is below the working folder or the home folder."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if Path(path).is_relative_to(base):
            return prefix + str(Path(path).relative_to(base))
    return path


def _some(sources: tuple[str, ...]) -> str:
    shown = ", ".join(Path(source).name for source in sources[:MOST_SOURCES])
    more = len(sources) - MOST_SOURCES
    return f"{shown} and {more:,} more" if more > 0 else shown
