"""Forks share pages and nothing else: each says what an engine of its own would say, to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_kit import (
    LEAST_HOST,
    RESIDENT,
    SMALL_DEVICE,
    SMALLEST,
    Budget,
    Heard,
    listen,
    new_file,
    open_engine,
    text,
    tiny,
)

from engine.engine import Engine
from engine.errors import OverBudget
from engine.memory.budget import FORK_TOKENS
from engine.session import SessionFile
from engine.types import Tier

SMALL = Budget(device=6, host=LEAST_HOST + 12)
"""Room for what forks keep in memory; the main sequence lies on disk."""


def alone(model: object, *runs: tuple[int, int, int]) -> Heard:
    """What a sequence of its own says last: runs of (tokens, seed, answer)."""
    with open_engine(model) as engine:
        sequence = engine.new_sequence()
        for count, seed, answer in runs:
            heard = listen(engine, sequence, text(count, seed), answer)
    return heard


def counted(engine: Engine) -> tuple[int, int]:
    """Pages that exist, and bytes that they take in memory."""
    sample = engine.telemetry.sample()
    return sample.total_pages, sum(tier.used_bytes for tier in sample.tiers[:2])


@pytest.mark.parametrize(
    ("budget", "kept"),
    [(RESIDENT, False), (SMALL_DEVICE, False), (SMALL_DEVICE, True), (SMALL, False), (SMALL, True)],
)
@pytest.mark.parametrize("base", [200, 192], ids=["mid-page", "segment border"])
def test_two_forks_and_their_parent_go_their_own_ways(
    base: int, budget: Budget, kept: bool, tmp_path: Path
) -> None:
    """Turn by turn, so that each writes while the shared, partly filled page is shared."""
    model = tiny("llama", "bfloat16")
    file = new_file(tmp_path / "s.kv", model) if kept else None
    with open_engine(model, budget, file=file) as engine:
        parent = engine.new_sequence()
        listen(engine, parent, text(base), 0)
        one, two = engine.fork(parent), engine.fork(parent)
        assert one.table.pages == parent.table.pages
        said = {one: [], two: [], parent: []}
        for seed in (2, 3):
            for number, sequence in enumerate((one, parent, two)):
                count = 150 if sequence is parent else 21
                ids = text(count, 10 * seed + number)
                said[sequence].append(listen(engine, sequence, ids, 3))
        for number, sequence in enumerate((one, parent, two)):
            count = 150 if sequence is parent else 21
            runs = [(base, 1, 0), (count, 20 + number, 3), (count, 30 + number, 3)]
            assert said[sequence][0].same_bits(alone(model, *runs[:2]))
            assert said[sequence][1].same_bits(alone(model, *runs))
        if budget is SMALL:
            assert engine.telemetry.sample().hits[Tier.DISK] > 0
        for sequence in (one, two, parent):
            engine.drop(sequence)
            engine.check_integrity()
        assert counted(engine) == (0, 0)


def test_a_fork_of_what_lies_on_disk_reads_it_back(tmp_path: Path) -> None:
    """The parent was resumed: none of its pages is in memory when it is forked."""
    model, path = tiny("llama", "bfloat16"), tmp_path / "s.kv"
    with open_engine(model, file=new_file(path, model)) as engine:
        parent = engine.new_sequence()
        listen(engine, parent, text(300), 0)
        engine.commit(parent)
    for budget in (SMALL, RESIDENT):
        with open_engine(model, budget, file=SessionFile.open(path, writable=True)) as engine:
            parent = engine.resume()
            fork = engine.fork(parent)
            heard = listen(engine, fork, text(40, 2), 3)
            engine.drop(fork)
            listen(engine, parent, text(40, 3), 0)
        assert heard.same_bits(alone(model, (300, 1, 0), (40, 2, 3)))


def test_a_fork_may_end_before_its_parent(tmp_path: Path) -> None:
    """What the parent has said since is not there; the rest of a page is computed again."""
    model, path, ids = tiny("llama", "bfloat16"), tmp_path / "s.kv", text(300)
    with open_engine(model) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, ids[:192], 0)
        expected = listen(engine, sequence, ids[192:200] + text(40, 2), 3)
    with open_engine(model, SMALL_DEVICE, file=new_file(path, model)) as engine:
        parent = engine.new_sequence()
        listen(engine, parent, ids, 0)
        fork = engine.fork(parent, 200)
        assert (fork.token_ids, fork.num_tokens) == (ids[:200], 192)
        assert listen(engine, fork, text(40, 2), 3).same_bits(expected)
        engine.drop(fork)
        engine.check_integrity()
        assert parent.token_ids == ids and parent.num_tokens == 300


@pytest.mark.parametrize("architecture", ["mistral", "gemma2", "llama"])
def test_a_fork_that_lags_behind_reads_whole_pages(architecture: str) -> None:
    """A page that comes up for the parent's step must be whole for a fork that sees further back.

    The parent is so far ahead that its sliding layers no longer look at pages that the fork needs.
    """
    model = tiny(architecture, "bfloat16")
    with open_engine(model) as engine:
        parent = engine.new_sequence()
        listen(engine, parent, text(200), 0)
        lagging = engine.fork(parent)
        listen(engine, parent, text(400, 2), 0)
        residency = engine._stack.residency
        for page in lagging.table.pages:  # as a policy might: other pages take their slots
            residency.drop_device(page)
        listen(engine, engine.fork(parent), text(100, 3), 0)
        heard = listen(engine, lagging, text(30, 5), 3)
    assert heard.same_bits(alone(model, (200, 1, 0), (30, 5, 3)))


def test_a_short_fork_has_room_in_the_smallest_host_tier(tmp_path: Path) -> None:
    """The worst case: a whole segment of the parent lies nowhere but in memory."""
    model = tiny("llama", "bfloat16")
    for budget in (RESIDENT, SMALLEST):
        path = tmp_path / f"{budget.host}.kv"
        with open_engine(model, budget, file=new_file(path, model)) as engine:
            assert engine.memory_plan.host_pages == LEAST_HOST
            parent = engine.new_sequence()
            listen(engine, parent, text(255), 0)
            heard = listen(engine, engine.fork(parent), text(FORK_TOKENS, 2), 0)
            listen(engine, parent, text(100, 3), 0)
        assert heard.same_bits(alone(model, (255, 1, 0), (FORK_TOKENS, 2, 0)))


def test_a_fork_without_room_is_refused_and_changes_nothing() -> None:
    """The host tier is full of pages that lie nowhere else: no copy on write is possible."""
    model = tiny("llama", "bfloat16")
    with open_engine(model, Budget(device=3, host=LEAST_HOST)) as engine:
        parent = engine.new_sequence()
        listen(engine, parent, text(248), 0)
        fork = engine.fork(parent)
        listen(engine, fork, text(60, 2), 0)  # a copy of the last page, and more
        second = engine.fork(parent)
        before = counted(engine), list(parent.table.pages), list(second.table.pages)
        second.token_ids.extend(text(20, 3))
        with pytest.raises(OverBudget, match="host tier"):
            engine.compute(second)
        engine.check_integrity()
        assert (counted(engine), parent.table.pages, second.table.pages) == before
        engine.drop(fork)
        heard = listen(engine, second, [], 2)
    assert heard.same_bits(alone(model, (248, 1, 0), (20, 3, 2)))


def test_the_parent_may_go_first() -> None:
    """A fork outlives its parent, whose pages lie in a spill file."""
    model = tiny("llama", "bfloat16")
    with open_engine(model, SMALL) as engine:
        parent = engine.new_sequence()
        listen(engine, parent, text(600), 0)
        fork = engine.fork(parent)
        engine.drop(parent)
        heard = listen(engine, fork, text(20, 2), 2)
        assert engine.telemetry.sample().read_bytes > 0
        engine.drop(fork)
        assert counted(engine) == (0, 0)
    assert heard.same_bits(alone(model, (600, 1, 0), (20, 2, 2)))


def test_a_new_sequence_takes_the_place_of_a_dropped_one() -> None:
    """Both spill to the same segments of the same file."""
    model = tiny("llama", "bfloat16")
    with open_engine(model, SMALL) as engine:
        for seed in (1, 2):
            sequence = engine.new_sequence()
            heard = listen(engine, sequence, text(400, seed), 3)
            engine.drop(sequence)
    assert heard.same_bits(alone(model, (400, 2, 3)))
