"""The self-check passes for what is right and refuses what is wrong, by name and with a number."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from tiny_models import ARCHITECTURES, make_tiny_model, tiny_config
from transformers import AutoModelForCausalLM

from engine.errors import ModelRefused
from engine.model.hook import install
from engine.model.load import load_model
from engine.model.selfcheck import check_ids, compare, hooked_logits, stock_logits


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_passes_for_supported_architectures(architecture: str, dtype: str, tmp_path: Path) -> None:
    make_tiny_model(tmp_path, architecture, dtype=dtype)
    assert load_model(tmp_path).geometry.dtype == dtype


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_refuses_interleaved_rotation(dtype: str, tmp_path: Path) -> None:
    """Cohere pairs neighbouring dimensions; its config and modules look like any other."""
    folder = make_tiny_model(tmp_path / "odd", "cohere", dtype=dtype)
    with pytest.raises(ModelRefused, match=r"^odd \(CohereForCausalLM\): .* by up to \d") as caught:
        load_model(folder)
    assert "llama, qwen2" in caught.value.advice


def test_refuses_layers_without_rotation(tmp_path: Path) -> None:
    make_tiny_model(tmp_path, "smollm3", dtype="bfloat16", no_rope_layers=[1, 1, 0])
    with pytest.raises(ModelRefused, match="logits change by"):
        load_model(tmp_path)


def test_refuses_wrong_frequencies() -> None:
    config = tiny_config("llama")
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    ids = check_ids(config.vocab_size)
    expected = stock_logits(model, ids)
    rope = install(model)
    compare("right", config, expected, hooked_logits(model, rope, ids)[0], torch.float32)
    rope.sets = tuple(
        dataclasses.replace(chosen, inverse=chosen.inverse * 1.01) for chosen in rope.sets
    )
    rope._tables.clear()
    with pytest.raises(ModelRefused, match="wrong"):
        compare("wrong", config, expected, hooked_logits(model, rope, ids)[0], torch.float32)


def test_refuses_logits_that_are_not_numbers() -> None:
    expected = torch.randn(4, 10)
    with pytest.raises(ModelRefused):
        compare(
            "nan", tiny_config("llama"), expected, torch.full((4, 10), torch.nan), torch.float32
        )


def test_refuses_a_single_wild_logit() -> None:
    """Small on average, wrong all the same."""
    expected = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0))
    expected[5, 7] = 30.0
    actual = expected.clone()
    actual[5, 7] = 0.0
    with pytest.raises(ModelRefused, match="up to 30"):
        compare("one", tiny_config("llama"), expected, actual, torch.bfloat16)


def test_ids_stay_inside_a_small_vocabulary() -> None:
    ids = check_ids(10)
    assert ids.shape == (64,)
    assert ids.min() >= 0 and ids.max() < 10
