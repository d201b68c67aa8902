"""Moving pages: torch's definition and the Triton kernels, by the same tests, to the same bits."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import OnCuda
from torch import Tensor

from engine.model.rope import FrequencySet, Rope
from kernels import reference_pages, triton_pages

MODULES = pytest.mark.parametrize(
    "module",
    [reference_pages, triton_pages, pytest.param(OnCuda(triton_pages), marks=pytest.mark.gpu)],
    ids=["reference", "triton", "on a GPU"],
)
DTYPES = [torch.bfloat16, torch.float16, torch.float32]
SHAPES = [
    (1, 64, 64, torch.bfloat16),
    (3, 64, 64, torch.float32),
    (8, 64, 32, torch.float16),
    (3, 80, 80, torch.bfloat16),
    (1, 96, 48, torch.float16),
    (5, 96, 96, torch.float32),
    (8, 128, 128, torch.bfloat16),
    (3, 128, 32, torch.float16),
    (1, 256, 256, torch.float32),
    (3, 256, 128, torch.bfloat16),
]
"""Heads, head size, rotated dimensions, dtype."""
PAGE = 16


def rope(width: int, scaling: float = 1.0) -> Rope:
    inverse = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    return Rope({"": FrequencySet(inverse, scaling)})


def noise(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


@dataclass
class Arena:
    """Keys and values of a few slots inside a larger arena, so that rows are far apart."""

    whole: Tensor

    @classmethod
    def of(cls, heads: int, slots: int, dim: int, dtype: torch.dtype) -> Arena:
        return cls(torch.full((2, 2, heads, slots * PAGE, dim), -7.0, dtype=dtype))

    @property
    def halves(self) -> tuple[Tensor, Tensor]:
        return self.whole[1, 0], self.whole[1, 1]

    def slot(self, half: int, slot: int) -> Tensor:
        return self.halves[half][:, slot * PAGE : (slot + 1) * PAGE]

    def untouched(self, *slots: int) -> bool:
        return all((self.slot(half, slot) == -7).all() for half in (0, 1) for slot in slots) and (
            bool((self.whole[0] == -7).all())
        )


@MODULES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_promotion_rotates_keys_and_copies_values(module, shape) -> None:
    """Pages at rest land in their slots with the bits that the engine's own rotation gives."""
    heads, dim, width, dtype = shape
    # pages of a layer lie apart at rest: the other half and other layers are between them
    rest = noise(3, 2, heads, PAGE, dim, dtype=dtype)
    keys, values = rest[:, 0], rest[:, 1]
    turner, arena = rope(width, 1.2), Arena.of(heads, 5, dim, dtype)
    starts, slots = torch.tensor([0, 48, 16]), torch.tensor([4, 0, 2])
    module.gather_pages(
        keys, values, *arena.halves,
        rotation=turner.tables(1000, 64, 0), slots=slots, starts=starts,
    )  # fmt: skip
    for page in range(3):
        expected = turner.rotate(keys[page], 1000 + int(starts[page]), 0)
        assert torch.equal(arena.slot(0, int(slots[page])), expected)
        assert torch.equal(arena.slot(1, int(slots[page])), values[page])
    assert arena.untouched(1, 3)


@MODULES
def test_neighbouring_pages_need_no_table(module) -> None:
    keys, values = (noise(3, 2, PAGE, 32, dtype=torch.bfloat16, seed=s) for s in (1, 2))
    turner, arena = rope(32), Arena.of(2, 4, 32, torch.bfloat16)
    into = tuple(half[:, PAGE:] for half in arena.halves)
    module.gather_pages(keys, values, *into, rotation=turner.tables(5, 48, 0))
    expected = turner.rotate(keys.transpose(0, 1), 5, 0)
    assert torch.equal(into[0].view(2, 3, PAGE, 32), expected)
    assert torch.equal(into[1].view(2, 3, PAGE, 32), values.transpose(0, 1))
    assert arena.untouched(0)


@MODULES
@pytest.mark.parametrize("position", [0, (1 << 20) + 3, (1 << 24) - 40])
def test_far_positions_are_exact(module, position) -> None:
    """The angles come from tables of fp64 angles, so a key 16 million tokens on is as exact."""
    keys, values = (noise(3, 40, 64, dtype=torch.float32, seed=s) for s in (1, 2))
    turner, arena = rope(64), Arena.of(3, 3, 64, torch.float32)
    module.append(
        keys, values, *arena.halves, rotation=turner.tables(position, 40, 0), page_tokens=PAGE
    )
    assert torch.equal(arena.halves[0][:, :40], turner.rotate(keys, position, 0))


@MODULES
@pytest.mark.parametrize("shape", [(2, 21, 48), (3, 2, PAGE, 64)], ids=str)
def test_tokens_are_rotated_where_they_lie(module, shape) -> None:
    turner = rope(32)
    apart = noise(*shape[1:-1], shape[0], shape[-1], dtype=torch.bfloat16)
    x = apart.movedim(-2, 0)
    tokens = x[0, ..., 0].numel()
    expected, out = turner.rotate(x, 9, 0), torch.empty(shape, dtype=torch.bfloat16)
    module.rotate_into(x, out, turner.tables(9, tokens, 0))
    assert torch.equal(out, expected)
    module.rotate_into(x, x, turner.tables(9, tokens, 0))
    assert torch.equal(x, expected)


@MODULES
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "first"), [(1, 0), (1, 15), (7, 12), (33, 5), (16, 0)])
def test_append_starts_anywhere_in_a_page(module, tokens, first, dtype) -> None:
    """Tokens come as the model gives them: `[T, H, D]` seen as `[H, T, D]`."""
    turner, arena = rope(48), Arena.of(3, 6, 64, dtype)
    keys, values = (noise(tokens, 3, 64, dtype=dtype, seed=s).transpose(0, 1) for s in (1, 2))
    own = torch.empty_like(keys)
    slots = torch.tensor([5, 1, 3])
    module.append(
        keys, values, *arena.halves, rotation=turner.tables(77, tokens, 0), page_tokens=PAGE,
        first=first, slots=slots, own=own,
    )  # fmt: skip
    expected = turner.rotate(keys, 77, 0)
    assert torch.equal(own, expected)
    written = torch.zeros(6 * PAGE, dtype=torch.bool)
    for token in range(tokens):
        row = int(slots[(first + token) // PAGE]) * PAGE + (first + token) % PAGE
        written[row] = True
        assert torch.equal(arena.halves[0][:, row], expected[:, token])
        assert torch.equal(arena.halves[1][:, row], values[:, token])
    assert (arena.halves[0][:, ~written] == -7).all() and (arena.halves[1][:, ~written] == -7).all()


@MODULES
def test_tokens_of_a_page_without_a_slot_are_only_handed_back(module) -> None:
    """A page that goes straight to disk has no slot in the device tier."""
    turner, arena = rope(64), Arena.of(2, 2, 64, torch.bfloat16)
    keys, values = (noise(2, 40, 64, dtype=torch.bfloat16, seed=s) for s in (1, 2))
    own = torch.empty_like(keys)
    module.append(
        keys, values, *arena.halves, rotation=turner.tables(0, 40, 0), page_tokens=PAGE,
        slots=torch.tensor([-1, 1, -1]), own=own,
    )  # fmt: skip
    assert torch.equal(own, turner.rotate(keys, 0, 0))
    assert torch.equal(arena.slot(0, 1), own[:, PAGE : 2 * PAGE])
    assert torch.equal(arena.slot(1, 1), values[:, PAGE : 2 * PAGE])
    assert arena.untouched(0)


@MODULES
@pytest.mark.parametrize("dtype", DTYPES)
def test_demotion_writes_tokens_at_rest_and_leaves_the_rest_alone(module, dtype) -> None:
    x = noise(37, 3, 80, dtype=dtype).transpose(0, 1)
    storage = torch.full((4, 2, 3, PAGE, 80), -7.0, dtype=dtype)
    pages = storage[:, 1]
    module.scatter_pages(x, pages, first=10)
    flat = pages.transpose(0, 1).reshape(3, 4 * PAGE, 80)
    assert torch.equal(flat[:, 10:47], x)
    assert (flat[:, :10] == -7).all() and (flat[:, 47:] == -7).all()
    assert (storage[:, 0] == -7).all()


@MODULES
@pytest.mark.parametrize("dtype", DTYPES)
def test_pages_are_copied_in_every_layer(module, dtype) -> None:
    arena = noise(3, 2, 2, 6 * PAGE, 48, dtype=dtype)
    before = arena.clone()
    module.copy_pages(arena, torch.tensor([0, 5, 0]), torch.tensor([2, 1, 4]), page_tokens=PAGE)
    slots = before.view(3, 2, 2, 6, PAGE, 48)
    assert torch.equal(arena.view_as(slots), slots[:, :, :, [0, 5, 0, 3, 0, 5]])


@MODULES
def test_nothing_to_move_is_no_error(module) -> None:
    arena, turner = Arena.of(2, 2, 32, torch.bfloat16), rope(32)
    nothing, none = torch.empty(0, 2, PAGE, 32, dtype=torch.bfloat16), torch.empty(0).long()
    tables = turner.tables(0, 0, 0)
    module.gather_pages(nothing, nothing, *arena.halves, rotation=tables, slots=none)
    module.place_pages(nothing, arena.halves[0], slots=none)
    empty = torch.empty(2, 0, 32, dtype=torch.bfloat16)
    module.append(empty, empty, *arena.halves, rotation=tables, page_tokens=PAGE, slots=none)
    module.scatter_pages(empty, nothing)
    module.copy_pages(arena.whole, none, none, page_tokens=PAGE)
    assert arena.untouched(0, 1)


@MODULES
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_what_was_appended_comes_back_when_gathered(module, data) -> None:
    """Steps of any size at rest, promoted later, give what appending them to the arena gave."""
    steps = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=3), label="steps")
    heads, dim = data.draw(st.sampled_from([1, 3])), data.draw(st.sampled_from([16, 40]))
    total = sum(steps)
    pages = -(-total // PAGE)
    order = data.draw(st.permutations(range(pages + 1)), label="slots")
    slots = torch.tensor(order[:pages])
    dtype, turner = torch.bfloat16, rope(dim)
    near, far = (Arena.of(heads, pages + 1, dim, dtype) for _ in range(2))
    rest = torch.zeros(2, pages, heads, PAGE, dim, dtype=dtype)
    at = 0
    for size in steps:
        own = [noise(heads, size, dim, dtype=dtype, seed=at + s) for s in (0, 1)]
        first, page = at % PAGE, at // PAGE
        module.append(
            *own, *near.halves, rotation=turner.tables(at, size, 0), page_tokens=PAGE,
            first=first, slots=slots[page:],
        )  # fmt: skip
        for half, x in zip(rest, own, strict=True):
            module.scatter_pages(x, half[page:], first=first)
        at += size
    module.gather_pages(*rest, *far.halves, rotation=turner.tables(0, pages * PAGE, 0), slots=slots)
    for token in range(total):
        row = int(slots[token // PAGE]) * PAGE + token % PAGE
        for one, two in zip(near.halves, far.halves, strict=True):
            assert torch.equal(one[:, row], two[:, row])
