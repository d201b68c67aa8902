"""`kvcli inspect`: a dry run over documents, or what a session file holds.

Owns the printing of both. The figures come from dry_run.py and from `engine.session.describe`;
imports for documents wait until there are some, so that a `.kv` is described at once.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from engine.errors import ConfigError, PartialInput
from engine.session import SessionSummary, describe
from engine.session.format import is_session_start
from kvcli.commands.token_tree import token_tree
from kvcli.options import RunOptions
from kvcli.output import Output, clean
from kvcli.sizes import format_about, format_size

if TYPE_CHECKING:
    from kvcli.dry_run import DryRun, FileCount, LanguageCount


def run(options: RunOptions, paths: tuple[str, ...]) -> None:
    """Inspect documents, or one session file.

    Raises:
        ConfigError: A session file among other paths.
        PartialInput: Something was skipped and --strict was given.
        KVError: Whatever reading the inputs raises.
    """
    output = Output(options)
    sessions = [path for path in paths if is_session(path)]
    if not sessions:
        _inspect_documents(paths, options, output)
    elif len(paths) == 1:
        _inspect_session(Path(paths[0]), options, output)
    else:
        raise ConfigError(
            f"{sessions[0]} is a session file and cannot be mixed with other paths",
            "Inspect it alone.",
        )


def is_session(path: str) -> bool:
    """Whether a path is meant as a session file: by its name, or by how it starts."""
    if path.endswith(".kv") and not os.path.isdir(path):
        return True
    try:
        if not Path(path).is_file():  # opening a pipe would wait for its writer
            return False
        with open(path, "rb") as file:
            return is_session_start(file.read(8))
    except OSError:
        return False


# -- documents -------------------------------------------------------------------------------------


def _inspect_documents(paths: tuple[str, ...], options: RunOptions, output: Output) -> None:
    from kvcli.documents import losses, read_with_progress
    from kvcli.dry_run import dry_run
    from kvcli.model_outline import outline_model
    from kvcli.models import resolve

    corpus = read_with_progress(options, paths, output)
    source = resolve(options.model, offline=options.offline, on_status=output.status)
    model = outline_model(source, page_tokens=options.page_tokens, offline=options.offline)
    found = dry_run(corpus, model, options, Path.cwd())
    if options.json:
        output.json(found.to_json())
    else:
        details = {skip.path: skip.detail for skip in corpus.skipped}
        output.show(Group(*_document_parts(found, details, options)))
    lost = losses(corpus.skipped, paths)
    if options.strict and lost:
        raise PartialInput(
            f"{len(lost)} of {len(lost) + len(found.files)} inputs would be skipped",
            "Name what is wanted, exclude the rest, or leave --strict out.",
        )


def _document_parts(found: DryRun, details: dict[str, str], options: RunOptions) -> Iterable[Any]:
    yield token_tree(found.files, show_all=options.verbose)
    yield Text()
    yield _facts(_document_facts(found))
    by_lines = [f"{file.path}: {file.by_lines}" for file in _not_parsed(found)]
    yield from _listed("cut by lines", by_lines, options)
    changed = [f"{file.path}: {note}" for file in found.files for note in file.notes]
    yield from _listed("not as it stands", changed, options)
    told = [f"{skip.path}: {skip.reason}, {details.get(skip.path, '')}" for skip in found.skipped]
    yield from _listed("skipped", told, options)
    for warning in found.warnings:
        yield Text(clean(f"warning: {warning}"), "yellow")


def _not_parsed(found: DryRun) -> Iterable[FileCount]:
    """Files cut by lines although others of their language are cut at definitions."""
    whole = {one.name for one in found.languages if sum(one.by_lines.values()) == one.files}
    return (file for file in found.files if file.by_lines and file.language not in whole)


def _listed(title: str, entries: Sequence[str], options: RunOptions) -> Iterable[Text]:
    """A list below a title, without its tail unless --verbose asks for it."""
    if not entries:
        return
    yield Text(f"\n{title} {len(entries):,}", "yellow")
    shown = entries if options.verbose else entries[:10]
    for entry in shown:
        yield Text(clean(f"  {entry}"))
    if len(shown) < len(entries):
        yield Text(f"  ... and {len(entries) - len(shown):,} more (--verbose)")


def _document_facts(found: DryRun) -> Iterable[tuple[str, Text | str]]:
    yield "model", f"{found.model}, window {found.window:,} tokens"
    yield (
        "sequence",
        (
            f"{found.tokens:,} tokens in {found.pages:,} pages of {found.page_tokens}, "
            f"{format_size(found.kv_bytes)} of KV"
        ),
    )
    yield "fits", _verdict(found)
    yield "mode", found.mode
    for tier in found.tiers:
        yield tier.name, f"{tier.pages:,} pages, {format_size(tier.bytes)}"
    yield "RAM budget", format_size(found.ram_bytes)
    enough = found.session_bytes <= found.disk_free_bytes
    yield (
        "session",
        Text(
            f"would take {format_size(found.session_bytes)}{_as(found.kv_dtype)} of the "
            f"{format_size(found.disk_free_bytes)} free here",
            "" if enough else "bold red",
        ),
    )
    yield "time", f"{format_about(found.estimated_s)} to read"
    if found.languages:
        yield "code", clean("; ".join(map(_language, found.languages)))
    if found.hidden:
        yield "hidden", f"{found.hidden:,} by .kvcliignore"


def _as(codec: str) -> str:
    return "" if codec == "raw" else f", coded as {codec},"


def _language(count: LanguageCount) -> str:
    """`python 12`, or where definitions were not to be had `sql 3 (1 by lines: ...)`."""
    lines = sum(count.by_lines.values())
    if not lines:
        return f"{count.name} {count.files:,}"
    why = ", ".join(count.by_lines)
    return f"{count.name} {count.files:,} ({lines:,} by lines: {why})"


def _verdict(found: DryRun) -> Text:
    need = f"{found.tokens:,} tokens and {found.answer_tokens:,} for an answer"
    if found.fits:
        return Text(f"yes: {need} in {found.window:,}", "green")
    over = found.tokens + found.answer_tokens - found.window
    return Text(
        f"no: {need} are {over:,} over the window of {found.window:,}; ask looks for the pages "
        "it needs (focus), summarize goes section by section",
        "yellow",
    )


# -- sessions --------------------------------------------------------------------------------------


def _inspect_session(path: Path, options: RunOptions, output: Output) -> None:
    summary = describe(path)
    if options.json:
        output.json(_session_json(summary))
        return
    output.show(_facts(_session_facts(summary)))
    if summary.recovered:
        output.warn(f"{path}: {summary.recovered}")


def _session_json(summary: SessionSummary) -> dict[str, Any]:
    fields = dataclasses.asdict(summary)
    geometry = fields.pop("geometry")
    return {
        "kind": "session",
        **fields,
        **geometry,
        "finished": summary.kv_tokens >= summary.tokens - 1,
        "pages": summary.geometry.num_pages(summary.kv_tokens),
    }


def _session_facts(summary: SessionSummary) -> Iterable[tuple[str, Text | str]]:
    geometry, notes, identity = summary.geometry, summary.notes, summary.identity
    yield "session", clean(str(summary.path))
    yield "model", clean(str(notes.get("model", identity.model)))
    yield "tokens", f"{summary.tokens:,}"
    yield "with KV", _progress(summary)
    yield "pages", f"{geometry.num_pages(summary.kv_tokens):,} of {geometry.page_tokens} tokens"
    yield (
        "file",
        (
            f"{format_size(summary.allocated_bytes)} on disk, {format_size(summary.kv_bytes)} of "
            f"KV, {_coding(summary)}"
        ),
    )
    if summary.base is not None:
        shared = f"{summary.base_tokens:,} tokens"
        yield "base", clean(f"{summary.base} has the KV of the first {shared}")
    for name in ("mode", "turns"):
        if name in notes:
            yield name, clean(str(notes[name]))
    sources = notes.get("sources")
    if isinstance(sources, list) and sources:
        yield "sources", clean(", ".join(str(source) for source in sources))
    yield (
        "identity",
        clean(
            f"weights {identity.weights}, tokenizer {identity.tokenizer}, template "
            f"{identity.template}, rope {identity.rope}, {identity.dtype}"
        ),
    )
    yield "commits", f"{summary.generation:,}"


def _coding(summary: SessionSummary) -> str:
    codec, coded, geometry = summary.identity.codec, summary.coded, summary.geometry
    if coded is None:
        return f"{format_size(geometry.page_bytes)} a page"
    page = geometry.num_layers * (coded.keys + coded.values)
    return f"coded as {codec}: {format_size(page)} a page, raw {format_size(geometry.page_bytes)}"


def _progress(summary: SessionSummary) -> Text:
    """The last id of an answer may have no KV yet; anything more is an unfinished ingest."""
    if summary.kv_tokens >= summary.tokens - 1:
        return Text(f"{summary.kv_tokens:,} (finished)", "green")
    return Text(
        f"{summary.kv_tokens:,}: ingest unfinished, {summary.tokens - summary.kv_tokens:,} to go; "
        "`kvcli resume` finishes it",
        "yellow",
    )


def _facts(facts: Iterable[tuple[str, Text | str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(name, value if isinstance(value, Text) else Text(value))
    return grid
