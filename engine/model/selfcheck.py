"""The self-check: the hooked model must say what the untouched model says.

Owns a plain context (everything in memory, fp32, one step) and the comparison. Knows nothing of
pages or tiers. What the hook sees of each layer on the way is the model's true shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.model.hook import LayerSpec
from engine.model.refusal import refusal
from engine.model.rope import Rope

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

CHECK_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far logits may differ, in standard deviations of the logits.

    Attributes:
        typical: Root mean square over all tokens and logits.
        largest: Any single logit.
        agreement: Share of tokens whose most likely successor must be the same.
    """

    typical: float
    largest: float
    agreement: float


TOLERANCE = {
    torch.float32: Tolerance(1e-4, 1e-3, 0.95),
    torch.float16: Tolerance(0.03, 0.3, 0.75),
    torch.bfloat16: Tolerance(0.15, 1.5, 0.75),
}
"""Stock models rotate in their own dtype and we in fp32, so half precision differs by rounding:
0.05 typically in bfloat16 and 0.005 in float16 over 30 layers. A missing or mistaken rotation,
mask or scale differs by 0.3 and more."""


@dataclass(frozen=True, slots=True)
class LayerTrace:
    """What one layer handed to attention."""

    spec: LayerSpec
    heads: int
    key_shape: tuple[int, int]
    """KV heads and head dimension."""
    value_shape: tuple[int, int]
    device: torch.device
    """Where its keys and values come from."""


class PlainContext:
    """Causal attention among the tokens of one step at positions from 0, in fp32."""

    def __init__(self, rope: Rope) -> None:
        self.rope = rope
        self.traces: dict[int, LayerTrace] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LayerSpec
    ) -> Tensor:
        """Attend as `AttentionContext` says, and keep a trace of the layer."""
        self.traces[layer] = LayerTrace(
            spec,
            queries.shape[0],
            (keys.shape[0], keys.shape[2]),
            (values.shape[0], values.shape[2]),
            keys.device,
        )
        groups = queries.shape[0] // keys.shape[0]
        rotated = self.rope.rotate(queries.float(), 0, spec.rope)
        rotated_keys = self.rope.rotate(keys, 0, spec.rope).float().repeat_interleave(groups, 0)
        scores = rotated @ rotated_keys.mT * spec.scaling
        if spec.softcap is not None:
            scores = torch.tanh(scores / spec.softcap) * spec.softcap
        scores = scores.masked_fill(_hidden(queries.shape[1], spec, scores.device), -torch.inf)
        mixed = scores.softmax(-1) @ values.float().repeat_interleave(groups, 0)
        return mixed.transpose(0, 1).to(queries.dtype)


def check_ids(vocab_size: int, count: int = CHECK_TOKENS) -> Tensor:
    """Return `count` token ids spread over the vocabulary, the same ones every time."""
    return torch.arange(count) * 7919 % vocab_size


def stock_logits(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Run a model that is not hooked.

    Args:
        model: Best with eager attention, which every architecture honours in full.
        ids: `[T]`.

    Returns:
        fp32 `[T, vocab]`.
    """
    with torch.inference_mode():
        output = model(input_ids=ids[None].to(model.device), use_cache=False)
    return output.logits[0].float()  # type: ignore[no-any-return]


def hooked_logits(
    model: PreTrainedModel, rope: Rope, ids: Tensor
) -> tuple[Tensor, dict[int, LayerTrace]]:
    """Run a hooked model over a plain context.

    Returns:
        fp32 logits `[T, vocab]`, and a trace of every layer that attended.
    """
    context = PlainContext(rope)
    ids = ids.to(model.device)
    with torch.inference_mode():
        output = model(
            input_ids=ids[None],
            position_ids=torch.arange(ids.shape[0], device=ids.device)[None],
            use_cache=False,
            kv_context=context,
        )
    return output.logits[0].float(), context.traces


def compare(
    name: str, config: PretrainedConfig, expected: Tensor, actual: Tensor, dtype: torch.dtype
) -> None:
    """Compare logits `[T, vocab]` of the untouched and the hooked model.

    Raises:
        ModelRefused: They differ by more than the dtype's tolerance.
    """
    allowed = TOLERANCE[dtype]
    unit = expected.std()
    difference = (expected - actual).abs()
    largest = difference.max()
    typical = difference.square().mean().sqrt()
    agreement = (expected.argmax(-1) == actual.argmax(-1)).float().mean()
    # Written so that a NaN anywhere is not within anything.
    within = (
        typical <= allowed.typical * unit
        and largest <= allowed.largest * unit
        and agreement >= allowed.agreement
    )
    if not within:
        raise refusal(
            name,
            config,
            f"with positions applied outside the model its logits change by up to {largest:.3g} "
            f"({typical:.3g} typically; {allowed.typical * unit:.3g} allowed in {dtype})",
        )


def _hidden(count: int, spec: LayerSpec, device: torch.device) -> Tensor:
    """Return `[T, T]`, true where a query must not see a key."""
    positions = torch.arange(count, device=device)
    distance = positions[:, None] - positions
    hidden = distance < 0
    if spec.sliding_window is not None:
        hidden |= distance >= spec.sliding_window
    return hidden
