"""About how long an ingest will take, before it starts.

Owns the speed of this machine: the one measured by an earlier ingest, else a rough figure by its
instruction set. An estimate is for a person deciding whether to wait, never for a decision in code.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from kernels.cpu import cpu_flags
from kvcli.fetch import cache_dir

SPEED_FILE = "speed.json"

_PER_CORE = {"amx_bf16": 4e11, "avx512_bf16": 1e11, "avx2": 3e10}
"""Operations per second. AVX512-BF16: 0.86e11 measured with the default model; others guessed."""
LEAST_FLOPS = 1e12
"""Less work than this tells little about a machine."""

_SLOWEST = 1e10
_CUDA = 5e13


BOUNDED_KEYS = 1664
"""Keys that a token sees on average when read bounded: sinks, local window, half a step."""


def reading_flops(
    tokens: int,
    *,
    is_bounded: bool,
    matrix_params: int,
    num_layers: int,
    num_heads: int,
    head_dim: int,
) -> float:
    """Floating-point operations of reading `tokens` tokens, with exact or bounded attention."""
    keys = tokens / 2
    if is_bounded:
        keys = min(keys, BOUNDED_KEYS)
    attention = 4.0 * keys * num_layers * num_heads * head_dim
    return tokens * (2.0 * matrix_params + attention)


def measured_speed(device: str) -> float | None:
    """Operations per second of a device kind, "cpu" or "cuda", if one was measured here."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        speed = float(json.loads((cache_dir() / SPEED_FILE).read_text())[device])
        return speed if speed > 0.0 else None
    return None


def machine_speed(device: str) -> float:
    """Operations per second to expect of a device kind: as measured, else a rough figure."""
    measured = measured_speed(device)
    if measured is not None:
        return measured
    if device == "cuda":
        return _CUDA
    flags = cpu_flags()
    per_core = next((speed for flag, speed in _PER_CORE.items() if flag in flags), _SLOWEST)
    return per_core * max(1, os.cpu_count() or 1)


def remember_speed(device: str, flops: float, seconds: float) -> None:
    """Keep a measured speed for the next estimate; a cache that cannot be written is no matter."""
    if seconds < 2.0 or flops < LEAST_FLOPS:  # mostly start-up
        return
    path = cache_dir() / SPEED_FILE
    with contextlib.suppress(OSError, ValueError, TypeError):
        known = json.loads(path.read_text()) if path.exists() else {}
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({**known, device: flops / seconds}))
        partial.replace(path)


def likely_device(option: str) -> str:
    """The kind of device that `--device` will come to, told without torch."""
    if option == "auto":
        return "cuda" if Path("/dev/nvidia0").exists() else "cpu"
    return option.partition(":")[0]
