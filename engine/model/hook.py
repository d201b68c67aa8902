"""The hook: hands position-free queries, keys and values of every layer to a context of ours.

Owns the attention function registered with transformers and the stand-in for a model's rotary
module. Knows nothing of pages, tiers or how attention is computed; that is the context's part.

A hooked model is called as

    model(input_ids=ids[None], position_ids=positions[None], use_cache=False,
          logits_to_keep=1, kv_context=context)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from engine.errors import ModelRefused
from engine.model.rope import Rope, frequency_sets

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

ATTENTION_NAME = "kvcli"
"""Our name in transformers' registry of attentions. No mask function has it, so none is made."""


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What attention has to know about one layer.

    Attributes:
        sliding_window: A token sees itself and the `sliding_window - 1` tokens before it, or all.
        softcap: Scores become `softcap * tanh(score / softcap)` before the softmax.
        scaling: Factor on the product of query and key.
        rope: Index of the layer's frequency set in the model's `Rope`.
    """

    sliding_window: int | None
    softcap: float | None
    scaling: float
    rope: int


class AttentionContext(Protocol):
    """Stores the keys and values of a step and attends with its queries.

    An implementation must not have a method `to`: accelerate would try to move it.
    """

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LayerSpec
    ) -> Tensor:
        """Attend with the tokens of this step, which come after everything stored before.

        Args:
            layer: Index of the layer.
            queries: `[heads, T, D]`, before RoPE, on the layer's device.
            keys: `[kv_heads, T, D]`, before RoPE.
            values: `[kv_heads, T, D]`.
            spec: What is special about the layer.

        Returns:
            `[T, heads, D]` in the dtype and on the device of the queries.
        """
        ...


class StandInRotary(nn.Module):
    """Takes the place of a rotary module and rotates by nothing: cosine 1, sine 0."""

    def __init__(self, original: nn.Module, implementation: str | None) -> None:
        super().__init__()
        sets = frequency_sets(original)
        self.rope = Rope(sets, next(original.buffers()).device)
        self.widths = {name: chosen.rotary_dim for name, chosen in sets.items()}
        self.implementation = implementation
        # In a tuple, so that the original is not a submodule: it must neither move nor be found.
        self.replaced = (original,)

    def forward(
        self, x: Tensor, position_ids: Tensor, layer_type: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return ones and zeros `[1, T, rotary_dim]` in the dtype of `x`, without memory of T."""
        name = layer_type if layer_type in self.widths else next(iter(self.widths))
        shape = (*position_ids.shape[-2:], self.widths[name])
        return x.new_ones(()).expand(shape), x.new_zeros(()).expand(shape)


def install(model: PreTrainedModel, kv_dtype: torch.dtype | None = None) -> Rope:
    """Hook a model: attention goes to the context, positions stay out. Idempotent.

    Args:
        model: A causal language model with exactly one rotary module.
        kv_dtype: What the context gets and gives; None: what the model computes in.

    Returns:
        The rotation that was taken out of the model.

    Raises:
        ModelRefused: The model has no rotary module, or several.
    """
    from transformers import AttentionInterface  # contexts import this file; they need no models

    AttentionInterface.register(ATTENTION_NAME, _attend)
    owner, attribute, rotary = _rotary_of(model)
    if isinstance(rotary, StandInRotary):
        return rotary.rope
    stand_in = StandInRotary(rotary, model.config._attn_implementation)
    for module in model.modules():
        layer = getattr(module, "layer_idx", None)
        if isinstance(layer, int):
            rope_set = stand_in.rope.which(_layer_type(model.config, layer))
            module.rope_set = rope_set  # type: ignore[assignment]
            module.kv_dtype = kv_dtype or model.dtype  # type: ignore[assignment]
    setattr(owner, attribute, stand_in)
    model.config._attn_implementation = ATTENTION_NAME
    return stand_in.rope


def uninstall(model: PreTrainedModel) -> None:
    """Undo `install`; a model without the hook is left as it is."""
    owner, attribute, rotary = _rotary_of(model)
    if isinstance(rotary, StandInRotary):
        setattr(owner, attribute, rotary.replaced[0])
        model.config._attn_implementation = rotary.implementation


def rotary_modules(model: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """List the rotary modules of a model as (owner, attribute, module), stand-ins included."""
    return [
        (owner, attribute, child)
        for owner in model.modules()
        for attribute, child in owner.named_children()
        if isinstance(child, StandInRotary)
        or any(name.endswith("inv_freq") for name, _ in child.named_buffers(recurse=False))
    ]


def _rotary_of(model: PreTrainedModel) -> tuple[nn.Module, str, nn.Module]:
    """Return the only rotary module, or refuse."""
    found = rotary_modules(model)
    if len(found) != 1:
        raise ModelRefused(
            f"{type(model).__name__}: {len(found)} rotary modules where one was expected"
        )
    return found[0]


def _layer_type(config: PretrainedConfig, layer: int) -> str:
    """Return the configured type of a layer, empty where layers have no types."""
    types = getattr(config, "layer_types", None)
    return str(types[layer]) if types else ""


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    kv_context: AttentionContext | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Serve transformers' attention call, `[1, heads, T, D]` each, from the context."""
    assert kv_context is not None, "a hooked model runs with kv_context=..."
    assert query.shape[0] == 1 and attention_mask is None
    layer, rope_set, kv_dtype = module.layer_idx, module.rope_set, module.kv_dtype
    assert isinstance(layer, int) and isinstance(rope_set, int)
    assert isinstance(kv_dtype, torch.dtype)
    spec = LayerSpec(
        sliding_window=sliding_window,
        softcap=softcap,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        rope=rope_set,
    )
    queries, keys, values = (tensor[0].to(kv_dtype) for tensor in (query, key, value))
    out = kv_context.attend(layer, queries, keys, values, spec)
    return out[None].to(query.dtype), None
