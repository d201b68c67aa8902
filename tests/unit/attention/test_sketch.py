"""The key sketch against the keys themselves: same meaning, nearly the same masses."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention.probe import PageScores
from engine.attention.sketch import BASIS_TOKENS, KeySketch, SketchBasis, sketch_bytes, sketch_rank
from engine.model.hook import LayerSpec
from engine.types import KVGeometry
from kernels.attention import page_lse

PAGE, DIM, HEADS, QUERY_HEADS = 16, 32, 2, 6
GEOMETRY = KVGeometry(4, HEADS, DIM, "float32", page_tokens=PAGE, segment_tokens=64)
LAYERS = (1, 2)
SPECS = [LayerSpec(None, None, DIM**-0.5, 0)] * 4
CAPPED = [LayerSpec(None, 2.0, DIM**-0.5, 0)] * 4


def random_keys(num_tokens: int, seed: int = 0) -> dict[int, Tensor]:
    """Keys with a mean that is much larger than what tells them apart."""
    generator = torch.Generator().manual_seed(seed)
    shape = (HEADS, num_tokens, DIM)
    return {layer: 3.0 + torch.randn(shape, generator=generator) for layer in LAYERS}


def topical_keys(num_tokens: int) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Keys that lie near a few directions, as a text's do, and queries like one page."""
    generator = torch.Generator().manual_seed(4)
    topics = torch.randn(5, DIM, generator=generator)
    mixed = torch.randn(num_tokens // PAGE, 5, generator=generator)
    keys, queries = {}, {}
    for layer in LAYERS:
        pages = (mixed @ topics).repeat_interleave(PAGE, 0)
        noise = torch.randn(HEADS, num_tokens, DIM, generator=generator)
        keys[layer] = pages + 0.3 * noise
        queries[layer] = (mixed[21] @ topics).expand(QUERY_HEADS, 3, DIM) * 0.4
    return keys, queries


def random_queries(seed: int = 1) -> dict[int, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {layer: torch.randn(QUERY_HEADS, 5, DIM, generator=generator) for layer in LAYERS}


def exact(keys: dict[int, Tensor], queries: dict[int, Tensor], specs: list[LayerSpec]) -> Tensor:
    masses = []
    for layer in LAYERS:
        scores = PageScores(queries[layer], -(-keys[layer].shape[1] // PAGE))
        scores.add(
            page_lse(
                queries[layer], keys[layer], scaling=specs[layer].scaling,
                page_tokens=PAGE, softcap=specs[layer].softcap,
            )
        )  # fmt: skip
        masses.append(scores.mass())
    return torch.stack(masses)


def sketch_of(
    keys: dict[int, Tensor], *, step: int = 128, rank: int | None = None, room: int = 2000
) -> KeySketch:
    sketch = KeySketch(LAYERS, GEOMETRY, room, rank=rank, basis_tokens=256)
    asked = asked_by(keys)
    for first in range(0, keys[LAYERS[0]].shape[1], step):
        part = slice(first, first + step)
        sketch.append(
            {layer: kept[:, part] for layer, kept in keys.items()},
            {layer: kept[:, part] for layer, kept in asked.items()},
        )
    return sketch


def asked_by(keys: dict[int, Tensor]) -> dict[int, Tensor]:
    """Queries of the same tokens, which spread unevenly."""
    generator = torch.Generator().manual_seed(7)
    widths = torch.linspace(0.2, 2.0, DIM)
    count = keys[LAYERS[0]].shape[1]
    shape = (QUERY_HEADS, 2000, DIM)
    return {
        layer: (widths * torch.randn(shape, generator=generator))[:, :count] for layer in LAYERS
    }


def test_with_all_components_the_masses_are_the_exact_ones() -> None:
    keys, queries = random_keys(1500), random_queries()
    mass = sketch_of(keys, rank=DIM).probe(1500, SPECS, queries)
    expected = exact(keys, queries, SPECS)
    assert mass.shape == expected.shape == (2, QUERY_HEADS, 94)
    assert torch.allclose(mass, expected, rtol=0.1, atol=1e-3)
    assert torch.allclose(mass.sum(), expected.sum(), rtol=0.01)


def test_under_a_soft_cap_the_mean_of_the_keys_counts_as_well() -> None:
    keys, queries = random_keys(640), random_queries()
    mass = sketch_of(keys, rank=DIM).probe(640, CAPPED, queries)
    assert torch.allclose(mass, exact(keys, queries, CAPPED), rtol=0.1, atol=1e-3)
    assert not torch.allclose(mass, exact(keys, queries, SPECS), rtol=0.1, atol=1e-3)


def test_half_of_the_components_find_the_pages_of_a_topic() -> None:
    keys, queries = topical_keys(1280)
    sketch = sketch_of(keys)
    assert sketch.rank == sketch_rank(GEOMETRY) == 16
    mine = sketch.probe(1280, SPECS, queries).sum(dim=(0, 1))
    expected = exact(keys, queries, SPECS).sum(dim=(0, 1))
    assert int(expected.argmax()) in mine.topk(2).indices.tolist()
    best = set(mine.topk(8).indices.tolist()) & set(expected.topk(8).indices.tolist())
    assert len(best) >= 7


def test_components_that_no_query_asks_for_are_not_kept() -> None:
    """Where keys differ most, queries are silent; principal components keep just that."""
    generator = torch.Generator().manual_seed(3)
    keys = torch.randn(1, HEADS, 512, DIM, generator=generator)
    keys[..., :8] *= 10.0
    asked = torch.randn(HEADS, 512, DIM, generator=generator)
    asked[..., :8] *= 0.01
    spread = (asked.mT @ asked)[None]
    basis = SketchBasis.fit(keys, spread, 24)
    exact_scores = asked[:, :64] @ (keys[0] - basis.mean[0]).mT
    turned = asked[:, :64] @ (basis.for_queries[0] * basis.scale[0])
    error = turned @ basis.encode(keys)[0].float().mT - exact_scores
    assert error.square().mean() < 0.02 * exact_scores.square().mean()


def test_however_it_is_cut_into_steps_it_is_the_same_sketch() -> None:
    keys, queries = random_keys(700), random_queries()
    whole = sketch_of(keys, step=700).probe(700, SPECS, queries)
    for step in (1, 37, 255, 256, 257):
        other = sketch_of(keys, step=step)
        assert other.coded_tokens == 700
        assert torch.allclose(other.probe(700, SPECS, queries), whole, rtol=0.02, atol=1e-4)


def test_there_are_no_codes_before_the_components_are_chosen() -> None:
    sketch = sketch_of(random_keys(255))
    assert (sketch.num_tokens, sketch.coded_tokens) == (255, 0)
    one = {layer: torch.ones(HEADS, 1, DIM) for layer in LAYERS}
    sketch.append(one, {layer: torch.ones(QUERY_HEADS, 1, DIM) for layer in LAYERS})
    assert sketch.coded_tokens == 256


def test_tokens_beyond_the_room_are_left_out() -> None:
    keys = random_keys(700)
    sketch = sketch_of(keys, room=500)
    assert sketch.coded_tokens == 500
    first = {layer: kept[:, :500] for layer, kept in keys.items()}
    queries = random_queries()
    expected = sketch_of(first).probe(500, SPECS, queries)
    assert torch.allclose(sketch.probe(500, SPECS, queries), expected, rtol=0.02, atol=1e-4)


def test_only_the_tokens_asked_for_are_scored() -> None:
    keys, queries = random_keys(700), random_queries()
    first = {layer: kept[:, :333] for layer, kept in keys.items()}
    mass = sketch_of(keys).probe(333, SPECS, queries)
    expected = sketch_of(first).probe(333, SPECS, queries)
    assert torch.allclose(mass, expected, rtol=0.02, atol=1e-4)


def test_restored_codes_give_the_same_bits() -> None:
    keys, queries = random_keys(700), random_queries()
    sketch = sketch_of(keys)
    copy = KeySketch(LAYERS, GEOMETRY, 2000)
    copy.basis = sketch.basis
    for first, end in ((0, 300), (300, 301), (290, 700)):
        copy.restore(first, sketch.codes(first, end))
    assert copy.coded_tokens == 700
    assert torch.equal(copy.probe(700, SPECS, queries), sketch.probe(700, SPECS, queries))
    copy.truncate(650)
    copy.append({layer: kept[:, 650:] for layer, kept in keys.items()}, {})
    assert copy.coded_tokens == 700
    assert (copy.codes(0, 700).int() - sketch.codes(0, 700)).abs().max() <= 1


def test_a_key_far_outside_is_coded_as_far_as_codes_go() -> None:
    basis = SketchBasis.fit(torch.randn(1, HEADS, 256, DIM), torch.eye(DIM).expand(1, 2, -1, -1), 8)
    far = basis.encode(torch.full((1, HEADS, 1, DIM), 1e6))
    assert far.abs().max() == 127


def test_keys_that_are_all_alike_have_codes_too() -> None:
    silent = torch.zeros(1, HEADS, DIM, DIM)
    basis = SketchBasis.fit(torch.ones(1, HEADS, 256, DIM), silent, 8)
    assert basis.encode(torch.ones(1, HEADS, 4, DIM)).count_nonzero() == 0
    assert basis.for_queries.isfinite().all()


def test_what_is_planned_holds_the_codes_and_the_first_keys_twice() -> None:
    planned = sketch_bytes(GEOMETRY, len(LAYERS), 9000)
    sketch = KeySketch(LAYERS, GEOMETRY, 9000)
    raw = len(LAYERS) * HEADS * BASIS_TOKENS * DIM * 4
    assert planned == sketch.max_tokens * len(LAYERS) * HEADS * sketch.rank + 2 * raw
    assert sketch_bytes(GEOMETRY, len(LAYERS), BASIS_TOKENS - 1) == 0
