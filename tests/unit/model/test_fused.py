"""A fused layer says what the decoder layer of transformers says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from growing_context import greedy, stock_greedy
from tiny_models import ARCHITECTURES, make_tiny_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from engine.model.checkpoint import quiet
from engine.model.fused import FusedLayer
from engine.model.load import load_model
from engine.model.packed import WeightForm, can_pack

PROMPT, STEPS = 100, 40


def prompt() -> Tensor:
    return torch.randint(0, 300, (PROMPT,), generator=torch.Generator().manual_seed(1))


def untouched(folder: Path) -> tuple[list[int], Tensor]:
    """What stock transformers says, computing in fp32."""
    with quiet():
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, attn_implementation="eager", dtype=torch.float32
        )
    return stock_greedy(model, prompt(), STEPS)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_tokens_equal_stock(architecture: str, tmp_path: Path) -> None:
    make_tiny_model(tmp_path, architecture)
    expected, expected_logits = untouched(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.unfused == ()
    assert {type(layer) for layer in loaded.model.model.layers} == {FusedLayer}
    tokens, logits = greedy(loaded.model, loaded.rope, prompt(), STEPS)
    assert tokens == expected
    assert (logits - expected_logits).abs().max() < 1e-4


@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "phi3"])
def test_other_head_layouts_equal_stock(architecture: str, kv_heads: int, tmp_path: Path) -> None:
    make_tiny_model(tmp_path, architecture, num_key_value_heads=kv_heads)
    loaded = load_model(tmp_path)
    assert loaded.unfused == ()
    assert greedy(loaded.model, loaded.rope, prompt(), STEPS)[0] == untouched(tmp_path)[0]


@pytest.mark.skipif(not can_pack(), reason="this torch has no FBGEMM")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_packed_layers_are_within_rounding_of_stock(architecture: str, tmp_path: Path) -> None:
    """fp16 weights and fp16 KV; transformers computes all of it in fp32."""
    make_tiny_model(tmp_path, architecture, dtype="float16")
    _, expected = untouched(tmp_path)
    loaded = load_model(tmp_path, weight_form=WeightForm.PACKED)
    assert loaded.weight_form is WeightForm.PACKED and loaded.unfused == ()
    first = greedy(loaded.model, loaded.rope, prompt(), 1)[1]
    assert (first - expected[:1]).abs().max() < 0.02 * expected.std()


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma2"])
@pytest.mark.parametrize("form", WeightForm)
def test_fusing_holds_no_weight_twice(form: WeightForm, architecture: str, tmp_path: Path) -> None:
    make_tiny_model(tmp_path, architecture, dtype="bfloat16")
    bare = load_model(tmp_path, weight_form=form, fused=False)
    loaded = load_model(tmp_path, weight_form=form)

    def elements(model: nn.Module) -> int:
        return sum(weight.numel() for weight in model.parameters())

    assert elements(loaded.model) == elements(bare.model)
    assert len(list(loaded.model.modules())) < len(list(bare.model.modules()))
