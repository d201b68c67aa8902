"""A run as its metrics tell it: read back, and drawn together into figures over time.

Owns the reading of `--metrics` files and the sums. Knows neither plots nor screens.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import NothingReadable
from engine.telemetry import STALLS, Link, Phase
from engine.types import Tier

MOST_POINTS = 600
"""Points of a curve; more cannot be told apart on a screen."""


@dataclass(frozen=True, slots=True)
class RunLog:
    """One run, thinned out evenly over time. Every list but `samples` has one value per interval
    between two samples."""

    samples: list[dict[str, Any]]
    num_runs: int
    """Runs in the file; this is the last one."""
    times: list[float]
    """Seconds since the start at the end of each interval."""
    tokens_per_s: list[float]
    link_rates: dict[Link, list[float]]
    """Bytes per second that each link moved."""
    busy_shares: dict[Link, list[float]]
    """Share of each interval in which anything moved on each link."""
    peaks: dict[Link, float]
    """Bytes per second, the most in any second of the run."""
    hot_shares: dict[Tier, list[float]]
    """Share of each tier's pages that were hot, at the end of the interval."""
    is_old: bool
    """Whether an older kvcli has written it, which told less: no links but the disk's and no hot
    pages; commits in `write`, bringing up pages in `compute`."""
    shares: dict[Phase, list[float]]
    """Share of each interval that the engine's thread spent in each phase."""
    pages: dict[Tier, list[int]]
    """Pages whose fastest copy lies in each tier, at the end of the interval."""
    hit_shares: dict[Tier, list[float]]
    """Share of the page reads of each interval that each tier served."""

    @property
    def last(self) -> dict[str, Any]:
        """The last sample: sums over the run."""
        return self.samples[-1]


def read_log(path: Path) -> RunLog:
    """Read a metrics file; of several runs in it, the last.

    Raises:
        NothingReadable: It cannot be read, or is no metrics file, or has fewer than two samples.
    """
    runs = read_runs(path)
    if not runs or len(runs[-1]) < 2:
        raise NothingReadable(f"{path} has fewer than two samples of a run", ADVICE)
    _interpolate_tokens(runs[-1])
    return _drawn_together(_thinned(runs[-1]), len(runs), _peaks(runs[-1]))


def read_runs(path: Path, *, with_accesses: bool = False) -> list[list[dict[str, Any]]]:
    """Read the samples of every run in a metrics file, in order.

    Args:
        path: The file.
        with_accesses: Whether to keep the page accesses, which are most of it.

    Raises:
        NothingReadable: It cannot be read, or is no metrics file.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise NothingReadable(f"cannot read {path}: {reason}", ADVICE) from error
    runs: list[list[dict[str, Any]]] = []
    for number, line in enumerate(lines, start=1):
        sample = _sample(line)
        if sample is None:
            if number == len(lines):  # a run that was killed leaves half a line
                break
            raise NothingReadable(f"{path}:{number} is no sample of a run", ADVICE)
        if not with_accesses:
            sample.pop("accesses", None)
        if not runs or sample["wall_s"] < runs[-1][-1]["wall_s"]:
            runs.append([])
        runs[-1].append(sample)
    return runs


ADVICE = "Give a file that --metrics has written."


def _sample(line: str) -> dict[str, Any] | None:
    """One line, or None if it is none of ours."""
    try:
        sample = json.loads(line)
        float(sample["wall_s"])
        sample["is_old"] = "links" not in sample
        if sample["is_old"]:
            _complete(sample)
        counts = [sample[name] for name in ("tokens_done", "decoded_tokens", *_SUMS)]
        counts += [tier[name] for tier in sample["tiers"] for name in ("pages", "hot_pages")]
        counts += [link["moved_bytes"] for link in sample["links"].values()] + sample["reuse"]
        times = [*sample["seconds"].values(), *(e["busy_s"] for e in sample["links"].values())]
        complete = set(sample["seconds"]) == {phase.value for phase in Phase}
        complete &= set(sample["hits"]) == {tier.value for tier in Tier}
        complete &= set(sample["links"]) == {link.value for link in Link}
        complete &= all(isinstance(count, int) for count in counts)
        complete &= all(isinstance(time, (int, float)) for time in times)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return sample if complete else None


_SUMS = ("read_bytes", "written_bytes")


def _complete(sample: dict[str, Any]) -> None:
    """Give a sample of an older version the fields that it lacks."""
    if set(sample["seconds"]) == {"idle", "compute", "read", "write"}:
        sample["seconds"] |= {cause.value: 0.0 for cause in STALLS} | sample["seconds"]
    moved = dict.fromkeys(Link, 0)
    moved[Link.DISK_TO_HOST], moved[Link.HOST_TO_DISK] = (sample[name] for name in _SUMS)
    sample["links"] = {
        link.value: {"moved_bytes": num_bytes, "moves": 0, "busy_s": 0.0}
        for link, num_bytes in moved.items()
    }
    sample["reuse"] = []
    for tier in sample["tiers"]:
        tier |= {"hot_pages": 0, "hot_bytes": 0}


def _interpolate_tokens(samples: list[dict[str, Any]]) -> None:
    """Give every sample the tokens of its moment, between those of the steps before and after.

    Tokens come a step at a time, a thousand every few seconds: the speed between two samples would
    be nothing or far too much.
    """
    for task in dict.fromkeys(sample["task"] for sample in samples):
        of_task = [sample for sample in samples if sample["task"] == task]
        counts = [sample["tokens_done"] + sample["decoded_tokens"] for sample in of_task]
        steps = [0, *(i for i in range(1, len(counts)) if counts[i] != counts[i - 1])]
        moments = np.interp(
            [sample["wall_s"] for sample in of_task],
            [of_task[i]["wall_s"] for i in steps],
            [counts[i] for i in steps],
        )
        for sample, tokens in zip(of_task, moments, strict=True):
            sample["tokens_so_far"] = float(tokens)


def _thinned(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most `MOST_POINTS` samples, evenly spread over time, the first and the last included."""
    if len(samples) <= MOST_POINTS:
        return samples
    times = [sample["wall_s"] for sample in samples]
    step = (times[-1] - times[0]) / (MOST_POINTS - 1)
    wanted = [bisect_left(times, times[0] + step * point) for point in range(MOST_POINTS)]
    kept = sorted({min(index, len(samples) - 1) for index in wanted} | {len(samples) - 1})
    return [samples[index] for index in kept]


def _peaks(samples: list[dict[str, Any]]) -> dict[Link, float]:
    """The most that each link moved in any second, before samples are thinned out."""
    peaks, first = dict.fromkeys(Link, 0.0), 0
    for sample in samples:
        while samples[first + 1]["wall_s"] <= sample["wall_s"] - 1.0:
            first += 1
        length = sample["wall_s"] - samples[first]["wall_s"]
        for link in Link if length >= 1.0 else ():
            now, before = sample["links"][link.value], samples[first]["links"][link.value]
            rate = (now["moved_bytes"] - before["moved_bytes"]) / length
            peaks[link] = max(peaks[link], rate)
    return peaks


def _drawn_together(
    samples: list[dict[str, Any]], num_runs: int, peaks: dict[Link, float]
) -> RunLog:
    spans = list(pairwise(samples))

    def rates(*names: str) -> list[float]:
        """Growth per second of a sum that is found under these names."""
        return [max(0.0, _found(b, names) - _found(a, names)) / _length(a, b) for a, b in spans]

    return RunLog(
        samples=samples,
        num_runs=num_runs,
        times=[b["wall_s"] for _, b in spans],
        tokens_per_s=_token_rates(spans),
        link_rates={link: rates("links", link.value, "moved_bytes") for link in Link},
        busy_shares={link: rates("links", link.value, "busy_s") for link in Link},
        peaks=peaks,
        shares={phase: rates("seconds", phase.value) for phase in Phase},
        pages={tier: [_pages(b, tier) for _, b in spans] for tier in Tier},
        hot_shares={tier: [_hot_share(b, tier) for _, b in spans] for tier in Tier},
        hit_shares=_hit_shares(spans),
        is_old=any(sample["is_old"] for sample in samples),
    )


def _found(sample: dict[str, Any], names: tuple[str, ...]) -> float:
    value: Any = sample
    for name in names:
        value = value[name]
    return float(value)


def _token_rates(spans: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[float]:
    """Tokens per second; none where one task has given way to another, which counts anew."""
    return [
        max(0.0, b["tokens_so_far"] - a["tokens_so_far"]) / _length(a, b)
        if a["task"] == b["task"]
        else 0.0
        for a, b in spans
    ]


def _length(a: dict[str, Any], b: dict[str, Any]) -> float:
    return max(float(b["wall_s"] - a["wall_s"]), 1e-3)


def _pages(sample: dict[str, Any], tier: Tier) -> int:
    return sum(int(use["pages"]) for use in sample["tiers"] if use["name"] == tier.value)


def _hot_share(sample: dict[str, Any], tier: Tier) -> float:
    hot = sum(int(use["hot_pages"]) for use in sample["tiers"] if use["name"] == tier.value)
    return hot / max(1, _pages(sample, tier))


def _hit_shares(
    spans: list[tuple[dict[str, Any], dict[str, Any]]],
) -> dict[Tier, list[float]]:
    """Shares of the page reads; where nothing was read, those of before."""
    shares: dict[Tier, list[float]] = {tier: [] for tier in Tier}
    for a, b in spans:
        grown = {tier: b["hits"][tier.value] - a["hits"][tier.value] for tier in Tier}
        total = sum(grown.values())
        for tier, before in shares.items():
            before.append(grown[tier] / total if total else before[-1] if before else 0.0)
    return shares
