"""Gathered pages: copies that attend like a text of their own, wherever the originals lie."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine_kit import RESIDENT, SMALL, Budget, new_file, open_engine, text, tiny

from engine.errors import OverBudget


@pytest.mark.parametrize("budget", [RESIDENT, SMALL], ids=["resident", "small"])
def test_gathered_first_pages_are_the_text_so_far(budget: Budget, tmp_path: Path) -> None:
    """The first pages gathered give the logits that the text gave after them, bit for bit."""
    model, ids = tiny(), text(500)
    size = model.geometry.page_tokens
    file = new_file(tmp_path / "s.kv", model)
    with open_engine(model, budget, file=file) as engine:
        sequence = engine.new_sequence()
        sequence.token_ids += ids[: 4 * size]
        engine.compute(sequence)
        fork = engine.fork(sequence)
        fork.token_ids += ids[4 * size : 4 * size + 5]
        expected = engine.compute(fork)
        engine.drop(fork)
        sequence.token_ids += ids[4 * size :]
        engine.compute(sequence)
        gathered = engine.gather(sequence, [0, 1, 2, 3])
        assert gathered.token_ids == ids[: 4 * size]
        gathered.token_ids += ids[4 * size : 4 * size + 5]
        assert torch.equal(engine.compute(gathered), expected)
        engine.check_integrity()
        engine.drop(gathered)
        engine.check_integrity()


@pytest.mark.parametrize("budget", [RESIDENT, SMALL], ids=["resident", "small"])
def test_order_is_the_callers_and_positions_are_compact(budget: Budget, tmp_path: Path) -> None:
    """The same order gives the same logits, wherever evictions have put the pages meanwhile."""
    model = tiny()
    size = model.geometry.page_tokens
    file = new_file(tmp_path / "s.kv", model)
    with open_engine(model, budget, file=file) as engine:
        sequence = engine.new_sequence()
        sequence.token_ids += text(20 * size)
        engine.compute(sequence)
        results = []
        for pages in ([0, 7, 12], [0, 12, 7], [0, 7, 12]):
            gathered = engine.gather(sequence, pages)
            gathered.token_ids += text(3, seed=5)
            results.append(engine.compute(gathered))
            engine.drop(gathered)
        assert torch.equal(results[0], results[2])
        assert not torch.equal(results[0], results[1])


def test_no_room_leaves_everything_as_it_was() -> None:
    model = tiny()
    with open_engine(model, SMALL, num_tokens=4000) as engine:
        sequence = engine.new_sequence()
        sequence.token_ids += text(600)
        engine.compute(sequence)
        with pytest.raises(OverBudget):
            engine.gather(sequence, list(range(engine.memory_plan.host_pages + 1)))
        engine.check_integrity()
        engine.drop(engine.gather(sequence, [0, 1]))
        engine.check_integrity()
