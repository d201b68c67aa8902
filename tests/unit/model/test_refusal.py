"""Architectures that cannot be served are refused by name and reason, before weights are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_models import SHAPE, SLIDING_MIX, make_config_only, make_tiny_model

from engine.errors import ModelRefused
from engine.model.load import load_model

HYBRID = ["linear_attention", "full_attention"]

REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "gpt2": ("gpt2", {"n_layer": 1}, "learned absolute positions"),
    "opt": ("opt", {"num_hidden_layers": 1}, "learned absolute positions"),
    "bloom": ("bloom", {"n_layer": 1}, "ALiBi"),
    "mpt": ("mpt", {"n_layers": 1}, "ALiBi"),
    "falcon with ALiBi": ("falcon", {"alibi": True}, "ALiBi"),
    "xglm": ("xglm", {"num_layers": 1}, "no rotary position embedding"),
    "deepseek_v3": ("deepseek_v3", {"num_hidden_layers": 1}, r"latent attention \(MLA\)"),
    "mamba": ("mamba", {"num_hidden_layers": 1}, r"linear or hybrid layers \(linear_attention\)"),
    "qwen3_next": ("qwen3_next", {"num_hidden_layers": 4}, r"hybrid layers \(linear_attention\)"),
    "jamba": ("jamba", {}, r"hybrid layers \(linear_attention\)"),
    "t5": ("t5", {}, "encoder-decoder"),
    "gpt_oss": ("gpt_oss", {"num_hidden_layers": 1}, "attention sinks"),
    "gemma3 with images": ("gemma3", {}, "multimodal wrapper around gemma3_text"),
    "shared KV": ("gemma3n_text", {}, "layers share their keys and values"),
    "wider heads in some layers": (
        "gemma4_text",
        {"num_kv_shared_layers": 0, "num_hidden_layers": 6},
        "layers differ in head_dim",
    ),
    "wider keys than values": (
        "llama",
        SHAPE | {"head_dim": 16, "v_head_dim": 8},
        "keys of 16 and values of 8 dimensions",
    ),
    "dynamic RoPE": (
        "llama",
        SHAPE | {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
        "dynamic RoPE: its frequencies depend on the length",
    ),
    "longrope": (
        "phi3",
        SHAPE
        | {
            "pad_token_id": 0,
            "original_max_position_embeddings": 64,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "short_factor": [1.0] * 8,
                "long_factor": [2.0] * 8,
            },
        },
        "longrope RoPE",
    ),
    "dynamic RoPE in one layer type": (
        "gemma3_text",
        SHAPE
        | {
            "layer_types": SLIDING_MIX,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e6},
            },
        },
        "dynamic RoPE",
    ),
    "bidirectional": (
        "gemma3_text",
        SHAPE | {"use_bidirectional_attention": True},
        "bidirectional attention",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_its_reason(case: str, tmp_path: Path) -> None:
    """The folders hold no weights: an attempt to read them would end in another error."""
    architecture, fields, reason = REFUSED[case]
    folder = make_config_only(tmp_path / "model-x", architecture, **fields)
    with pytest.raises(ModelRefused, match=reason) as caught:
        load_model(folder)
    assert caught.value.message.startswith("model-x (")
    assert "\n" not in caught.value.message
    assert "llama, qwen2, qwen3, mistral, gemma2, gemma3 (text), phi3" in caught.value.advice


def test_the_architecture_is_named(tmp_path: Path) -> None:
    folder = make_config_only(tmp_path / "x", "gpt2", architectures=["GPT2LMHeadModel"])
    with pytest.raises(ModelRefused, match=r"^x \(GPT2LMHeadModel\): "):
        load_model(folder)


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        ("mixtral", {"num_local_experts": 4}),
        ("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2}),
        ("olmo2", {}),
        ("starcoder2", {}),
    ],
)
def test_plain_rope_models_outside_the_matrix_load(
    architecture: str, fields: dict[str, int], tmp_path: Path
) -> None:
    """Mixtures of experts among them: facts decide, not a list of names."""
    load_model(make_tiny_model(tmp_path, architecture, **fields))
