"""Refusals: models that position-free pages cannot serve, told before their weights are read.

Owns the reasons. Looks at facts of the config and at the modules of an empty model (on the meta
device), not at a list of names; what slips through here is caught by the self-check.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import nn

from engine.errors import ModelRefused
from engine.model.hook import rotary_modules

if TYPE_CHECKING:
    from transformers import PretrainedConfig

SUPPORTED = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3 (text)", "phi3")
"""Architectures in the test matrix; others built on plain RoPE attention may pass the checks."""

LAYER_TYPES = {"full_attention", "sliding_attention"}

KV_SHAPE = {"head_dim", "v_head_dim", "num_key_value_heads"}

ROPE_TYPES = {"default", "linear", "yarn", "llama3", "proportional"}
"""Kinds of RoPE whose frequencies are the same for every length of the sequence."""


def refuse_config(name: str, config: PretrainedConfig) -> None:
    """Check what the config alone tells.

    Raises:
        ModelRefused: With the reason.
    """
    for reason in _config_reasons(config):
        raise refusal(name, config, reason)


def refuse_modules(name: str, config: PretrainedConfig, model: nn.Module) -> None:
    """Check the modules of a model, which may be empty.

    Raises:
        ModelRefused: With the reason.
    """
    for reason in _module_reasons(model):
        raise refusal(name, config, reason)


def refusal(name: str, config: PretrainedConfig, reason: str) -> ModelRefused:
    """Build the error for a reason."""
    named = getattr(config, "architectures", None)
    architecture = named[0] if named else config.model_type
    return ModelRefused(
        f"{name} ({architecture}): {reason}",
        f"Choose a model of one of these architectures: {', '.join(SUPPORTED)}.",
    )


def rope_parameters(config: PretrainedConfig) -> list[dict[str, Any]]:
    """List the RoPE parameters of a config: one entry, or one for each layer type."""
    given = getattr(config, "rope_parameters", None) or {}
    nested = [entry for entry in given.values() if isinstance(entry, dict)]
    return nested or ([given] if given else [])


def _config_reasons(config: PretrainedConfig) -> Iterator[str]:
    """Yield every reason to refuse, the most telling first."""
    if getattr(config, "is_encoder_decoder", False):
        yield "an encoder-decoder model; only decoder-only models have one KV sequence"
    text = config.get_text_config()
    if text is not config:
        yield f"a multimodal wrapper around {text.model_type}; only text models are served"
    if getattr(config, "kv_lora_rank", None):
        yield "latent attention (MLA): keys and values are one compressed vector, not heads"
    other = sorted(_layer_types(config) - LAYER_TYPES)
    if other:
        yield f"linear or hybrid layers ({', '.join(other)}) keep a state that has no pages"
    if getattr(config, "alibi", False):
        yield "ALiBi positions: biases by distance instead of rotary embedding"
    if getattr(config, "num_kv_shared_layers", 0):
        yield "layers share their keys and values with other layers"
    if getattr(config, "use_bidirectional_attention", False):
        yield "bidirectional attention: tokens see what comes after them"
    for kind in sorted(
        {str(entry.get("rope_type", "default")) for entry in rope_parameters(config)}
    ):
        if kind not in ROPE_TYPES:
            yield f"{kind} RoPE: its frequencies depend on the length of the sequence"
    uneven = set(getattr(config, "per_layer_attributes", None) or ()) & KV_SHAPE
    if uneven:
        yield f"layers differ in {', '.join(sorted(uneven))}; pages need them equal"
        return
    head_dim = getattr(config, "head_dim", None)
    value_dim = getattr(config, "v_head_dim", None)
    if head_dim and value_dim and head_dim != value_dim:
        yield f"keys of {head_dim} and values of {value_dim} dimensions; pages need them equal"


def _module_reasons(model: nn.Module) -> Iterator[str]:
    """Yield every reason that the modules give."""
    if any(name.endswith("sinks") for name, _ in model.named_parameters()):
        yield "attention sinks: a learned term in the softmax of every head"
    rotaries = rotary_modules(model)
    if len(rotaries) > 1:
        yield f"{len(rotaries)} rotary modules where one was expected"
    if rotaries:
        return
    if any("alibi" in attribute for module in model.modules() for attribute in dir(type(module))):
        yield "ALiBi positions: biases by distance instead of rotary embedding"
    if any(
        isinstance(module, nn.Embedding) and _positional(path)
        for path, module in model.named_modules()
    ):
        yield "learned absolute positions are added to the embeddings; they cannot be taken out"
    yield "no rotary position embedding was found"


def _layer_types(config: PretrainedConfig) -> set[str]:
    """Return the kinds of layers a config names, empty if all are alike."""
    for field in ("layer_types", "layers_block_type"):
        if named := getattr(config, field, None):
            return set(named)
    return set()


def _positional(path: str) -> bool:
    """Tell an embedding of positions by the last part of its path."""
    last = path.rpartition(".")[2]
    return "position" in last or last == "wpe"
