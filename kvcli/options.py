"""Every shared option of the command line, each declared once, and where its value comes from.

Owns names, help, defaults and checks of options: flag, then `KVCLI_<NAME>`, then the config file
(settings.py), then the default here. Does not act on any of them. A field of `RunOptions` *is* the
option: its annotation carries the declaration, `option_binding` turns fields into parameters.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
import typer

from engine.config import CODEC_NAMES, KVCodecs, SamplingConfig
from engine.errors import ConfigError
from kvcli.sizes import parse_size

MODEL = "Model"
MEMORY = "Memory"
READING = "Reading"
ANSWER = "Answer"
SESSION = "Session"
OUTPUT = "Output"

_SAMPLING = SamplingConfig()


def _option(panel: str, help_text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=panel, show_envvar=False, **more)


def _size(text: str | int) -> int:
    try:
        return parse_size(text)
    except ConfigError as error:
        raise typer.BadParameter(f"{error.message}. {error.advice}") from error


def _device(text: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", text):
        raise typer.BadParameter(f'"{text}" is not one of auto, cpu, cuda, cuda:N.')
    return text


def _kv_dtype(text: str) -> str:
    try:
        parse_codecs(text)
    except ConfigError as error:
        raise typer.BadParameter(f"{error.message}. {error.advice}") from error
    return text


def parse_codecs(text: str) -> KVCodecs:
    """Read `--kv-dtype`: `int8`, or `disk=int8`, or `disk=int8,ram=raw`.

    A name alone is the disk's; pages in RAM are raw so far.

    Raises:
        ConfigError: It says something else, or pages in RAM cannot be coded.
    """
    named: dict[str, str] = {}
    for entry in text.split(","):
        tier, is_named, name = entry.strip().rpartition("=")
        tier = tier if is_named else "disk"
        if tier not in ("disk", "ram") or tier in named or name not in CODEC_NAMES:
            raise ConfigError(
                f'"{text}" is no --kv-dtype',
                f"Give one of {', '.join(CODEC_NAMES)}, or disk=NAME,ram=raw.",
            )
        named[tier] = name
    if named.get("ram", "raw") != "raw":
        raise ConfigError(
            f'"{text}": pages in RAM are not coded, only those on disk',
            "Give ram=raw, or disk=NAME.",
        )
    return KVCodecs(disk=named.get("disk", "raw"))


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user asked for, apart from the documents and the question."""

    model: Annotated[
        str, _option(MODEL, "A name from `kvcli models`, a folder, a .gguf file or a hub id.")
    ] = "smollm2-135m"
    """What `kvcli.models.resolve` takes."""
    device: Annotated[
        str, _option(MODEL, "auto, cpu, cuda or cuda:N.", parser=_device, metavar="DEVICE")
    ] = "auto"
    """Where the model computes."""
    offline: Annotated[bool, _option(MODEL, "Never use the network.", "--offline")] = False
    """Refuse to fetch a model."""
    window: Annotated[
        int | None,
        _option(
            MODEL, "Use at most this many tokens of the model's window.", min=1, metavar="TOKENS"
        ),
    ] = None
    """Tokens; None: all of it."""
    attention: Annotated[
        Literal["auto", "exact", "focus", "reread", "stored"],
        _option(MODEL, "How earlier tokens are attended to; reread and stored are kinds of focus."),
    ] = "auto"
    """auto is exact while the sequence fits the window, and focus beyond."""
    lookup: Annotated[
        Literal["auto", "scan", "sketch"],
        _option(MODEL, "Where focus looks for pages: in all keys, or in a sketch of them."),
    ] = "auto"
    """auto takes the sketch unless all keys lie in RAM; scan makes none."""

    ram: Annotated[
        int | None,
        _option(
            MEMORY, "RAM for pages and buffers. Default: half of what is free.",
            parser=_size, metavar="SIZE",
        ),
    ] = None  # fmt: skip
    """Bytes; None: see `ram_bytes`."""
    vram: Annotated[
        int | None,
        _option(MEMORY, "Cap of the device tier.", parser=_size, metavar="SIZE"),
    ] = None
    """Bytes; None: as much as the budget allows."""
    page_tokens: Annotated[
        int, _option(MEMORY, "Tokens per page; a power of two from 16 to 512.", metavar="TOKENS")
    ] = 64
    """Tokens."""
    kv_dtype: Annotated[
        str,
        _option(
            MEMORY, f"How pages at rest are coded: {', '.join(CODEC_NAMES)}, or disk=NAME.",
            parser=_kv_dtype, metavar="CODEC",
        ),
    ] = "raw"  # fmt: skip
    """raw keeps the model's own dtype; see `kv_codecs`."""
    evict: Annotated[
        Literal["lru", "clock", "lrfu", "s3fifo", "mass"],
        _option(MEMORY, "Which page leaves a full tier."),
    ] = "lru"
    """A name of `engine.policies`."""
    prefetch: Annotated[
        Literal["auto", "off", "sequential", "temporal", "runner-up"],
        _option(MEMORY, "Which pages are brought into RAM before they are asked for."),
    ] = "auto"
    """auto takes what suits the mode; the others are names of `engine.policies.prefetch`."""
    pager: Annotated[
        Literal["explicit", "unified"],
        _option(MEMORY, "How pages at rest move: by planned copies, or mapped, on fault."),
    ] = "explicit"
    """A value of `EngineConfig.pager`."""

    include: Annotated[
        tuple[str, ...],
        _option(READING, "Read only files matching GLOB. Repeatable.", metavar="GLOB"),
    ] = ()
    """Globs; empty: everything."""
    exclude: Annotated[
        tuple[str, ...],
        _option(
            READING,
            "Do not read files matching GLOB. Repeatable; what lasts goes into .kvcliignore.",
            metavar="GLOB",
        ),
    ] = ()
    """Globs."""
    max_file_size: Annotated[
        int,
        _option(
            READING,
            "Skip larger files of folders.",
            parser=_size,
            metavar="SIZE",
            show_default="1MiB",
        ),
    ] = 1 << 20
    """Bytes."""
    password: Annotated[
        str | None,
        _option(READING, "For encrypted PDFs; better given as KVCLI_PASSWORD."),
    ] = None
    """Never shown, stored or logged."""
    strict: Annotated[
        bool, _option(READING, "Exit with 6 if anything had to be skipped.", "--strict")
    ] = False
    """Turn skips into `PartialInput`."""

    max_tokens: Annotated[int, _option(ANSWER, "Longest answer.", min=1, metavar="TOKENS")] = (
        _SAMPLING.max_tokens
    )
    """Tokens."""
    temperature: Annotated[
        float, _option(ANSWER, "0 takes the likeliest token.", min=0.0, metavar="FLOAT")
    ] = _SAMPLING.temperature
    """0 or more."""
    top_p: Annotated[
        float,
        _option(
            ANSWER,
            "Sample from the likeliest tokens up to this share.",
            min=0.0,
            max=1.0,
            metavar="SHARE",
        ),
    ] = _SAMPLING.top_p
    """0 to 1."""
    repetition_penalty: Annotated[
        float,
        _option(ANSWER, "Divide by this what the answer has said before; 1 is off.", min=1.0),
    ] = 1.1
    """1 or more. Small models repeat themselves without it."""
    seed: Annotated[
        int, _option(ANSWER, "The same seed gives the same answer.", min=0, metavar="N")
    ] = _SAMPLING.seed
    """0 or more."""
    session: Annotated[
        Path | None,
        _option(SESSION, "Keep the sequence in this file, or go on with it.", metavar="S.kv"),
    ] = None
    """A session file; None: keep nothing."""

    json: Annotated[bool, _option(OUTPUT, "One JSON object on stdout.", "--json")] = False
    """Machine-readable result and errors."""
    quiet: Annotated[bool, _option(OUTPUT, "Only the answer and errors.", "--quiet", "-q")] = False
    """No status, no dashboard, no summary."""
    verbose: Annotated[bool, _option(OUTPUT, "Say more.", "--verbose", "-v")] = False
    """Details on stderr."""
    color: Annotated[Literal["auto", "always", "never"], _option(OUTPUT, "Colours.")] = "auto"
    """auto: on terminals, unless NO_COLOR is set."""
    dashboard: Annotated[
        Literal["auto", "live", "line", "off"], _option(OUTPUT, "The view of the tiers on stderr.")
    ] = "auto"
    """auto: live on a terminal, else lines."""
    metrics: Annotated[
        Path | None, _option(OUTPUT, "Append every sample as a JSON line.", metavar="FILE.jsonl")
    ] = None
    """Where samples go; None: nowhere."""
    prometheus: Annotated[
        int | None,
        _option(
            OUTPUT, "Serve the current sample on http://127.0.0.1:PORT/metrics.",
            min=1, max=65535, metavar="PORT",
        ),
    ] = None  # fmt: skip
    """A TCP port of this machine; None: serve nothing."""
    debug: Annotated[bool, _option(OUTPUT, "Show tracebacks.", "--debug")] = False
    """Python tracebacks for internal errors."""

    typed: frozenset[str] = frozenset()
    """No option: the names of those that were typed, not taken from variables, file or defaults."""

    def __post_init__(self) -> None:
        if self.page_tokens not in (16, 32, 64, 128, 256, 512):
            raise ConfigError(
                f"--page-tokens {self.page_tokens} is not a power of two from 16 to 512",
                "Leave it at 64 unless you measure.",
            )
        if self.top_p == 0.0:
            raise ConfigError("--top-p 0 leaves no token", "Give a share above 0, up to 1.")

    @property
    def ram_bytes(self) -> int:
        """The RAM budget: as given, or half of the memory that is free now, bytes."""
        return self.ram if self.ram is not None else psutil.virtual_memory().available // 2

    @property
    def kv_codecs(self) -> KVCodecs:
        """How pages at rest are coded, by tier."""
        return parse_codecs(self.kv_dtype)

    @property
    def wants_focus(self) -> bool:
        """Whether focus was asked for, of whatever kind."""
        return self.attention in ("focus", "reread", "stored")

    @property
    def sampling(self) -> SamplingConfig:
        """How the answer's tokens are chosen."""
        return SamplingConfig(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            repetition_penalty=self.repetition_penalty,
        )


def option_names() -> set[str]:
    """Names of all shared options, with underscores."""
    return {field.name for field in dataclasses.fields(RunOptions)} - {"typed"}
