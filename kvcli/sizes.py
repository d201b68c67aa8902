"""Bytes and seconds, as people type and read them.

Owns the spelling of sizes and durations on the command line. Knows nothing of what is measured.
"""

from __future__ import annotations

import re

from engine.errors import ConfigError

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgtp]?(?:i?b)?)", re.IGNORECASE)
_PREFIXES = "kmgtp"
_LARGEST = 1 << 62


def parse_size(text: str | int) -> int:
    """Read a size: `512MiB`, `2GB`, `1.5GiB`, or a plain number of bytes.

    `kB`, `MB`, ... count in thousands; `KiB`, `MiB`, ... and bare letters (`4G`) in 1024s.

    Returns:
        Bytes, at least 1.

    Raises:
        ConfigError: Not a size, zero, or beyond any device.
    """
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise ConfigError(f'"{text}" is not a size', "Write it like 512MiB, 2GB or 1.5GiB.")
    unit = match["unit"].lower()
    power = _PREFIXES.index(unit[0]) + 1 if unit and unit[0] in _PREFIXES else 0
    thousands = unit.endswith("b") and not unit.endswith("ib")
    size = int(float(match["number"]) * (1000 if thousands else 1024) ** power)
    if not 0 < size <= _LARGEST:
        raise ConfigError(f'"{text}" is out of range for a size', "Give a size above zero bytes.")
    return size


def format_size(num_bytes: float) -> str:
    """Write bytes in decimal units with two to three digits: `188 MB`, `23.0 GB`, `1.5 kB`."""
    value, unit = float(num_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if abs(value) < 999.5:
            break
        value, unit = value / 1000, larger
    fine = unit != "B" and (abs(value) < 9.95 or (unit in ("GB", "TB", "PB") and abs(value) < 99.5))
    return f"{value:.1f} {unit}" if fine else f"{value:.0f} {unit}"


def format_clock(seconds: float) -> str:
    """Write seconds as a clock: `0:07`, `12:30`, `1:02:03`."""
    minutes, second = divmod(round(max(0.0, seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def format_ago(seconds: float) -> str:
    """Write how long ago something was, in one unit: `just now`, `12 min ago`, `3 days ago`."""
    minutes, hours, days = int(seconds / 60), int(seconds / 3600), int(seconds / 86400)
    if minutes < 1:
        return "just now"
    if hours < 1:
        return f"{minutes} min ago"
    if days < 1:
        return f"{hours} h ago"
    return f"{days} day{'' if days == 1 else 's'} ago"


def format_about(seconds: float) -> str:
    """Write an estimate no finer than it can be: `about 5 s`, `about 12 min`, `about 3.5 h`."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    minutes = seconds / 60
    return f"about {minutes:.0f} min" if minutes < 90 else f"about {minutes / 60:.1f} h"
