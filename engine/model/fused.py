"""Fused layers: a decoder layer in as few operations as its mathematics allows.

Owns which decoder layers of transformers are known, and what takes their place: queries, keys and
values by one product, gate and up by one, and no arguments handed from module to module. A step of
one token is bound by the number of operations as much as by the bytes of its weights. A layer that
is not known stays as it is; the self-check compares either with the untouched model.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from engine.model.hook import AttentionContext
from engine.model.packed import NarrowLinear, PackedLinear
from engine.model.selfcheck import LayerTrace

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Style:
    """What sets a kind of decoder layer apart.

    Attributes:
        norms: Names of the norms before and after attention, before and after the feed-forward
            network; None where there is none.
        norm_offset: Added to the weights of every norm.
    """

    norms: tuple[str, str | None, str, str | None]
    norm_offset: float = 0.0


PLAIN = Style(("input_layernorm", None, "post_attention_layernorm", None))

SANDWICHED = Style(
    (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
    norm_offset=1.0,
)

KNOWN = {
    "LlamaDecoderLayer": PLAIN,
    "MistralDecoderLayer": PLAIN,
    "Qwen2DecoderLayer": PLAIN,
    "Qwen3DecoderLayer": PLAIN,
    "Phi3DecoderLayer": PLAIN,
    "Gemma2DecoderLayer": SANDWICHED,
    "Gemma3DecoderLayer": SANDWICHED,
}
"""Kinds of layers, by the name of their class in transformers."""


class FusedNorm(nn.Module):
    """Root mean square norm over the last dimension (arXiv 1910.07467), in fp32.

    Written by the length of the vector, `x w sqrt(d) / hypot(|x|, sqrt(eps d))`, which is the same
    and takes four operations; torch's own takes twice the time for one token and four times for a
    thousand.

    Args:
        norm: A norm of transformers.
        offset: Added to its weights, in fp32 as transformers does.
    """

    def __init__(self, norm: Any, offset: float) -> None:
        super().__init__()
        width = norm.weight.shape[0]
        eps = float(norm.eps if hasattr(norm, "eps") else norm.variance_epsilon)
        weight = (norm.weight.float() + offset) * width**0.5
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.least: Tensor
        self.register_buffer("least", weight.new_tensor((eps * width) ** 0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Give a tensor like `x`."""
        wide = x.float()
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        return (wide * self.weight).div_(torch.hypot(length, self.least)).to(x.dtype)


class FusedLayer(nn.Module):
    """Takes the place of one decoder layer.

    Args:
        layer: A decoder layer of a known kind, whose parts are taken over.
        index: Its place in the model.
        trace: What it hands to attention.
        kv_dtype: What the context gets and gives.
    """

    def __init__(self, layer: Any, index: int, trace: LayerTrace, kv_dtype: torch.dtype) -> None:
        super().__init__()
        style, attention, mlp = KNOWN[type(layer).__name__], layer.self_attn, layer.mlp
        self.index, self.spec, self.kv_dtype = index, trace.spec, kv_dtype
        kv_heads, self.head_dim = trace.key_shape
        self.heads = trace.heads, kv_heads, kv_heads
        self.qkv = _joined(attention, "qkv_proj", ("q_proj", "k_proj", "v_proj"))
        self.out = _joined(attention, "o_proj")
        self.gate_up = _joined(mlp, "gate_up_proj", ("gate_proj", "up_proj"))
        self.down = _joined(mlp, "down_proj")
        self.activation = mlp.act_fn if hasattr(mlp, "act_fn") else mlp.activation_fn
        before_attention, after_attention, before_mlp, after_mlp = style.norms
        self.before_attention = FusedNorm(getattr(layer, before_attention), style.norm_offset)
        self.after_attention = _norm(layer, after_attention, style)
        self.before_mlp = FusedNorm(getattr(layer, before_mlp), style.norm_offset)
        self.after_mlp = _norm(layer, after_mlp, style)
        self.query_norm = _norm(attention, "q_norm", style)
        self.key_norm = _norm(attention, "k_norm", style)

    def forward(self, x: Tensor, *_: object, kv_context: AttentionContext, **__: object) -> Tensor:
        """Map `[1, T, hidden_size]` to the same shape; attention is the context's."""
        tokens = x.shape[1]
        heads = self.qkv(self.before_attention(x)).view(tokens, -1, self.head_dim)
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys, values = heads.split(self.heads, 1)
            heads = torch.cat((self.query_norm(queries), self.key_norm(keys), values), 1)
        queries, keys, values = heads.to(self.kv_dtype).transpose(0, 1).split(self.heads)
        mixed = kv_context.attend(self.index, queries, keys, values, self.spec)
        mixed = self.out(mixed.reshape(1, tokens, -1).to(x.dtype))
        x = x + (mixed if self.after_attention is None else self.after_attention(mixed))
        gate, up = self.gate_up(self.before_mlp(x)).chunk(2, -1)
        mixed = self.down(self.activation(gate).mul_(up))
        x = x + (mixed if self.after_mlp is None else self.after_mlp(mixed))
        return x


def fuse(
    model: PreTrainedModel, traces: Sequence[LayerTrace], kv_dtype: torch.dtype
) -> tuple[str, ...]:
    """Put fused layers in the place of those that are known.

    Weights are joined layer by layer; those of a layer that `packed.narrow` has prepared are packed
    on the way. Layers that accelerate has spread over devices stay as they are.

    Args:
        model: Hooked.
        traces: What each layer hands to attention.
        kv_dtype: What the context gets and gives.

    Returns:
        The kinds of decoder layers that were left as they are, by name; empty if there are none.
    """
    layers = _layers(model)

    def replace(index: int) -> None:
        if is_known(layers[index]):
            layers[index] = FusedLayer(layers[index], index, traces[index], kv_dtype)

    # Packing is a single thread's work each time, and most of the time of loading.
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(replace, range(len(layers))))
    return tuple(kind for kind in layer_kinds(model) if kind != FusedLayer.__name__)


def layer_kinds(model: PreTrainedModel) -> tuple[str, ...]:
    """Name the kinds of decoder layers of a model."""
    return tuple(sorted({type(layer).__name__ for layer in _layers(model)}))


def is_known(layer: nn.Module) -> bool:
    """Whether a layer can be fused."""
    is_spread = any(hasattr(module, "_hf_hook") for module in layer.modules())
    return type(layer).__name__ in KNOWN and not is_spread


def _layers(model: PreTrainedModel) -> nn.ModuleList:
    """Return the decoder layers of a model, none where they are not where they usually are."""
    decoder = model.get_decoder()  # type: ignore[no-untyped-call]
    layers = getattr(decoder, "layers", None)
    return layers if isinstance(layers, nn.ModuleList) else nn.ModuleList()


def _joined(owner: Any, name: str, parts: Sequence[str] = ()) -> nn.Module:
    """Return one product for several layers that read the same input, or for the one there is."""
    linears = [getattr(owner, part) for part in ([name] if hasattr(owner, name) else parts)]
    if len(linears) == 1:
        weight, bias = linears[0].weight, linears[0].bias
    else:
        weight = torch.cat([linear.weight for linear in linears])
        biases = [linear.bias for linear in linears if linear.bias is not None]
        bias = torch.cat(biases) if biases else None
    if isinstance(linears[0], NarrowLinear):
        return PackedLinear(weight, bias)
    if len(linears) == 1:
        return linears[0]  # type: ignore[no-any-return]
    joined = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        joined.bias = nn.Parameter(bias, requires_grad=False)
    return joined


def _norm(owner: Any, name: str | None, style: Style) -> FusedNorm | None:
    norm = getattr(owner, name, None) if name else None
    return None if norm is None else FusedNorm(norm, style.norm_offset)
