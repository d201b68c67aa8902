"""Attention mass per page: softmax weights, summed within pages and averaged over queries."""

from __future__ import annotations

import pytest
import torch
from engine_kit import PAGE, SMALLEST, open_engine, text, tiny
from torch import Tensor

from engine.attention.mass import MassObserver, excess_mass, lookup_layers
from engine.model.hook import LayerSpec
from kernels.reference import attention_part

HEADS, KV_HEADS, DIM = 4, 2, 8


def spec(softcap: float | None = None, window: int | None = None) -> LayerSpec:
    return LayerSpec(window, softcap, 0.5, 0)


def plain_mass(queries: Tensor, keys: Tensor, pages: int, softcap: float | None) -> Tensor:
    """`[heads, pages]` by one softmax over all keys, in fp64."""
    keys = keys.double().repeat_interleave(HEADS // KV_HEADS, 0)
    scores = queries.double() @ keys.transpose(-1, -2) * 0.5
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    weights = torch.softmax(scores, -1)
    weights = torch.nn.functional.pad(weights, (0, -weights.shape[-1] % PAGE))
    return weights.unflatten(-1, (-1, PAGE)).sum(-1).mean(1)[:, :pages]


def observed(
    observer: MassObserver, queries: Tensor, keys: Tensor, softcap: float | None, layer: int = 0
) -> None:
    """Show the keys in two parts, as a step would."""
    for begin, end in ((0, 4 * PAGE), (4 * PAGE, keys.shape[1])):
        observer.see(layer, queries, keys[:, begin:end], spec(softcap), begin)
    _, lse = attention_part(queries, keys, keys, scaling=0.5, softcap=softcap)
    observer.end_layer(layer, lse)


def random(num_queries: int, num_keys: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        3 * torch.randn(HEADS, num_queries, DIM, generator=generator),
        torch.randn(KV_HEADS, num_keys, DIM, generator=generator),
    )


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("queries", [1, 5])
def test_mass_is_the_softmax_weight_of_a_page(queries: int, softcap: float | None) -> None:
    observer = MassObserver([0], PAGE, num_pages=7)
    q, k = random(queries, 100)
    observed(observer, q, k, softcap)
    mass = observer.mass()
    assert mass.shape == (1, HEADS, 7)
    assert torch.allclose(mass[0].double(), plain_mass(q, k, 7, softcap), atol=1e-5)
    assert torch.allclose(mass.sum(-1), torch.ones(1, HEADS), atol=1e-5)


def test_steps_are_averaged_by_their_queries() -> None:
    observer = MassObserver([0], PAGE, num_pages=7)
    (q1, k), (q2, _) = random(4, 100), random(1, 100, seed=1)
    observed(observer, q1, k, None)
    observed(observer, q2, k, None)
    both = plain_mass(torch.cat((q1, q2), 1), k, 7, None)
    assert torch.allclose(observer.mass()[0].double(), both, atol=1e-5)


def test_pages_beyond_those_accounted_for_are_left_out() -> None:
    for pages in (5, 3):  # the last one ends within the second part, or before it
        observer = MassObserver([0], PAGE, num_pages=pages)
        q, k = random(2, 100)
        observed(observer, q, k, None)
        assert torch.allclose(observer.mass()[0].double(), plain_mass(q, k, pages, None), atol=1e-5)


def test_only_the_layers_asked_for_are_observed() -> None:
    observer = MassObserver([2, 5], PAGE, num_pages=7)
    (q, k), (q5, k5) = random(2, 100), random(2, 100, seed=5)
    for layer, (queries, keys) in {0: (q5, k), 2: (q, k), 3: (q5, k), 5: (q5, k5)}.items():
        observed(observer, queries, keys, None, layer)
    mass = observer.mass()
    assert mass.shape == (2, HEADS, 7)
    assert torch.allclose(mass[0].double(), plain_mass(q, k, 7, None), atol=1e-5)
    assert torch.allclose(mass[1].double(), plain_mass(q5, k5, 7, None), atol=1e-5)


def test_nothing_observed_is_no_mass() -> None:
    assert not MassObserver([0], PAGE, 7).mass().any()


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_the_mass_of_an_engine_adds_up(architecture: str) -> None:
    """A decoded token's mass covers everything it sees; a prefill step's all but its own tokens.

    Pages are scattered over the tiers, so every way of gathering them is observed.
    """
    model = tiny(architecture)
    layers = [i for i, layer in enumerate(model.layers) if layer.sliding_window is None]
    with open_engine(model, SMALLEST) as engine:
        sequence = engine.new_sequence()
        sequence.token_ids.extend(text(300))
        engine.compute(sequence)
        one, many = (MassObserver(layers, PAGE, num_pages=30) for _ in range(2))
        for token in text(20, 2):
            sequence.token_ids.append(token)
            engine.compute(sequence, observer=one)
        sequence.token_ids.extend(text(30, 3))
        engine.compute(sequence, observer=many)
    for_one, for_many = one.mass().sum(-1), many.mass().sum(-1)
    assert torch.allclose(for_one, torch.ones_like(for_one), atol=1e-4)
    assert (for_many > 0.3).all() and (for_many < 1.0).all()


# -- scores and layers ---------------------------------------------------------------------


def test_only_what_exceeds_the_neutral_question_scores() -> None:
    mass = torch.tensor([[[0.5, 0.1, 0.2]], [[0.0, 0.9, 0.05]]])
    neutral = torch.tensor([[[0.1, 0.4, 0.19]], [[0.0, 0.1, 0.0]]])
    assert torch.allclose(excess_mass(mass, neutral), torch.tensor([0.4, 0.8, 0.05]))


def test_small_excesses_are_noise() -> None:
    mass = torch.full((2, 3, 1), 0.015)
    assert excess_mass(mass, torch.zeros(2, 3, 1)).item() == 0.0
    assert excess_mass(mass, torch.zeros(2, 3, 1), least=0.01).item() == pytest.approx(0.09)


def test_layers_that_look_things_up_lie_behind_the_middle() -> None:
    assert lookup_layers([spec()] * 30) == (14, 15, 16, 17, 18)
    assert lookup_layers([spec()]) == (0,)
    assert lookup_layers([spec()] * 3) == (1,)


def test_sliding_layers_do_not_see_enough_to_look_things_up() -> None:
    mixed = [spec(window=None if layer % 2 else 64) for layer in range(30)]
    assert lookup_layers(mixed) == (15, 17)
    assert lookup_layers([spec(), spec(window=64), spec(window=64)]) == (0,)
    assert lookup_layers([spec(window=64)] * 10) == ()


def test_a_sliding_layer_is_not_observed() -> None:
    q, k = random(1, 20)
    with pytest.raises(AssertionError):
        MassObserver([0], PAGE, 2).see(0, q, k, spec(window=8), 0)
