"""What the hardware allows: the model without attention, and attention without anything else.

Owns the floors that figures are compared with. They use the same kernels on the same shapes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from engine.model.hook import LayerSpec
from engine.model.load import LoadedModel
from kernels.attention import attention_part


class NoAttention:
    """A context that gives every token its own query back."""

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LayerSpec
    ) -> Tensor:
        """Attend to nothing."""
        return queries.transpose(0, 1)


@torch.inference_mode()
def forward_seconds(model: LoadedModel, num_tokens: int, step: int) -> float:
    """Seconds of the model without attention over `num_tokens` tokens in steps."""
    started = time.perf_counter()
    for first in range(0, num_tokens, step):
        count = min(step, num_tokens - first)
        model.model(
            input_ids=torch.full((1, count), 100, device=model.device),
            position_ids=torch.arange(first, first + count, device=model.device)[None],
            use_cache=False,
            logits_to_keep=1,
            kv_context=NoAttention(),
        )
    return time.perf_counter() - started


@torch.inference_mode()
def attention_seconds(
    model: LoadedModel,
    num_tokens: int,
    step: int,
    part: int,
    now: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds by the clock `now` of exact attention alone over `num_tokens` tokens in steps, all
    layers."""
    geometry = model.geometry
    dtype = getattr(torch, geometry.dtype)
    queries = torch.randn(model.num_heads, step, geometry.head_dim).to(dtype)
    arena = torch.randn(2, geometry.num_kv_heads, num_tokens, geometry.head_dim).to(dtype)
    started = now()
    for first in range(0, num_tokens, step):
        own = queries[:, : min(step, num_tokens - first)]
        for begin in range(0, first, part):
            end = min(begin + part, first)
            attention_part(
                own, arena[0, :, begin:end], arena[1, :, begin:end],
                scaling=0.125, first_query=first, first_key=begin,
            )  # fmt: skip
        end = first + own.shape[1]
        if own.shape[1] > 1:
            attention_part(
                own, arena[0, :, first:end], arena[1, :, first:end],
                scaling=0.125, first_query=first, first_key=first, causal=True,
            )  # fmt: skip
    return (now() - started) * geometry.num_layers
