"""`--prometheus PORT`: the current sample for Prometheus, at http://127.0.0.1:PORT/metrics.

Owns the names of the metrics and the server's life. Serves this machine alone. Names follow
Prometheus's own rules: base units, `_total` for what only grows, labels for tier, link and cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.errors import ConfigError
from engine.telemetry import STALLS, Phase, Sample, Telemetry

LOOPBACK = "127.0.0.1"


class PrometheusServer:
    """Serves samples while it is open.

    Args:
        port: Where; 0 takes any free one, see `port`.
        telemetry: What to sample, anew for every request.

    Raises:
        ConfigError: The port is taken or not allowed.
    """

    def __init__(self, port: int, telemetry: Telemetry) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(SampleCollector(telemetry))
        try:
            self._server, self._thread = start_http_server(port, LOOPBACK, registry)
        except OSError as error:
            raise ConfigError(
                f"cannot serve --prometheus on port {port}: {error.strerror}",
                "Give another port.",
            ) from error

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class SampleCollector(Collector):
    """Turns one sample into metrics each time that it is asked."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def collect(self) -> Iterable[Metric]:
        """Give all metrics of one sample, so that they agree with each other."""
        sample = self._telemetry.sample()
        yield from _progress(sample)
        yield from _time(sample)
        yield from _tiers(sample)
        yield from _links(sample)
        yield from _read_early(sample)


def _progress(sample: Sample) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "kvcli_task_tokens_done", "Tokens of the current task that have KV.", sample.tokens_done
    )
    yield GaugeMetricFamily("kvcli_task_tokens", "Tokens of the current task.", sample.tokens_total)
    yield CounterMetricFamily("kvcli_decoded_tokens", "Tokens generated.", sample.decoded_tokens)


def _time(sample: Sample) -> Iterable[Metric]:
    seconds = sample.seconds
    yield CounterMetricFamily("kvcli_wall_seconds", "Time since the start.", sample.wall_s)
    yield CounterMetricFamily("kvcli_compute_seconds", "Time computing.", seconds[Phase.COMPUTE])
    yield CounterMetricFamily("kvcli_idle_seconds", "Time with nothing to do.", seconds[Phase.IDLE])
    stalls = CounterMetricFamily(
        "kvcli_stall_seconds", "Time that work waited, by cause.", labels=["cause"]
    )
    for cause in STALLS:
        stalls.add_metric([cause.value], seconds[cause])
    yield stalls


def _tiers(sample: Sample) -> Iterable[Metric]:
    names = (
        ("kvcli_tier_capacity_bytes", "Room of a tier; the disk has no bound of its own."),
        ("kvcli_tier_used_bytes", "Bytes of every copy in a tier."),
        ("kvcli_tier_pages", "Pages whose fastest copy lies in a tier."),
        ("kvcli_tier_hot_pages", "Those of them that one of the last steps has read."),
    )
    gauges = [GaugeMetricFamily(name, text, labels=["tier"]) for name, text in names]
    evictions = CounterMetricFamily(
        "kvcli_tier_evictions", "Pages that had to leave a tier.", labels=["tier"]
    )
    hits = CounterMetricFamily(
        "kvcli_tier_hits", "Page reads by the tier that served them.", labels=["tier"]
    )
    for use in sample.tiers:
        figures = (use.capacity_bytes, use.used_bytes, use.pages, use.hot_pages)
        for gauge, figure in zip(gauges, figures, strict=True):
            if figure is not None:
                gauge.add_metric([use.name], figure)
        evictions.add_metric([use.name], use.evictions)
    for tier, pages in sample.hits.items():
        hits.add_metric([tier.value], pages)
    yield from (*gauges, evictions, hits)


def _read_early(sample: Sample) -> Iterable[Metric]:
    for name, what, counts in (
        ("kvcli_prefetch_pages", "Pages brought in before they were asked for.", sample.prefetch),
        ("kvcli_read_ahead_parts", "Attention parts streamed ahead.", sample.read_ahead),
    ):
        family = CounterMetricFamily(name, what, labels=["outcome"])
        for outcome, count in asdict(counts).items():
            family.add_metric([outcome], count)
        yield family
    yield CounterMetricFamily(
        "kvcli_major_faults", "Waits for memory that was read from a disk.", sample.major_faults
    )


def _links(sample: Sample) -> Iterable[Metric]:
    names = (
        ("kvcli_link_moved_bytes", "Bytes moved between two tiers."),
        ("kvcli_link_moves", "Pieces of I/O, or attention parts brought up."),
        ("kvcli_link_busy_seconds", "Time in which at least one thread was moving."),
    )
    counters = [CounterMetricFamily(name, text, labels=["link"]) for name, text in names]
    for link, use in sample.links.items():
        for counter, figure in zip(counters, (use.moved_bytes, use.moves, use.busy_s), strict=True):
            counter.add_metric([link.value], figure)
    yield from counters
