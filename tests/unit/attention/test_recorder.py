"""Which layers are recorded, what is kept of them, and how pages are scored by it."""

from __future__ import annotations

import torch

from engine.attention.probe import probe_scores
from engine.attention.recorder import QueryRecorder
from engine.model.hook import LayerSpec
from engine.model.retrieval import likely_lookup_layers
from kvcli.citations import BEST_PAGES, best_pages

FULL = LayerSpec(None, None, 1.0, 0)
SLIDING = LayerSpec(32, None, 1.0, 0)


def test_the_default_model_is_recorded_where_it_looks_things_up() -> None:
    assert likely_lookup_layers([FULL] * 30) == (14, 15, 16, 17, 18)


def test_sliding_layers_are_left_out_if_others_are_in_the_band() -> None:
    specs = [SLIDING if layer % 2 else FULL for layer in range(30)]
    assert likely_lookup_layers(specs) == (14, 16, 18)


def test_a_model_of_sliding_layers_alone_is_recorded_all_the_same() -> None:
    assert likely_lookup_layers([SLIDING] * 30) == (14, 15, 16, 17, 18)


def test_even_one_layer_is_recorded() -> None:
    assert likely_lookup_layers([FULL]) == (0,)


def test_queries_of_several_steps_follow_each_other() -> None:
    recorder = QueryRecorder([1, 2])
    first, second = torch.randn(4, 3, 8), torch.randn(4, 1, 8)
    for layer in range(3):
        recorder.record(layer, first + layer)
    recorder.record(1, second)
    kept = recorder.queries
    assert sorted(kept) == [1, 2]
    assert torch.equal(kept[1], torch.cat((first + 1, second), 1))
    assert torch.equal(kept[2], first + 2)


def test_what_is_kept_does_not_change_with_the_step_buffers() -> None:
    recorder, queries = QueryRecorder([0]), torch.ones(1, 1, 2)
    recorder.record(0, queries)
    queries.zero_()
    assert recorder.queries[0].eq(1).all()


def test_only_mass_beyond_the_neutral_counts() -> None:
    mass = torch.tensor([[[0.5, 0.25, 0.0]], [[0.0, 0.25, 0.01]]])
    neutral = torch.tensor([[[0.5, 0.0, 0.3]], [[0.2, 0.0, 0.0]]])
    assert torch.allclose(probe_scores(mass, neutral), torch.tensor([0.0, 1.0, 0.1]))


def test_best_pages_keep_their_scores_and_the_rest_is_zero() -> None:
    scores = [float(page) for page in range(20)]
    kept = best_pages(scores)
    assert kept[20 - BEST_PAGES :] == scores[20 - BEST_PAGES :]
    assert not any(kept[: 20 - BEST_PAGES])
