"""How far a run is and how fast it goes, from samples of the telemetry.

Owns speeds, shares and the plain lines that say them. Knows no screen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.telemetry import STALLS, Phase, Sample
from engine.types import Tier
from kvcli.sizes import format_clock, format_size


@dataclass(frozen=True, slots=True)
class Rates:
    """Speeds over the last seconds."""

    tokens: float = 0.0
    """Tokens per second, read and generated."""
    read: float = 0.0
    """Bytes per second."""
    written: float = 0.0
    """Bytes per second."""
    eta_s: float | None = None
    """Seconds until the task is done; None while unknown or nothing is left."""


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


@dataclass(slots=True)
class History:
    """The last samples, from which speeds come."""

    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=64))
    _tokens: Pace = field(default_factory=Pace)
    _done: Pace = field(default_factory=Pace)

    def add(self, sample: Sample) -> Rates:
        """Take a sample in and return the speeds now.

        Samples of an earlier task are forgotten: their tokens are not comparable.
        """
        if self.samples and self.samples[-1].task != sample.task:
            self.samples.clear()
            self._tokens, self._done = Pace(), Pace()
        self.samples.append(sample)
        self._tokens.add(sample.wall_s, sample.tokens_done + sample.decoded_tokens)
        self._done.add(sample.wall_s, sample.tokens_done)
        return Rates(
            tokens=self._tokens.over(NOW_S, sample.wall_s),
            read=self._rate([s.read_bytes for s in self.samples], 8),
            written=self._rate([s.written_bytes for s in self.samples], 8),
            eta_s=self._eta(sample),
        )

    def _rate(self, values: Sequence[float], last: int) -> float:
        """Growth per second over the `last` newest samples."""
        values, times = values[-last:], [s.wall_s for s in self.samples][-last:]
        elapsed = times[-1] - times[0]
        return max(0.0, values[-1] - values[0]) / elapsed if elapsed > 0 else 0.0

    def _eta(self, sample: Sample) -> float | None:
        left = sample.tokens_total - sample.tokens_done
        speed = self._done.over(LATELY_S, sample.wall_s)
        return left / speed if left > 0 and speed > 0 else None

    def traffic(self) -> list[tuple[float, float]]:
        """Bytes read and written per second, between each two samples."""
        pairs = list(zip(self.samples, list(self.samples)[1:], strict=False))
        return [
            (
                (b.read_bytes - a.read_bytes) / max(b.wall_s - a.wall_s, 1e-3),
                (b.written_bytes - a.written_bytes) / max(b.wall_s - a.wall_s, 1e-3),
            )
            for a, b in pairs
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
