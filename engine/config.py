"""Settings of the engine. Every field has a docstring with its unit; there are no hidden ones.

Owns defaults. Knows nothing of command-line options or environment variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STEP_TOKENS = 1024
"""Tokens of a prefill step unless another number is given."""


CODEC_NAMES = ("raw", "fp8", "int8", "int4", "k8v4")
"""Names of `engine.codecs`, for whoever must not wait for torch."""


@dataclass(frozen=True, slots=True)
class KVCodecs:
    """How pages at rest are coded, by tier."""

    disk: str = "raw"
    """Of the session or spill file, but for what is always raw in it; a name of `engine.codecs`."""
    host: str = "raw"
    """Of pages in RAM; they are raw so far."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the engine runs. Steps and parts decide the order of sums, so they are part of a result's
    identity: two runs with the same steps and parts give the same bits, whatever the budgets."""

    ram_bytes: int
    """Budget for everything the engine holds in RAM, bytes: tiers, buffers, queues."""
    device_bytes: int | None = None
    """Cap of the device tier, bytes; None: as much as the budget allows."""
    step_tokens: int = STEP_TOKENS
    """Tokens computed in one prefill step; a multiple of the segment size."""
    part_tokens: int = 2048
    """Keys attended to in one call; a multiple of the segment size."""
    stream_depth: int = 3
    """Parts in use or read ahead of the compute; lowered where the RAM budget has no room for
    so many."""
    io_threads: int = 2
    """Threads that read."""
    extent_bytes: int = 1 << 20
    """Longest single read, bytes; a longer run of pages is cut, so that several threads share
    it. Never less than one page of one layer."""
    evict: str = "lru"
    """Eviction policy of the device and host tiers."""
    prefetch: tuple[str, ...] = ()
    """Prefetch policies, the most important first."""
    pager: str = "explicit"
    """Who moves pages at rest: "explicit", by planned copies; "unified", the kernel on fault."""
    kv_codecs: KVCodecs = KVCodecs()
    """How pages at rest are coded."""
    checkpoint_seconds: float = 5.0
    """Longest time between two commits of a session file while tokens are being ingested."""
    io_deadline_seconds: float = 60.0
    """Longest wait for one read or write before the disk is declared dead."""
    sketch: bool = False
    """Whether keys of the main sequence are also kept as a sketch while it is read bounded."""
    spill_folder: Path | None = None
    """Where pages go that fit neither tier when no session file is named; None: the system's."""


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """How the next token is chosen."""

    max_tokens: int = 256
    """Longest answer, tokens."""
    temperature: float = 0.0
    """0 takes the likeliest token; higher is more random."""
    top_p: float = 1.0
    """Sample only from the smallest set of tokens whose probability reaches this share."""
    seed: int = 0
    """Seed of the random numbers; the same seed gives the same answer."""
    repetition_penalty: float = 1.0
    """Divide the logits of tokens already in the answer (arXiv 1909.05858); 1 changes nothing."""
