"""A model that computes nonsense: it is not kept, and what was kept of it is not served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from engine_kit import SMALLEST, listen, new_file, one_thread, open_engine, saved, text, tiny

from engine.errors import NonFiniteKV, PageCorrupt
from engine.session import SessionFile
from engine.tiers import finite

__all__ = ["one_thread"]
POISON = 295
"""A token that `text` does not use."""


@contextmanager
def poisoned() -> Iterator[None]:
    """The model overflows at one token."""
    weight = tiny("llama", "bfloat16").model.get_input_embeddings().weight
    before = weight[POISON].clone()
    with torch.no_grad():
        weight[POISON] = float("inf")
        try:
            yield
        finally:
            weight[POISON] = before


@pytest.mark.parametrize("more", [40, 400])
def test_kv_that_is_no_number_is_not_kept(more: int, tmp_path: Path) -> None:
    """Neither in whole segments behind the compute nor in the tail of a commit."""
    model, path = tiny("llama", "bfloat16"), tmp_path / "s.kv"
    with open_engine(model, file=new_file(path, model)) as engine:
        sequence = engine.new_sequence()
        listen(engine, sequence, text(200), 0)
        engine.commit(sequence)
        with poisoned(), pytest.raises(NonFiniteKV, match="not numbers"):
            sequence.token_ids += [*text(more - 10, 2), POISON, *text(9, 3)]
            engine.compute(sequence)
            engine.commit(sequence)
    with SessionFile.open(path, writable=False) as file:
        assert file.kv_tokens == 200 and file.token_ids.tolist() == text(200)


@pytest.mark.parametrize("pager", ["explicit", "unified"])
@pytest.mark.parametrize("num_tokens", [300, 203])
def test_what_was_kept_of_it_is_not_served(
    num_tokens: int, pager: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of an earlier version, whose checksums hold: in its pages, or in its tail alone."""
    model, path = tiny("llama", "bfloat16"), saved(tmp_path / "s.kv", 200)
    with monkeypatch.context() as patch, poisoned():
        patch.setattr(finite, "is_finite", lambda data, dtype: True)
        with open_engine(model, file=SessionFile.open(path, writable=True)) as engine:
            sequence = engine.resume()
            listen(engine, sequence, [POISON, *text(num_tokens - 201, 2)], 0)
            engine.commit(sequence)
    file = SessionFile.open(path, writable=True)
    with (
        open_engine(model, SMALLEST, file=file, pager=pager) as engine,
        pytest.raises(PageCorrupt, match="not numbers"),
    ):
        resumed = engine.resume()
        listen(engine, resumed, text(20, 4), 0)
