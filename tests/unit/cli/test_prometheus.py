"""`--prometheus`: what is served parses, agrees with the sample, and only this machine can ask."""

from __future__ import annotations

import socket
import threading
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.errors import ConfigError
from engine.telemetry import STALLS, Link, Phase, Telemetry, TierUse
from engine.types import Tier
from kvcli.prometheus import LOOPBACK, PrometheusServer

Metrics = dict[tuple[str, str], float]


def asked(server: PrometheusServer) -> Metrics:
    """Every value by name and label."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{server.port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    found: Metrics = {}
    for family in text_string_to_metric_families(text):
        assert family.name.startswith("kvcli_") and family.documentation
        for one in family.samples:
            found[one.name, next(iter(one.labels.values()), "")] = one.value
    return found


def test_the_current_sample_is_served() -> None:
    telemetry = Telemetry()
    telemetry.publish_tiers(
        (TierUse("device", 100, 50, 5, 1, 3, 30), TierUse("disk", None, 70, 2, 0)), 7
    )
    telemetry.publish_task("reading", 5, 9)
    telemetry.count_hits({Tier.HOST: 4})
    with PrometheusServer(0, telemetry) as server:
        first = asked(server)
        telemetry.count_written(12)
        with telemetry.phase(Phase.COMMIT):
            later = asked(server)
    assert first["kvcli_tier_pages", "device"] == 5 and first["kvcli_tier_hot_pages", "device"] == 3
    assert first["kvcli_tier_capacity_bytes", "device"] == 100
    assert ("kvcli_tier_capacity_bytes", "disk") not in first
    assert first["kvcli_tier_evictions_total", "device"] == 1
    assert first["kvcli_tier_hits_total", "host"] == 4
    assert (first["kvcli_task_tokens_done", ""], first["kvcli_task_tokens", ""]) == (5, 9)
    assert first["kvcli_link_moved_bytes_total", "host_to_disk"] == 0
    assert later["kvcli_link_moved_bytes_total", "host_to_disk"] == 12
    assert later["kvcli_stall_seconds_total", "commit"] > 0
    for found in (first, later):
        causes = sum(found["kvcli_stall_seconds_total", cause.value] for cause in STALLS)
        parts = found["kvcli_compute_seconds_total", ""] + found["kvcli_idle_seconds_total", ""]
        wall = found["kvcli_wall_seconds_total", ""]
        assert causes + parts == pytest.approx(wall, abs=1e-3)
        links = {label for name, label in found if name == "kvcli_link_busy_seconds_total"}
        assert links == {link.value for link in Link}


def test_only_this_machine_can_ask() -> None:
    with PrometheusServer(0, Telemetry()) as server:
        assert server._server.server_address[0] == "127.0.0.1"


def test_nothing_is_left_when_it_ends() -> None:
    before = threading.active_count()
    with PrometheusServer(0, Telemetry()) as server:
        port = server.port
        asked(server)
    assert threading.active_count() == before
    with PrometheusServer(port, Telemetry()):
        pass


def test_a_port_that_is_taken_stops_the_start(kvcli, tmp_path: Path) -> None:
    """Before any document is read or a model loaded."""
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--prometheus on port {port}: Address already"):
            PrometheusServer(port, Telemetry())
        notes = tmp_path / "notes.txt"
        notes.write_text("Pier 7 is closed.")
        ran = kvcli("ask", "--model", tmp_path / "none", "--doc", notes, "--prometheus", port, "?")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"kvcli: error: cannot serve --prometheus on port {port}: ")
    assert len(ran.err.splitlines()) == 2


@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_what_is_no_port_is_refused(kvcli, port: str) -> None:
    ran = kvcli("ask", "--prometheus", port, "--doc", "x", "?")
    assert ran.code == 2 and "--prometheus" in ran.err
