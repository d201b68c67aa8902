"""Rotation: equal to transformers' own, exact, and the same bits however tokens are grouped."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from tiny_models import tiny_config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from engine.errors import ModelError
from engine.model.rope import CACHED_POSITIONS, MAX_POSITION, FrequencySet, Rope, frequency_sets

HEADS, TOKENS, DIM = 3, 200, 64


def plain_sets(dim: int = DIM, theta: float = 10_000.0, scaling: float = 1.0) -> FrequencySet:
    inverse = theta ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    return FrequencySet(inverse, scaling)


@pytest.fixture
def rope() -> Rope:
    return Rope({"": plain_sets()})


def noise(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def test_equals_transformers_rotation() -> None:
    """Up to the rounding of transformers' fp32 angles, which is 250 * 2**-24 here."""
    rotary = LlamaRotaryEmbedding(tiny_config("llama", head_dim=DIM))
    x = noise(1, HEADS, TOKENS, DIM, dtype=torch.float32)
    cos, sin = rotary(x, torch.arange(50, 50 + TOKENS)[None])
    expected, _ = apply_rotary_pos_emb(x, x, cos, sin)
    actual = Rope(frequency_sets(rotary)).rotate(x[0], 50, 0)
    assert (actual - expected[0]).abs().max() < 6e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_bits_do_not_depend_on_grouping(rope: Rope, dtype: torch.dtype) -> None:
    """Token by token, by pages of 64 and all at once: exact mode relies on the same bits."""
    x = noise(HEADS, 2500, DIM, dtype=dtype)
    whole = rope.rotate(x, 7, 0)
    pages = [rope.rotate(x[:, i : i + 64], 7 + i, 0) for i in range(0, 2500, 64)]
    single = [rope.rotate(x[:, i : i + 1], 7 + i, 0) for i in range(0, 2500, 97)]
    assert torch.equal(torch.cat(pages, 1), whole)
    assert torch.equal(torch.cat(single, 1), whole[:, ::97])


def test_bits_do_not_depend_on_strides(rope: Rope) -> None:
    """From the token-major layout of a projection into the middle of a larger arena."""
    x = noise(HEADS, TOKENS, DIM)
    token_major = x.transpose(0, 1).contiguous().transpose(0, 1)
    arena = torch.zeros(HEADS, 3 * TOKENS, DIM + 5, dtype=x.dtype)
    place = arena[:, TOKENS : 2 * TOKENS, :DIM]
    returned = rope.rotate(token_major, 3, 0, out=place)
    assert returned is place
    assert torch.equal(place, rope.rotate(x, 3, 0))
    assert not arena[:, :TOKENS].any() and not arena[:, 2 * TOKENS :].any()
    assert not arena[..., DIM:].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rotates_in_place(rope: Rope, dtype: torch.dtype) -> None:
    x = noise(HEADS, TOKENS, DIM, dtype=dtype)
    expected = rope.rotate(x, 3, 0)
    rope.rotate(x, 3, 0, out=x)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("pages", [3, 50])
def test_pages_are_turned_as_the_run_of_tokens_they_are(rope: Rope, pages: int) -> None:
    """Straight from an arena of pages, few and many, into another."""
    x = noise(pages, HEADS, 64, DIM).transpose(0, 1)
    out = torch.empty_like(x)
    rope.rotate(x, 128, 0, out=out)
    run = x.reshape(HEADS, pages * 64, DIM)
    assert torch.equal(out.reshape(run.shape), rope.rotate(run, 128, 0))


def test_input_is_left_alone(rope: Rope) -> None:
    x = noise(HEADS, TOKENS, DIM, dtype=torch.float32)
    before = x.clone()
    rope.rotate(x, 3, 0)
    assert torch.equal(x, before)


def test_position_zero_changes_nothing(rope: Rope) -> None:
    x = noise(HEADS, 1, DIM)
    assert torch.equal(rope.rotate(x, 0, 0), x)


def test_dimensions_beyond_the_rotary_ones_pass_through() -> None:
    rope = Rope({"": plain_sets(32)})
    x = noise(HEADS, TOKENS, DIM)
    rotated = rope.rotate(x, 5, 0)
    assert torch.equal(rotated[..., 32:], x[..., 32:])
    assert torch.equal(rotated[..., :32], rope.rotate(x[..., :32], 5, 0))


@pytest.mark.parametrize("first", [0, 12_345, CACHED_POSITIONS - 3, MAX_POSITION - 8])
def test_tables_are_exact_at_every_position(rope: Rope, first: int) -> None:
    cos, sin = rope.tables(first, 8, 0)
    assert cos.shape == sin.shape == (8, DIM // 2)
    inverse = rope.sets[0].inverse.tolist()
    for row in (0, 7):
        for column in (0, 1, 31):
            angle = (first + row) * inverse[column]
            assert cos[row, column].item() == pytest.approx(math.cos(angle), abs=1e-7)
            assert sin[row, column].item() == pytest.approx(math.sin(angle), abs=1e-7)


def test_far_tokens_see_each_other_as_near_ones_do(rope: Rope) -> None:
    """The product of query and key depends on their distance alone, at the end of the range too."""
    query, key = noise(1, 1, DIM, dtype=torch.float32), noise(2, 1, DIM, dtype=torch.float32)[1:]

    def product(position: int) -> float:
        turned = rope.rotate(query, position + 40, 0) * rope.rotate(key, position, 0)
        return turned.sum().item()

    assert product(MAX_POSITION - 100) == pytest.approx(product(0), abs=1e-4)


def test_growing_keeps_the_tables(rope: Rope) -> None:
    before = rope.tables(10, 20, 0)[0].clone()
    rope.tables(5000, 20, 0)
    assert torch.equal(rope.tables(10, 20, 0)[0], before)


def test_scaling_multiplies_both_tables() -> None:
    cos, sin = Rope({"": plain_sets(scaling=1.5)}).tables(1, 1, 0)
    assert (cos**2 + sin**2).sqrt().tolist()[0] == pytest.approx([1.5] * (DIM // 2))


def test_each_layer_type_has_its_own_set() -> None:
    rope = Rope({"full": plain_sets(theta=1e6), "sliding": plain_sets()})
    x = noise(HEADS, TOKENS, DIM)
    assert (rope.which("full"), rope.which("sliding")) == (0, 1)
    assert torch.equal(rope.rotate(x, 9, 1), Rope({"": plain_sets()}).rotate(x, 9, 0))
    assert not torch.equal(rope.rotate(x, 9, 0), rope.rotate(x, 9, 1))


def test_a_single_set_serves_every_layer_type(rope: Rope) -> None:
    assert rope.which("sliding_attention") == rope.which("") == 0


def test_fingerprint_follows_the_frequencies(rope: Rope) -> None:
    changed = plain_sets().inverse.clone()
    changed[3] = torch.nextafter(changed[3], torch.tensor(1.0))
    others = [
        Rope({"": FrequencySet(changed, 1.0)}),
        Rope({"": dataclasses.replace(plain_sets(), scaling=1.1)}),
        Rope({"": plain_sets(), "sliding": plain_sets()}),
    ]
    assert Rope({"": plain_sets()}).fingerprint == rope.fingerprint
    assert rope.fingerprint not in {other.fingerprint for other in others}


def test_table_bytes_tells_what_is_kept(rope: Rope) -> None:
    rope.tables(0, 1500, 0)
    kept = sum(table.nbytes for tables in rope._tables.values() for table in tables)
    assert rope.table_bytes(1500) == kept


def test_a_module_without_frequencies_is_an_error() -> None:
    with pytest.raises(ModelError, match="Linear holds no rotary frequencies"):
        frequency_sets(torch.nn.Linear(2, 2))
