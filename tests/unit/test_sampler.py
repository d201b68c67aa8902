"""Choosing tokens: greedy, random by seed, within the nucleus, and never from rubbish."""

from __future__ import annotations

import pytest
import torch

from engine.config import SamplingConfig
from engine.errors import KVError
from engine.sampler import Sampler

LOGITS = torch.tensor([0.0, 3.0, 1.0, 2.9, -4.0])


def drawn(count: int, **settings: float) -> list[int]:
    sampler = Sampler(SamplingConfig(**settings))
    return [sampler.choose(LOGITS) for _ in range(count)]


def test_greedy_takes_the_largest() -> None:
    assert drawn(3) == [1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_any_float_type_will_do(dtype: torch.dtype) -> None:
    assert Sampler(SamplingConfig()).choose(LOGITS.to(dtype)) == 1


def test_the_same_seed_gives_the_same_answer_and_another_another() -> None:
    one = drawn(40, temperature=1.0, seed=7)
    assert one == drawn(40, temperature=1.0, seed=7) != drawn(40, temperature=1.0, seed=8)


def test_temperature_flattens() -> None:
    """Frequencies follow the softmax at the temperature."""
    for temperature in (0.5, 2.0):
        tokens = torch.tensor(drawn(4000, temperature=temperature))
        seen = torch.bincount(tokens, minlength=5) / 4000
        assert torch.allclose(seen, torch.softmax(LOGITS / temperature, 0), atol=0.04)


@pytest.mark.parametrize(("top_p", "inside"), [(0.01, {1}), (0.5, {1, 3}), (0.95, {1, 2, 3})])
def test_the_nucleus_is_the_smallest_set_that_reaches_its_share(top_p: float, inside: set) -> None:
    """The probabilities are 0.035, 0.48, 0.065, 0.43 and less than 0.001."""
    assert set(drawn(500, temperature=1.0, top_p=top_p)) == inside


def test_a_penalty_weakens_only_tokens_of_this_answer() -> None:
    sampler = Sampler(SamplingConfig(repetition_penalty=2.0))
    assert [sampler.choose(LOGITS) for _ in range(4)] == [1, 3, 1, 1]
    assert Sampler(SamplingConfig(repetition_penalty=2.0)).choose(LOGITS) == 1


def test_a_penalty_makes_negative_logits_more_negative() -> None:
    sampler = Sampler(SamplingConfig(repetition_penalty=2.0))
    negative = torch.tensor([-1.0, -1.5])
    assert [sampler.choose(negative) for _ in range(2)] == [0, 1]


def test_a_penalty_leaves_the_callers_logits_alone() -> None:
    """Logits come from inference mode, where changing them in place is not even allowed."""
    with torch.inference_mode():
        logits = LOGITS.clone()
    sampler = Sampler(SamplingConfig(repetition_penalty=2.0))
    for _ in range(3):
        sampler.choose(logits)
    assert torch.equal(logits, LOGITS)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_an_error(bad: float, temperature: float) -> None:
    logits = LOGITS.clone()
    logits[2] = bad
    with pytest.raises(KVError, match="not numbers"):
        Sampler(SamplingConfig(temperature=temperature)).choose(logits)


def test_logits_without_a_finite_one_are_an_error() -> None:
    with pytest.raises(KVError):
        Sampler(SamplingConfig()).choose(torch.full((5,), float("-inf")))


def test_tokens_that_were_ruled_out_are_never_drawn() -> None:
    logits = LOGITS.clone()
    logits[1] = logits[3] = float("-inf")
    sampler = Sampler(SamplingConfig(temperature=5.0))
    assert {sampler.choose(logits) for _ in range(300)} == {0, 2, 4}
