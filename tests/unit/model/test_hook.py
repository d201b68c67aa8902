"""A hooked model says what stock transformers says, and can be unhooked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from growing_context import GrowingContext, greedy, step, stock_greedy
from tiny_models import ARCHITECTURES, make_tiny_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.errors import ModelRefused
from engine.model.checkpoint import quiet
from engine.model.hook import ATTENTION_NAME, LayerSpec, install, rotary_modules, uninstall

PROMPT, STEPS = 100, 80

SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}


def read(folder: Path, **options: Any) -> PreTrainedModel:
    with quiet():
        return AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, attn_implementation="eager", **options
        )


def prompt_ids(model: PreTrainedModel, count: int = PROMPT) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, model.config.vocab_size, (count,), generator=generator)


def check_equal_to_stock(folder: Path) -> None:
    model = read(folder)
    ids = prompt_ids(model)
    expected, expected_logits = stock_greedy(model, ids, STEPS)
    actual, logits = greedy(model, install(model), ids, STEPS)
    assert actual == expected
    assert (logits - expected_logits).abs().max() < 1e-4
    assert len(set(expected)) > 10, "the tiny model babbles: this would prove little"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_tokens_equal_stock(architecture: str, tmp_path: Path) -> None:
    """100 tokens of prompt and 80 steps, both beyond the 32-token windows of sliding layers."""
    check_equal_to_stock(make_tiny_model(tmp_path, architecture))


@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize("architecture", ["llama", "gemma3_text", "phi3"])
def test_other_head_layouts_equal_stock(architecture: str, kv_heads: int, tmp_path: Path) -> None:
    """One KV head for all, and one for each; the test above has two for four."""
    check_equal_to_stock(make_tiny_model(tmp_path, architecture, num_key_value_heads=kv_heads))


@pytest.mark.parametrize("kind", SCALINGS)
def test_scaled_rope_is_honoured(kind: str, tmp_path: Path) -> None:
    scaling = {"rope_theta": 10_000.0} | SCALINGS[kind]
    check_equal_to_stock(make_tiny_model(tmp_path, "llama", rope_parameters=scaling))


def test_scaling_changes_the_text(tmp_path: Path) -> None:
    """Guards the test above: a scaling that changed nothing would pass it."""
    said = set()
    for kind, scaling in {"none": {"rope_type": "default"}, **SCALINGS}.items():
        parameters = {"rope_theta": 10_000.0} | scaling
        model = read(make_tiny_model(tmp_path / kind, "llama", rope_parameters=parameters))
        said.add(tuple(greedy(model, install(model), prompt_ids(model), 20)[0]))
    assert len(said) == 4


def test_layers_offloaded_to_disk_work_through_the_hook(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model", "llama")
    whole = read(folder)
    ids = prompt_ids(whole)
    expected, _ = greedy(whole, install(whole), ids, 10)
    device_map = {
        "model.embed_tokens": "cpu",
        "model.rotary_emb": "cpu",
        "model.layers.0": "cpu",
        "model.layers.1": "disk",
        "model.layers.2": "disk",
        "model.norm": "cpu",
        "lm_head": "cpu",
    }
    parted = read(folder, device_map=device_map, offload_folder=tmp_path / "offload")
    assert parted.model.layers[1].mlp.up_proj.weight.is_meta
    assert greedy(parted, install(parted), ids, 10)[0] == expected


def test_keys_arrive_position_free(tmp_path: Path) -> None:
    """In the first layer a token's key depends on nothing but the token."""
    model = read(make_tiny_model(tmp_path, "qwen3"))
    context = GrowingContext(install(model))
    step(model, context, torch.tensor([7, 8, 9, 7]), 1000)
    keys = context.keys[0]
    assert torch.equal(keys[:, 0], keys[:, 3])
    assert not torch.equal(keys[:, 0], keys[:, 1])


def test_context_learns_what_is_special_about_each_layer(tmp_path: Path) -> None:
    model = read(make_tiny_model(tmp_path, "gemma3_text"))
    context = GrowingContext(install(model))
    step(model, context, torch.arange(4), 0)
    full, sliding = 0, 1
    assert [context.specs[layer] for layer in range(3)] == [
        LayerSpec(sliding_window=32, softcap=None, scaling=0.25, rope=sliding),
        LayerSpec(sliding_window=None, softcap=None, scaling=0.25, rope=full),
        LayerSpec(sliding_window=32, softcap=None, scaling=0.25, rope=sliding),
    ]


def test_softcap_reaches_the_context(tmp_path: Path) -> None:
    model = read(make_tiny_model(tmp_path, "gemma2"))
    context = GrowingContext(install(model))
    step(model, context, torch.arange(4), 0)
    assert {spec.softcap for spec in context.specs.values()} == {5.0}


def test_installing_twice_changes_nothing_more(tmp_path: Path) -> None:
    model = read(make_tiny_model(tmp_path, "llama"))
    rope = install(model)
    assert install(model) is rope
    uninstall(model)
    assert "StandIn" not in type(rotary_modules(model)[0][2]).__name__


def test_uninstalling_gives_the_untouched_model_back(tmp_path: Path) -> None:
    model = read(make_tiny_model(tmp_path, "gemma3_text"))
    ids = prompt_ids(model)[None]
    with torch.inference_mode():
        before = model(input_ids=ids).logits
        install(model)
        assert model.config._attn_implementation == ATTENTION_NAME
        uninstall(model)
        assert torch.equal(model(input_ids=ids).logits, before)


def test_a_saved_hooked_model_is_a_plain_model(tmp_path: Path) -> None:
    model = read(make_tiny_model(tmp_path / "first", "llama"))
    ids = prompt_ids(model)
    expected, _ = stock_greedy(model, ids, 5)
    install(model)
    with quiet():
        model.save_pretrained(tmp_path / "second")
    assert stock_greedy(read(tmp_path / "second"), ids, 5)[0] == expected


def test_a_model_without_rotary_module_is_refused(tmp_path: Path) -> None:
    shape = {"n_embd": 32, "n_layer": 1, "n_head": 2, "num_key_value_heads": None}
    model = read(make_tiny_model(tmp_path, "gpt2", **shape))
    with pytest.raises(ModelRefused, match="0 rotary modules"):
        install(model)
