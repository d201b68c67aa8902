"""What a run over some documents would take: tokens, pages, bytes, disk and minutes.

Owns the figures of `kvcli inspect PATH...`. Loads no weights, computes nothing and prints nothing.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.memory.budget import plan_memory
from engine.session import extents_bytes, pages_bytes
from engine.types import CodedSizes, KVGeometry, Tier
from kvcli.corpus.spans import Corpus
from kvcli.estimate import likely_device, machine_speed, reading_flops
from kvcli.model_outline import ModelOutline
from kvcli.options import RunOptions
from kvcli.prompts import free_tag, pieces_of
from kvcli.results import Skipped


@dataclass(frozen=True, slots=True)
class FileCount:
    """One document."""

    path: str
    kind: str
    bytes: int
    tokens: int
    notes: tuple[str, ...] = ()
    """What reading did to its text."""
    language: str | None = None
    """Of code."""
    by_lines: str | None = None
    """Why code was cut by lines and not at its definitions; None where it was not."""


@dataclass(frozen=True, slots=True)
class LanguageCount:
    """How the files of one language were cut."""

    name: str
    files: int
    by_lines: dict[str, int]
    """Files that were not cut at their definitions, by reason."""


@dataclass(frozen=True, slots=True)
class TierPlan:
    """What would lie in one tier at the end."""

    name: str
    pages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DryRun:
    """Everything `inspect` says about documents."""

    model: str
    window: int
    """Tokens the run may use."""
    tokens: int
    """Of the documents and what stands around each; a chat template adds a few dozen."""
    answer_tokens: int
    """Room that an answer needs."""
    fits: bool
    mode: str
    page_tokens: int
    pages: int
    kv_bytes: int
    """As it is computed."""
    kv_dtype: str
    """How pages are coded on disk."""
    ram_bytes: int
    """The RAM budget."""
    tiers: tuple[TierPlan, ...]
    session_bytes: int
    """Disk that a session file would take."""
    disk_free_bytes: int
    """Free where the session file would go."""
    estimated_s: float
    files: tuple[FileCount, ...]
    languages: tuple[LanguageCount, ...]
    """Of the code among them, the most files first."""
    hidden: int
    """Files that `.kvcliignore` files hide."""
    skipped: tuple[Skipped, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The object of `--json`."""
        return {"kind": "documents", **asdict(self)}


def dry_run(corpus: Corpus, model: ModelOutline, options: RunOptions, folder: Path) -> DryRun:
    """Work out what a run would take.

    Args:
        corpus: The documents.
        model: The model that would read them.
        options: Budgets and the window.
        folder: Where a session file would go.

    Raises:
        OverBudget: The budgets do not hold one segment.
    """
    tag = free_tag(corpus)
    files = tuple(
        FileCount(doc.path, doc.kind.value, doc.num_bytes,
                  model.count_tokens([text for text, *_ in pieces_of(doc, tag)]),
                  doc.notes, doc.language, doc.by_lines)
        for doc in corpus.documents
    )  # fmt: skip
    tokens = sum(file.tokens for file in files)
    geometry = model.geometry
    window = min(model.window, options.window or model.window)
    fits = tokens + options.max_tokens <= window
    coded, _ = _coding(options.kv_codecs.disk, geometry)
    return DryRun(
        model=model.name,
        window=window,
        tokens=tokens,
        answer_tokens=options.max_tokens,
        fits=fits,
        mode="exact" if fits else "focus",
        page_tokens=geometry.page_tokens,
        pages=geometry.num_pages(tokens),
        kv_bytes=geometry.num_pages(tokens) * geometry.page_bytes,
        kv_dtype=options.kv_codecs.disk,
        ram_bytes=options.ram_bytes,
        tiers=_tiers(tokens, model, options),
        session_bytes=extents_bytes(geometry, coded, tokens),
        disk_free_bytes=shutil.disk_usage(folder).free,
        estimated_s=round(_seconds(tokens, fits, model, options), 1),
        files=files,
        languages=_languages(files),
        hidden=corpus.hidden,
        skipped=tuple(Skipped(skip.path, skip.reason.value) for skip in corpus.skipped),
        warnings=corpus.all_warnings(),
    )


def _languages(files: Sequence[FileCount]) -> tuple[LanguageCount, ...]:
    total = Counter(file.language for file in files if file.language is not None)
    reasons = {name: Counter[str]() for name in total}
    for file in files:
        if file.language is not None and file.by_lines is not None:
            reasons[file.language][file.by_lines] += 1
    return tuple(
        LanguageCount(name, count, dict(reasons[name])) for name, count in total.most_common()
    )


def _tiers(tokens: int, model: ModelOutline, options: RunOptions) -> tuple[TierPlan, ...]:
    """Where pages would end: the device tier first, then RAM, then the disk."""
    defaults = EngineConfig(ram_bytes=options.ram_bytes)
    coded, coding_bytes = _coding(options.kv_codecs.disk, model.geometry)
    plan = plan_memory(
        model.geometry,
        num_tokens=tokens + options.max_tokens,
        ram_bytes=options.ram_bytes,
        device_bytes=options.vram,
        shared_memory=likely_device(options.device) == "cpu",
        has_file=options.session is not None,
        part_tokens=defaults.part_tokens,
        stream_depth=defaults.stream_depth,
        coding_bytes=coding_bytes,
    )
    left, tiers = model.geometry.num_pages(tokens), []
    for tier, room in ((Tier.DEVICE, plan.device_pages), (Tier.HOST, plan.host_pages)):
        pages = min(left, room)
        left -= pages
        tiers.append(TierPlan(tier.value, pages, pages * model.geometry.page_bytes))
    whole = pages_bytes(model.geometry, coded, tokens)
    first = pages_bytes(model.geometry, coded, tokens - left * model.geometry.page_tokens)
    return (*tiers, TierPlan(Tier.DISK.value, left, whole - first))


def _coding(codec: str, geometry: KVGeometry) -> tuple[CodedSizes | None, int]:
    """Sizes of coded page slices, and the RAM that coding takes, bytes; None and 0 of raw pages."""
    if codec == "raw":
        return None, 0
    # These bring torch, and a dry run of raw pages answers at once without it.
    from engine.codecs import CODECS
    from engine.tiers.coding import buffer_bytes

    defaults = EngineConfig(ram_bytes=0)
    memory = buffer_bytes(geometry, defaults.io_threads, defaults.part_tokens)
    return CODECS[codec].sizes(geometry), memory


def _seconds(tokens: int, fits: bool, model: ModelOutline, options: RunOptions) -> float:
    flops = reading_flops(
        tokens,
        is_bounded=not fits,
        matrix_params=model.matrix_params,
        num_layers=model.geometry.num_layers,
        num_heads=model.num_heads,
        head_dim=model.geometry.head_dim,
    )
    return flops / machine_speed(likely_device(options.device))
