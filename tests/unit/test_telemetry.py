"""Telemetry: every second in exactly one phase, every byte once."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import telemetry
from engine.telemetry import (
    STALLS,
    Link,
    LinkUse,
    MapCell,
    Phase,
    ResidencyMap,
    Telemetry,
    TierUse,
)
from engine.types import Tier


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets: its only element is the time."""
    now = [100.0]
    monkeypatch.setattr(telemetry, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@dataclass
class Clock:
    now: float = 0


@dataclass
class HeldLock:
    """Never free at once; each wait for it takes some seconds of a clock."""

    clock: list[float]
    seconds: float

    def acquire(self, blocking: bool = True) -> bool:
        if blocking:
            self.clock[0] += self.seconds
        return blocking

    def release(self) -> None:
        pass


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
    booked = {Phase.IDLE: 33, Phase.COMPUTE: 10, Phase.READ: 4, Phase.WRITE: 16}
    assert sample.seconds == dict.fromkeys(Phase, 0) | booked
    assert sample.stall_s == 20
    assert sum(sample.seconds.values()) == sample.wall_s == 63


@given(st.lists(st.tuples(st.sampled_from(Phase), st.integers(0, 9)), max_size=30), st.data())
def test_every_second_is_in_exactly_one_phase(
    walk: list[tuple[Phase, int]], data: st.DataObject
) -> None:
    """Phases within phases, ending in any order, beside a model that counts by hand."""
    clock = Clock()
    with patch.object(telemetry, "time", SimpleNamespace(monotonic=lambda: clock.now)):
        made, expected = Telemetry(_start=0, _since=0), dict.fromkeys(Phase, 0)
        open_now: list[tuple[Phase, AbstractContextManager[None]]] = []
        for phase, seconds in walk:
            if open_now and data.draw(st.booleans()):
                open_now.pop()[1].__exit__(None, None, None)
            else:
                span = made.phase(phase)
                span.__enter__()
                open_now.append((phase, span))
            clock.now += seconds
            expected[open_now[-1][0] if open_now else Phase.IDLE] += seconds
            sample = made.sample()
            assert sample.seconds == expected
            assert sum(sample.seconds.values()) == sample.wall_s
            assert sample.stall_s == sum(expected[cause] for cause in STALLS)


def test_waiting_for_a_lock_is_a_stall_of_its_own(clock: list[float]) -> None:
    """Another thread holds the lock for 7 s while the engine's thread changes its phase."""
    made = started(clock)
    made._lock = HeldLock(clock, 7)
    with made.phase(Phase.COMPUTE):
        clock[0] += 2
    made._lock = threading.Lock()
    sample = made.sample()
    assert (sample.seconds[Phase.COMPUTE], sample.seconds[Phase.LOCK]) == (2, 14)
    assert sum(sample.seconds.values()) == sample.wall_s == 16


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


def test_a_link_is_busy_while_any_thread_moves(clock: list[float]) -> None:
    """Two reads that overlap are one stretch of time; what runs now counts so far."""
    made = started(clock)
    clock[0] += 5
    first, second = made.busy(Link.DISK_TO_HOST), made.busy(Link.DISK_TO_HOST)
    first.__enter__()
    clock[0] += 2
    second.__enter__()
    clock[0] += 1
    first.__exit__(None, None, None)
    clock[0] += 3
    assert made.sample().links[Link.DISK_TO_HOST].busy_s == 6
    second.__exit__(None, None, None)
    clock[0] += 9
    assert made.sample().links[Link.DISK_TO_HOST] == LinkUse(0, 0, 6)
    assert made.sample().links[Link.HOST_TO_DISK] == LinkUse()


def test_a_read_that_fails_leaves_its_link_idle(clock: list[float]) -> None:
    made = started(clock)
    with pytest.raises(OSError), made.busy(Link.DISK_TO_HOST):
        clock[0] += 1
        raise OSError
    clock[0] += 1
    assert made.sample().links[Link.DISK_TO_HOST].busy_s == 1


def test_what_comes_up_counts_for_its_link_and_as_a_stall(clock: list[float]) -> None:
    made = started(clock)
    with made.phase(Phase.COMPUTE):
        with made.bring_up(100):
            clock[0] += 3
        with pytest.raises(RuntimeError), made.bring_up(100):
            clock[0] += 2
            raise RuntimeError
    sample = made.sample()
    assert sample.links[Link.HOST_TO_DEVICE] == LinkUse(100, 1, 3)
    assert sample.seconds[Phase.DECODE] == 5


def test_a_map_is_drawn_only_for_somebody_who_looks(clock: list[float]) -> None:
    made, drawn = started(clock), ResidencyMap((MapCell(Tier.DISK, False),), 1)
    assert made.wanted_map() is None
    assert made.ask_map(80) is None
    assert made.wanted_map() == 80
    made.publish_map(drawn)
    clock[0] += 100
    assert made.wanted_map() is None, "nobody has asked since"
    assert made.ask_map(80) is drawn


def test_maps_come_at_most_four_times_a_second_and_take_little_of_it(clock: list[float]) -> None:
    made, drawn = started(clock), ResidencyMap((), 0)
    made.ask_map(80)
    assert made.wanted_map() == 80
    made.publish_map(drawn)
    made.ask_map(80)
    clock[0] += telemetry.MAP_SECONDS - 0.125
    assert made.wanted_map() is None
    clock[0] += 0.125
    assert made.wanted_map() == 80
    clock[0] += 1  # so long did it take to draw this one
    made.publish_map(drawn)
    made.ask_map(80)
    clock[0] += 99
    assert made.wanted_map() is None
    clock[0] += 1
    assert made.wanted_map() == 80


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
