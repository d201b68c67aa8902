"""What was measured of each disk, kept for a month, and the engine's settings that follow from it.

Owns the file `disks.json` in the cache folder and the decision whether a run is worth a probe. A
disk that cannot be measured, and a file that cannot be read or written, leave the defaults: neither
changes a result, only how long it takes.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.memory.budget import MemoryPlan
from engine.telemetry import Link
from engine.tiers.extents import enough_depth
from engine.types import KVGeometry
from kvcli.disk_probe import EXTENTS, THREADS, DiskProbe, ReadPoint, probe_disk
from kvcli.fetch import cache_dir

DISKS_FILE = "disks.json"
KEPT = timedelta(days=30)
LEAST_STREAMED = 128 << 20
"""Bytes of KV. Less is read again and again before it costs as much as a probe."""

_DAMAGE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What comes of reading JSON that is something else than it should be."""


def suit_disk(
    config: EngineConfig,
    geometry: KVGeometry,
    plan: MemoryPlan,
    num_tokens: int,
    folder: Path,
    on_status: Callable[[str], None],
) -> EngineConfig:
    """Choose threads, extent and depth by the disk that pages will lie on.

    What is kept of the disk is used. If nothing is, it is measured, but only for a run that will
    read pages back. Runs of less than `LEAST_STREAMED` keep the defaults.

    Args:
        config: Settings so far.
        geometry: Shape of the KV.
        plan: What these settings plan.
        num_tokens: Tokens the sequence may grow to.
        folder: Of the session or spill file.
        on_status: Is told what a probe found.
    """
    if num_tokens * geometry.token_bytes < LEAST_STREAMED:
        return config
    probe = recall(folder)
    if probe is None and plan.streams:
        with contextlib.suppress(OSError):  # whoever writes there next says it better
            probe = probe_disk(folder)
            remember(folder, probe)
            on_status(f"measured the disk: {probe.describe(geometry.slice_bytes)}")
    if probe is None or not probe.is_direct:
        return config
    found = probe.choice(geometry.slice_bytes)
    depth = enough_depth(
        geometry,
        part_tokens=config.part_tokens,
        io_threads=found.readers,
        extent_bytes=found.extent_bytes,
    )
    return replace(
        config,
        io_threads=found.readers,
        extent_bytes=found.extent_bytes,
        stream_depth=depth,
    )


def limits(folder: Path) -> dict[Link, float]:
    """Bytes per second that the disk under a folder was measured to do; empty while unknown."""
    probe = recall(folder)
    if probe is None:
        return {}
    return {Link.DISK_TO_HOST: probe.choice().rate, Link.HOST_TO_DISK: probe.write}


def recall(folder: Path) -> DiskProbe | None:
    """What is kept of the disk under a folder, if it is not too old."""
    try:
        return _parse(_known().get(_device(folder)))
    except OSError:
        return None


def remember(folder: Path, probe: DiskProbe) -> None:
    """Keep what was measured; a cache that cannot be written is no matter."""
    entry = {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "write": round(probe.write),
        "is_direct": probe.is_direct,
        "grid": [[p.threads, p.extent_bytes, round(p.rate)] for p in probe.grid],
    }
    path = cache_dir() / DISKS_FILE
    with contextlib.suppress(OSError):
        known = {name: kept for name, kept in _known().items() if _parse(kept) is not None}
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({**known, _device(folder): entry}))
        partial.replace(path)


def _device(folder: Path) -> str:
    """The device's number: it may be another one after a restart, and is then measured again."""
    return str(os.stat(folder).st_dev)


def _known() -> dict[str, Any]:
    try:
        known = json.loads((cache_dir() / DISKS_FILE).read_text())
    except (OSError, *_DAMAGE):
        return {}
    return known if isinstance(known, dict) else {}


def _parse(entry: Any) -> DiskProbe | None:
    """Read one disk's figures; None for damaged and old ones, and for those of another grid."""
    try:
        age = datetime.now(UTC) - datetime.fromisoformat(entry["measured"])
        grid = tuple(
            ReadPoint(threads, extent, float(rate)) for threads, extent, rate in entry["grid"]
        )
        probe = DiskProbe(grid, float(entry["write"]), bool(entry["is_direct"]))
    except _DAMAGE:
        return None
    is_sound = bool(grid) and all(
        point.threads in THREADS and point.extent_bytes in EXTENTS for point in grid
    )
    rates = [probe.write, *(point.rate for point in grid)]
    if not is_sound or not all(math.isfinite(rate) and rate > 0 for rate in rates):
        return None
    return probe if timedelta(0) <= age < KEPT else None
