"""Prefetching in the whole engine: the same bits, and pages that lie there when asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_kit import (
    LEAST_HOST,
    Budget,
    Heard,
    listen,
    one_thread,
    open_engine,
    saved,
    text,
    tiny,
)

from engine.engine import Engine
from engine.policies.prefetch import PREFETCH_POLICIES
from engine.session import SessionFile
from engine.types import Tier

__all__ = ["one_thread"]
DOCUMENT = 600
ROOMY = Budget(device=4, host=LEAST_HOST + 24)


def come(engine: Engine) -> None:
    """Wait until everything that is on its way has come."""
    prefetcher = engine._prefetcher
    assert prefetcher is not None
    while prefetcher._flying:
        for flight in list(prefetcher._flying.values()):
            flight.load.result(timeout=60)
        prefetcher.run()


def resumed(path: Path, *, wait: bool, **settings: object) -> tuple[Heard, Engine]:
    file = SessionFile.open(path, writable=True)
    with open_engine(tiny("llama", "bfloat16"), ROOMY, file=file, **settings) as engine:
        sequence = engine.resume()
        if wait:
            come(engine)
        return listen(engine, sequence, text(20, 2), 6), engine


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("policy", sorted(PREFETCH_POLICIES))
def test_prefetching_changes_no_bit(policy: str, wait: bool, tmp_path: Path) -> None:
    path = saved(tmp_path / "s.kv", DOCUMENT)
    expected, _ = resumed(path, wait=False)
    heard, _ = resumed(path, wait=wait, prefetch=(policy,))
    assert heard.same_bits(expected)


def test_after_a_resume_the_first_pages_lie_there_when_they_are_asked_for(tmp_path: Path) -> None:
    path = saved(tmp_path / "s.kv", DOCUMENT)
    _, cold = resumed(path, wait=False)
    _, warm = resumed(path, wait=True, prefetch=("sequential",))
    counts = warm.telemetry.prefetch
    assert counts.issued >= 5 and counts.useful == counts.issued and not counts.wasted
    assert cold.telemetry.sample().hits[Tier.HOST] < warm.telemetry.sample().hits[Tier.HOST]
    assert cold.telemetry.prefetch.issued == 0


def test_runners_up_are_there_for_the_next_answer(tmp_path: Path) -> None:
    path = saved(tmp_path / "s.kv", DOCUMENT)
    file = SessionFile.open(path, writable=True)
    model = tiny("llama", "bfloat16")
    with open_engine(model, ROOMY, file=file, prefetch=("runner-up", "temporal")) as engine:
        sequence = engine.resume()
        engine.drop(engine.gather(sequence, [10, 11]))
        engine.expect(sequence, [10, 20, 21])
        come(engine)
        before = engine.telemetry.sample().read_bytes
        engine.drop(engine.gather(sequence, [20, 21]))
        assert engine.telemetry.sample().read_bytes == before
        counts = engine.telemetry.prefetch
        assert (counts.issued, counts.useful, counts.wasted) == (2, 2, 0)


def test_closing_gives_up_what_is_on_its_way(tmp_path: Path) -> None:
    path = saved(tmp_path / "s.kv", DOCUMENT)
    for _ in range(3):
        file = SessionFile.open(path, writable=True)
        with open_engine(
            tiny("llama", "bfloat16"), ROOMY, file=file, prefetch=("sequential",)
        ) as engine:
            engine.resume()


def test_without_a_disk_or_room_there_is_nothing_to_prefetch(tmp_path: Path) -> None:
    path = saved(tmp_path / "s.kv", DOCUMENT)
    model = tiny("llama", "bfloat16")
    with open_engine(model, prefetch=("sequential",)) as engine:
        listen(engine, engine.new_sequence(), text(100), 2)
        assert engine.telemetry.prefetch.issued == 0
    file = SessionFile.open(path, writable=True)
    least = Budget(device=1, host=LEAST_HOST)
    with open_engine(model, least, file=file, prefetch=("sequential",)) as engine:
        listen(engine, engine.resume(), text(20, 2), 1)
        assert engine.telemetry.prefetch.issued == 0
