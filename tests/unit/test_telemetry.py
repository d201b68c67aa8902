"""Telemetry: every second in exactly one phase, every byte once."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from engine import telemetry
from engine.telemetry import Phase, Telemetry, TierUse
from engine.types import Tier


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets: its only element is the time."""
    now = [100.0]
    monkeypatch.setattr(telemetry, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def started(clock: list[float]) -> Telemetry:
    return Telemetry(_start=clock[0], _since=clock[0])


def test_the_inner_phase_counts(clock: list[float]) -> None:
    made = started(clock)
    clock[0] += 1
    with made.phase(Phase.COMPUTE):
        clock[0] += 2
        with made.phase(Phase.READ):
            clock[0] += 4
        clock[0] += 8
        with made.phase(Phase.WRITE):
            clock[0] += 16
    clock[0] += 32
    sample = made.sample()
    assert sample.seconds == {Phase.IDLE: 33, Phase.COMPUTE: 10, Phase.READ: 4, Phase.WRITE: 16}
    assert sample.stall_s == 20
    assert sum(sample.seconds.values()) == sample.wall_s == 63


def test_a_sample_in_the_middle_of_a_phase_counts_it_so_far(clock: list[float]) -> None:
    made = started(clock)
    with made.phase(Phase.READ):
        clock[0] += 5
        assert made.sample().seconds[Phase.READ] == 5
        clock[0] += 1
        assert made.sample().seconds[Phase.READ] == 6


def test_a_phase_ends_when_its_work_fails(clock: list[float]) -> None:
    made = started(clock)
    with pytest.raises(RuntimeError), made.phase(Phase.COMPUTE):
        clock[0] += 1
        raise RuntimeError
    clock[0] += 3
    assert made.sample().seconds[Phase.COMPUTE] == 1


def test_a_sample_does_not_change_any_more(clock: list[float]) -> None:
    made = started(clock)
    before = made.sample()
    made.count_read(7)
    made.count_hits(dict.fromkeys(Tier, 2))
    clock[0] += 1
    assert before.read_bytes == 0 and sum(before.hits.values()) == 0
    assert sum(before.seconds.values()) == 0


def test_everything_counted_is_in_the_sample() -> None:
    made = Telemetry()
    made.count_read(10)
    made.count_read(5)
    made.count_written(3)
    made.count_hits({Tier.HOST: 4})
    made.count_hits({Tier.HOST: 1, Tier.DISK: 2})
    made.count_decoded()
    made.publish_task("reading", 5, 9)
    tiers = (TierUse("device", 100, 50, 5, 1), TierUse("disk", None, 70, 2, 0))
    made.publish_tiers(tiers, 7)
    sample = made.sample()
    assert (sample.read_bytes, sample.written_bytes, sample.decoded_tokens) == (15, 3, 1)
    assert sample.hits == {Tier.DEVICE: 0, Tier.HOST: 5, Tier.DISK: 2}
    assert (sample.task, sample.tokens_done, sample.tokens_total) == ("reading", 5, 9)
    assert (sample.tiers, sample.total_pages) == (tiers, 7)


def test_threads_lose_no_bytes() -> None:
    made = Telemetry()

    def count() -> None:
        for _ in range(2000):
            made.count_read(1)
            made.count_written(2)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (made.sample().read_bytes, made.sample().written_bytes) == (8000, 16000)
