"""How far a run is and how fast it goes, from samples of the telemetry.

Owns speeds, shares and the plain lines that say them. Knows no screen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from engine.telemetry import STALLS, Link, Phase, Sample
from engine.types import Tier
from kvcli.sizes import format_clock, format_size


@dataclass(frozen=True, slots=True)
class LinkRate:
    """How fast a link between two tiers is used."""

    now: float = 0.0
    """Bytes per second over the last seconds."""
    peak: float = 0.0
    """Bytes per second, the most in any second so far."""
    when_busy: float | None = None
    """Bytes per second of the time in which anything moved at all; None: nothing ever did."""
    busy: float = 0.0
    """Share of the last seconds in which anything moved."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Speeds over the last seconds."""

    tokens: float = 0.0
    """Tokens per second, read and generated."""
    eta_s: float | None = None
    """Seconds until the task is done; None while unknown or nothing is left."""
    links: dict[Link, LinkRate] = field(default_factory=dict)


NOW_S, LATELY_S = 10.0, 60.0
"""Seconds that the speed shown and the time left go back, at least over some steps."""

LEAST_STEPS = 3


@dataclass(slots=True)
class Pace:
    """Speed of a count that grows in steps, as tokens do: by a thousand every few seconds.

    Between two steps nothing is known, so speed is taken from step to step; only when the next one
    is overdue does the waiting count.
    """

    _steps: deque[tuple[float, int]] = field(default_factory=deque)
    """When the count had grown, seconds, and to what."""

    def add(self, now: float, count: int) -> None:
        """Take the count in as it is now."""
        if not self._steps or count > self._steps[-1][1]:
            self._steps.append((now, count))
        while len(self._steps) > LEAST_STEPS + 1 and self._steps[1][0] < now - LATELY_S:
            self._steps.popleft()

    def over(self, seconds: float, now: float) -> float:
        """Growth per second over the last `seconds`, 0 while unknown."""
        recent = [step for step in self._steps if step[0] >= now - seconds]
        steps = max(recent, list(self._steps)[-LEAST_STEPS - 1 :], key=len)
        if len(steps) < 2:
            return 0.0
        (first_at, first), (last_at, last) = steps[0], steps[-1]
        usual = (last_at - first_at) / (len(steps) - 1)
        overdue = max(0.0, now - last_at - 2 * usual)
        return (last - first) / max(last_at - first_at + overdue, 1e-3)


TIMELINE_S = 60.0
"""Seconds that curves go back."""

TRAFFIC_S, PEAK_S, LEAST_S = 2.0, 1.0, 0.2
"""Seconds over which a link's rate is taken, now and for its peak; least between two samples."""


@dataclass(slots=True)
class History:
    """The last samples, from which speeds come."""

    samples: deque[Sample] = field(default_factory=deque)
    """Those of the last minute, and one from before it."""
    _tokens: Pace = field(default_factory=Pace)
    _done: Pace = field(default_factory=Pace)
    _peaks: dict[Link, float] = field(default_factory=lambda: dict.fromkeys(Link, 0.0))

    def add(self, sample: Sample) -> Rates:
        """Take a sample in and return the speeds now.

        Tokens of an earlier task are forgotten, for they are not comparable; links go on.
        """
        if self.samples and self.samples[-1].task != sample.task:
            self._tokens, self._done = Pace(), Pace()
        if len(self.samples) > 1 and sample.wall_s - self.samples[-2].wall_s < LEAST_S:
            self.samples.pop()
        self.samples.append(sample)
        while len(self.samples) > 2 and self.samples[1].wall_s < sample.wall_s - TIMELINE_S:
            self.samples.popleft()
        self._tokens.add(sample.wall_s, sample.tokens_done + sample.decoded_tokens)
        self._done.add(sample.wall_s, sample.tokens_done)
        return Rates(
            tokens=self._tokens.over(NOW_S, sample.wall_s),
            eta_s=self._eta(sample),
            links={link: self._link_rate(link) for link in Link},
        )

    def _link_rate(self, link: Link) -> LinkRate:
        use = self.samples[-1].links[link]
        before, elapsed = self._back(TRAFFIC_S)
        second, length = self._back(PEAK_S)
        if length >= PEAK_S:
            grown = use.moved_bytes - second.links[link].moved_bytes
            self._peaks[link] = max(self._peaks[link], grown / length)
        now = (use.moved_bytes - before.links[link].moved_bytes) / elapsed if elapsed else 0.0
        busy = (use.busy_s - before.links[link].busy_s) / elapsed if elapsed else 0.0
        return LinkRate(
            now=now,
            peak=max(self._peaks[link], now) if elapsed >= PEAK_S else self._peaks[link],
            when_busy=use.moved_bytes / use.busy_s if use.busy_s else None,
            busy=min(1.0, busy),
        )

    def _back(self, seconds: float) -> tuple[Sample, float]:
        """The newest sample at least so long ago, else the oldest; and how long ago that was."""
        last = self.samples[-1]
        for sample in reversed(self.samples):
            if sample.wall_s <= last.wall_s - seconds:
                break
        return sample, last.wall_s - sample.wall_s

    def _eta(self, sample: Sample) -> float | None:
        left = sample.tokens_total - sample.tokens_done
        speed = self._done.over(LATELY_S, sample.wall_s)
        return left / speed if left > 0 and speed > 0 else None

    def growth(self, count: Callable[[Sample], float], columns: int) -> list[float | None]:
        """How fast a sum grew over the last minute, cut into columns, oldest first.

        Returns:
            Growth per second in each column; None where nothing is known.
        """
        times = [sample.wall_s for sample in self.samples]
        borders = np.linspace(times[-1] - TIMELINE_S, times[-1], columns + 1)
        sums = np.interp(borders, times, [count(sample) for sample in self.samples])
        rates = np.diff(sums) / (TIMELINE_S / columns)
        return [
            max(0.0, float(rate)) if begin >= times[0] else None
            for begin, rate in zip(borders, rates, strict=False)
        ]


def hits_and_misses(sample: Sample, name: str) -> tuple[int, int]:
    """Page reads that a tier served, and those that had to go further down."""
    order = list(Tier)
    at = next((i for i, tier in enumerate(order) if tier.value == name), len(order) - 1)
    return sample.hits[order[at]], sum(sample.hits[tier] for tier in order[at + 1 :])


def time_shares(sample: Sample) -> dict[Phase, float]:
    """Share of the wall clock in each phase; they sum to 1."""
    total = sum(sample.seconds.values()) or 1.0
    return {phase: seconds / total for phase, seconds in sample.seconds.items()}


def format_share(share: float) -> str:
    """Write a share in four letters at most: `0%`, `<.1%`, `0.4%`, `12%`."""
    if share <= 0:
        return "0%"
    if share < 0.0005:
        return "<.1%"
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def format_count(count: int) -> str:
    """Write a count in seven letters at most: `12,345`, `1.23 M`."""
    if count < 1_000_000:
        return f"{count:,}"
    return f"{count / 1e6:.2f} M" if count < 99_995_000 else f"{count / 1e6:,.0f} M"


def format_speed(tokens_per_s: float) -> str:
    """Write tokens per second: `1,210`, or `9.8` when slow."""
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 20 else f"{tokens_per_s:.1f}"


def progress_line(sample: Sample, rates: Rates) -> str:
    """One plain line on how far it is."""
    parts = [f"{sample.task or 'starting'} {sample.tokens_done:,}/{sample.tokens_total:,} tokens"]
    if sample.tokens_total:
        parts[0] += f" ({sample.tokens_done / sample.tokens_total:.0%})"
    if sample.decoded_tokens:
        parts.append(f"{sample.decoded_tokens:,} new")
    if rates.tokens:
        parts.append(f"{format_speed(rates.tokens)} tok/s")
    if rates.eta_s is not None:
        parts.append(f"ETA {format_clock(rates.eta_s)}")
    if sample.tiers:
        parts.append("pages " + ", ".join(f"{use.name} {use.pages:,}" for use in sample.tiers))
    parts.append(
        f"read {format_size(sample.read_bytes)}, wrote {format_size(sample.written_bytes)}"
    )
    return " · ".join(parts)


def closing_line(sample: Sample) -> str:
    """The run in one line: tokens, pages by tier, bytes of the disk tier, where the time went."""
    count = f"{sample.tokens_done:,} tokens"
    if sample.decoded_tokens:
        count += f" and {sample.decoded_tokens:,} new"
    parts = [f"{count} in {sample.wall_s:.1f} s"]
    if sample.tokens_done and not sample.decoded_tokens and sample.wall_s > 0:
        parts[0] += f" ({format_speed(sample.tokens_done / sample.wall_s)} tok/s)"
    if sample.tiers:
        first, *rest = sample.tiers
        pages = [
            f"{first.name} {first.pages:,} pages",
            *(f"{use.name} {use.pages:,}" for use in rest),
        ]
        parts.append(", ".join(pages))
    parts.append(
        f"read {format_size(sample.read_bytes)}, wrote {format_size(sample.written_bytes)}"
    )
    spent = time_shares(sample)
    stall = sum(spent[cause] for cause in STALLS)
    parts.append(
        f"compute {spent[Phase.COMPUTE]:.0%} stall {stall:.0%} idle {spent[Phase.IDLE]:.0%}"
    )
    return " · ".join(parts)
