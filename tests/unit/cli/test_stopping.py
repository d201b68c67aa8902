"""When a signal stops a run: at once, at the next check, or at once after all."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from kvcli.stopping import AT_ONCE_SECONDS, SIGNALS, StopRequest, StopRequested


class Told:
    """Counts and waits for what `on_request` is told."""

    def __init__(self) -> None:
        self.times = 0
        self.event = threading.Event()

    def __call__(self) -> None:
        self.times += 1
        self.event.set()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def stop(told: Told) -> Iterator[StopRequest]:
    with StopRequest(told) as request:
        yield request


@pytest.mark.parametrize("number", SIGNALS)
def test_before_anything_is_at_stake_a_signal_interrupts_at_once(
    stop: StopRequest, number: signal.Signals
) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        signal.raise_signal(number)
    assert not isinstance(caught.value, StopRequested)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_deferred_signal_waits_for_the_check(stop: StopRequest, number: signal.Signals) -> None:
    stop.defer()
    stop.check()
    signal.raise_signal(number)
    assert stop.received is number
    with pytest.raises(StopRequested):
        stop.check()


def test_a_second_signal_interrupts_at_once(stop: StopRequest) -> None:
    stop.defer()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        signal.raise_signal(signal.SIGTERM)
    assert not isinstance(caught.value, StopRequested)


def test_a_wait_is_told_and_a_quick_stop_is_not(told: Told) -> None:
    with StopRequest(told) as stop:
        stop.defer()
        signal.raise_signal(signal.SIGINT)
        assert told.event.wait(10 + AT_ONCE_SECONDS)
        stop.forget()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(StopRequested):
            stop.check()
    assert told.times == 1


def test_a_forgotten_signal_is_gone(stop: StopRequest) -> None:
    """And the next one is again a first one."""
    stop.defer()
    signal.raise_signal(signal.SIGINT)
    stop.forget()
    stop.check()
    signal.raise_signal(signal.SIGINT)
    assert stop.received is signal.SIGINT


def test_while_input_is_awaited_a_signal_stops_at_once(stop: StopRequest) -> None:
    """As a stop that was asked for, because nothing is at stake."""
    stop.defer()
    with pytest.raises(StopRequested), stop.at_once():
        signal.raise_signal(signal.SIGINT)
        pytest.fail("went on")
    stop.forget()
    signal.raise_signal(signal.SIGINT)  # deferred again


def test_a_signal_that_came_before_input_is_awaited_is_not_slept_through(stop: StopRequest) -> None:
    stop.defer()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(StopRequested), stop.at_once():
        pytest.fail("waited for input")


def test_handlers_are_given_back_and_ignored_signals_stay_ignored(told: Told) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        interrupt = signal.getsignal(signal.SIGINT)
        with StopRequest(told) as stop:
            signal.raise_signal(signal.SIGTERM)
            assert stop.received is None
            assert signal.getsignal(signal.SIGINT) is not interrupt
        assert signal.getsignal(signal.SIGINT) is interrupt
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_stop_request_is_an_interrupt_to_who_does_not_know_it() -> None:
    assert issubclass(StopRequested, KeyboardInterrupt)
