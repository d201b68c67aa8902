"""A plain context that grows by a step at a time: the reference for the hook's tests."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.model.hook import LayerSpec
from engine.model.rope import Rope


class GrowingContext:
    """Keeps position-free keys and values of all layers; rotates everything at every step.

    The rotation is written out here, in fp64, so that `Rope.rotate` is not tested by itself.
    """

    def __init__(self, rope: Rope) -> None:
        self.rope = rope
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self.specs: dict[int, LayerSpec] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LayerSpec
    ) -> Tensor:
        if layer in self.keys:
            keys = torch.cat((self.keys[layer], keys), 1)
            values = torch.cat((self.values[layer], values), 1)
        self.keys[layer], self.values[layer], self.specs[layer] = keys, values, spec
        groups = queries.shape[0] // keys.shape[0]
        end = keys.shape[1]
        at = torch.arange(end - queries.shape[1], end)
        q = self._rotate(queries, at, spec)
        k = self._rotate(keys, torch.arange(end), spec).repeat_interleave(groups, 0)
        scores = q @ k.mT * spec.scaling
        if spec.softcap is not None:
            scores = spec.softcap * torch.tanh(scores / spec.softcap)
        distance = at[:, None] - torch.arange(end)
        seen = distance >= 0
        if spec.sliding_window is not None:
            seen &= distance < spec.sliding_window
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        mixed = weights @ values.double().repeat_interleave(groups, 0)
        return mixed.transpose(0, 1).to(queries.dtype)

    def _rotate(self, x: Tensor, positions: Tensor, spec: LayerSpec) -> Tensor:
        chosen = self.rope.sets[spec.rope]
        angles = positions[:, None].double() * chosen.inverse.double()
        cos, sin = angles.cos() * chosen.scaling, angles.sin() * chosen.scaling
        half, width = chosen.rotary_dim // 2, chosen.rotary_dim
        first, second, rest = x.double().tensor_split((half, width), -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), -1)


def step(model: PreTrainedModel, context: GrowingContext, ids: Tensor, first: int) -> Tensor:
    """Run one step of a hooked model and return the logits of its last token."""
    with torch.inference_mode():
        output = model(
            input_ids=ids[None],
            position_ids=torch.arange(first, first + ids.shape[0])[None],
            use_cache=False,
            logits_to_keep=1,
            kv_context=context,
        )
    return output.logits[0, -1].float()


def greedy(
    model: PreTrainedModel, rope: Rope, prompt: Tensor, count: int
) -> tuple[list[int], Tensor]:
    """Decode greedily; return ids and the logits `[count, vocab]` they were chosen from."""
    context = GrowingContext(rope)
    logits = [step(model, context, prompt, 0)]
    for index in range(count - 1):
        chosen = logits[-1].argmax()[None]
        logits.append(step(model, context, chosen, prompt.shape[0] + index))
    stacked = torch.stack(logits)
    return stacked.argmax(-1).tolist(), stacked


def stock_greedy(model: PreTrainedModel, prompt: Tensor, count: int) -> tuple[list[int], Tensor]:
    """The same by transformers' own `generate`."""
    model.generation_config.eos_token_id = None
    output = model.generate(
        prompt[None],
        max_new_tokens=count,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return output.sequences[0, prompt.shape[0] :].tolist(), torch.cat(output.logits).float()
