"""Attention that finds pages by a table, as on a GPU: the same bits in any slot, the same answers.

The CPU stands for the GPU, with copies that are done late.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from engine_kit import (
    RESIDENT,
    SMALL,
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
from late_copies import LateCopies
from torch import Tensor

from engine import assembly
from engine.attention import exact, source
from kernels import paged
from kernels.paged import MOST_QUERIES

BUDGETS = {"device": SMALL_DEVICE, "ram": SMALL, "one page": SMALLEST}
PROMPT, ANSWER = 600, 8


@cache
def by_views(architecture: str) -> Heard:
    """What the engine says where parts are views or copies side by side."""
    with open_engine(tiny(architecture), RESIDENT) as engine:
        return listen(engine, engine.new_sequence(), text(PROMPT), ANSWER)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Have pages found by tables; gives the tables that attention was given."""
    seen: list[list[int]] = []
    chosen = exact.attention_pages

    def watched(
        queries: Tensor, keys: Tensor, values: Tensor, table: Tensor, **more: int
    ) -> tuple[Tensor, Tensor]:
        assert len(table) == -(-more["num_keys"] // more["page_tokens"])
        seen.append(table.tolist())
        return chosen(queries, keys, values, table, **more)

    monkeypatch.setattr(source, "reads_tables", lambda _, num_queries: num_queries <= MOST_QUERIES)
    monkeypatch.setattr(exact, "attention_pages", watched)
    return seen


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_tables_give_the_same_bits_in_any_slots(
    architecture: str, tables: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resident, scattered over slots, in scratch, and streamed from RAM and the file."""
    expected = by_views(architecture)
    with open_engine(tiny(architecture), RESIDENT) as engine:
        wanted = listen(engine, engine.new_sequence(), text(PROMPT), ANSWER)
    assert wanted.tokens == expected.tokens
    for one, other in zip(wanted.logits, expected.logits, strict=True):
        assert torch.allclose(one, other, atol=1e-3 * float(other.std()))
    for name, budget in BUDGETS.items():
        streams = LateCopies(), LateCopies()
        monkeypatch.setattr(assembly, "copy_streams", lambda _, made=streams: made)
        file = new_file(tmp_path / f"{name}.kv", tiny(architecture))
        with open_engine(tiny(architecture), budget, file=file) as engine:
            heard = listen(engine, engine.new_sequence(), text(PROMPT), ANSWER)
        assert heard.same_bits(wanted), name


def test_scattered_pages_of_the_device_tier_are_not_copied(
    tables: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sequences that grow in turn have their pages in every other slot."""

    def refuse(*_: object) -> None:
        raise AssertionError("copied to scratch")

    monkeypatch.setattr(source.PastReader, "_to_scratch", refuse)
    model, heard = tiny("llama"), []
    with open_engine(model, RESIDENT) as engine:
        pair = [engine.new_sequence(), engine.side_sequence()]
        for piece in range(6):
            for sequence in pair:
                sequence.token_ids += text(16, seed=piece)  # a page, and few enough for a table
                heard.append(engine.compute(sequence).clone())
    assert all(map(torch.equal, heard[::2], heard[1::2]))
    steps = {b - a for table in tables for a, b in pairwise(table)}
    assert max(steps) > 1, "the pages lay side by side: nothing was shown"


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_the_kernel_of_the_gpu_gives_the_same_bits_in_any_slots(
    architecture: str, tables: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Triton's interpreter: what it computes is what a device would, if much slower."""
    kernel = pytest.importorskip("kernels.triton_paged")
    monkeypatch.setattr(paged, "table_kernel", lambda _: kernel)
    heard = []
    for budget in (RESIDENT, SMALL_DEVICE):
        with open_engine(tiny(architecture), budget) as engine:
            heard.append(listen(engine, engine.new_sequence(), text(200), 3))
    assert tables and heard[1].same_bits(heard[0])
    with monkeypatch.context() as patch:
        patch.setattr(paged, "table_kernel", lambda _: None)
        with open_engine(tiny(architecture), RESIDENT) as engine:
            expected = listen(engine, engine.new_sequence(), text(200), 3)
    assert heard[0].tokens == expected.tokens
    for one, other in zip(heard[0].logits, expected.logits, strict=True):
        assert torch.allclose(one, other, atol=1e-3 * float(other.std()))


@pytest.mark.gpu
@pytest.mark.parametrize("budget", [None, *BUDGETS.values()])
def test_the_gpu_reads_tables(budget: Budget | None) -> None:
    with open_engine(tiny("llama", device="cuda:0"), budget or RESIDENT) as engine:
        heard = listen(engine, engine.new_sequence(), text(PROMPT), ANSWER)
    assert heard.tokens == by_views("llama").tokens
