"""Fingerprints change with content and with nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import fill_weights, make_tiny_model, tiny_config, tiny_tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.model.checkpoint import quiet
from engine.model.fingerprint import (
    template_fingerprint,
    tokenizer_fingerprint,
    weights_fingerprint,
)


@pytest.fixture
def model() -> PreTrainedModel:
    model = AutoModelForCausalLM.from_config(tiny_config("llama"))
    fill_weights(model)
    return model


def read(folder: Path, **options: Any) -> PreTrainedModel:
    with quiet():
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, **options)


def test_saved_and_read_back_is_the_same(model: PreTrainedModel, tmp_path: Path) -> None:
    make_tiny_model(tmp_path, "llama")
    assert weights_fingerprint(read(tmp_path)) == weights_fingerprint(model)


def test_offloaded_weights_are_the_same(tmp_path: Path) -> None:
    """Where weights lie is no part of what they are; tied ones are counted once either way."""
    make_tiny_model(tmp_path, "llama", tie_word_embeddings=True)
    places = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu"}
    layers = {f"model.layers.{layer}": "disk" for layer in range(3)}
    parted = read(
        tmp_path,
        device_map=places | layers | {"lm_head": "cpu"},
        offload_folder=tmp_path / "offload",
    )
    assert parted.model.layers[2].mlp.up_proj.weight.is_meta
    assert weights_fingerprint(parted) == weights_fingerprint(read(tmp_path))
    assert parted.model.layers[2].mlp.up_proj.weight.is_meta


@pytest.mark.parametrize("index", [0, -1])
def test_one_element_of_any_tensor_counts(model: PreTrainedModel, index: int) -> None:
    before = weights_fingerprint(model)
    for weight in model.parameters():
        with torch.no_grad():
            weight.view(-1)[index] += 1
        after = weights_fingerprint(model)
        assert after != before
        before = after


def test_dtype_counts(model: PreTrainedModel) -> None:
    before = weights_fingerprint(model)
    assert weights_fingerprint(model.to(torch.bfloat16)) != before


def test_large_tensors_are_sampled_at_both_ends() -> None:
    config = tiny_config("llama", num_hidden_layers=1, vocab_size=10_000)
    model = AutoModelForCausalLM.from_config(config)
    weight = model.get_input_embeddings().weight
    assert weight.nbytes > 1 << 20
    seen = {weights_fingerprint(model)}
    for index in (0, -1):
        with torch.no_grad():
            weight.view(-1)[index] += 1
        seen.add(weights_fingerprint(model))
    assert len(seen) == 3


def test_tokenizer_counts_its_vocabulary() -> None:
    changed = tiny_tokenizer()
    changed.add_tokens(["<new>"])
    assert tokenizer_fingerprint(tiny_tokenizer()) == tokenizer_fingerprint(tiny_tokenizer())
    assert tokenizer_fingerprint(changed) != tokenizer_fingerprint(tiny_tokenizer())


def test_template_counts_and_so_does_its_absence() -> None:
    changed, none = tiny_tokenizer(), tiny_tokenizer()
    changed.chat_template += " "
    none.chat_template = None
    seen = {template_fingerprint(each) for each in (tiny_tokenizer(), changed, none)}
    assert len(seen) == 3
