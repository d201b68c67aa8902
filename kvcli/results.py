"""What a run returned, as one JSON object.

Owns the shape that `--json` prints. Knows nothing of how a run came to it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from engine.telemetry import STALLS, Phase, Sample


@dataclass(frozen=True, slots=True)
class Citation:
    """One source of an answer."""

    path: str
    page: int | None = None
    """Physical page of a PDF, from 1."""
    label: str | None = None
    """The printed page label, where it differs."""
    lines: tuple[int, int] | None = None
    """First and last line, from 1, inclusive."""
    name: str | None = None
    """What the lines define."""
    weight: float = 0.0
    """Share of the attention mass."""
    text: str = field(default="", compare=False)
    """As printed for people, e.g. `src/app.py:40-63`; not part of the JSON."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a run."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    """Tokens whose KV was read from a session."""
    recomputed_tokens: int = 0
    """Tokens whose KV a session should have had."""
    new_tokens: int = 0
    """Tokens of the answer."""


@dataclass(frozen=True, slots=True)
class TierResult:
    """One tier at the end."""

    name: str
    capacity_bytes: int | None
    used_bytes: int
    pages: int


@dataclass(frozen=True, slots=True)
class IOResult:
    """Bytes of the disk tier and where the wall clock went."""

    read_bytes: int = 0
    written_bytes: int = 0
    stall_s: float = 0.0
    compute_s: float = 0.0
    idle_s: float = 0.0
    stalls: dict[str, float] = field(default_factory=dict)
    """Seconds by cause; they sum to `stall_s`."""
    prefetch: dict[str, int] = field(default_factory=dict)
    """Pages brought in before they were asked for: issued, useful, late, wasted."""
    read_ahead: dict[str, int] = field(default_factory=dict)
    """The same of attention parts that were streamed ahead of compute."""
    major_faults: int = 0
    """Times that the process waited for memory to be read from a disk."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds; None where it did not happen."""

    load_s: float | None = None
    ingest_s: float | None = None
    first_token_s: float | None = None
    decode_s: float | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """One input that was not read."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class SectionResult:
    """What was written about one section of the documents."""

    reference: str
    """As printed for people, e.g. `report.pdf p. 12-19`."""
    path: str
    page: int | None
    """The first physical page, from 1."""
    lines: tuple[int, int] | None
    """First and last line of the path, from 1, inclusive."""
    text: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything a run has to tell."""

    answer: str | None
    """None where nothing was asked (ingest)."""
    model: str
    mode: str
    is_found: bool = True
    """False where nothing in the documents answers to the question."""
    citations: tuple[Citation, ...] = ()
    sections: tuple[SectionResult, ...] = ()
    """Notes or lines that the answer was written from, where it was."""
    usage: Usage = Usage()
    tiers: tuple[TierResult, ...] = ()
    io: IOResult = field(default_factory=IOResult)
    timings: Timings = Timings()
    session: str | None = None
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object of `--json`, keys in the documented order."""
        fields = asdict(self)
        for citation in fields["citations"]:
            del citation["text"]
        fields["found"] = fields.pop("is_found")
        order = ("answer", "found", "citations", "sections", "usage", "tiers", "io", "timings",
                 "session", "model", "mode", "skipped", "warnings")  # fmt: skip
        return {name: fields[name] for name in order}


def tiers_of(sample: Sample) -> tuple[TierResult, ...]:
    """The tiers as a sample saw them."""
    return tuple(
        TierResult(use.name, use.capacity_bytes, use.used_bytes, use.pages) for use in sample.tiers
    )


def io_of(sample: Sample) -> IOResult:
    """Bytes and seconds up to a sample."""
    return IOResult(
        read_bytes=sample.read_bytes,
        written_bytes=sample.written_bytes,
        stall_s=round(sample.stall_s, 3),
        compute_s=round(sample.seconds[Phase.COMPUTE], 3),
        idle_s=round(sample.seconds[Phase.IDLE], 3),
        stalls={cause.value: round(sample.seconds[cause], 3) for cause in STALLS},
        prefetch=asdict(sample.prefetch),
        read_ahead=asdict(sample.read_ahead),
        major_faults=sample.major_faults,
    )


def error_json(message: str, advice: str, exit_code: int) -> dict[str, Any]:
    """The object of `--json` for a run that failed."""
    return {"error": {"message": message, "advice": advice, "exit_code": exit_code}}


def plain(value: Any) -> Any:
    """What `json` cannot write by itself."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} is not JSON")
