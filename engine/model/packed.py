"""Weights in half precision for a CPU that multiplies in fp32: half the bytes, the same values.

Owns the forms in which weights lie in memory, and the modules that hold them. Such a CPU computes
in fp32 whatever the checkpoint's dtype; a token's step is then bound by the bytes of the weights.
FBGEMM's fp16 matrices (`fbgemm/FbgemmFP16.h`) are widened in registers, so that nothing is rounded
that fp32 weights would not round. Knows nothing of layers, pages or tiers.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class WeightForm(Enum):
    """How the weights lie in memory. KV and fingerprints are in the dtype in any case."""

    OWN = "in their own dtype"
    WIDE = "in fp32"
    PACKED = "in fp16, multiplied in fp32"


class NarrowLinear(nn.Module):
    """A linear layer that keeps half precision and multiplies in fp32, widening on each call.

    Slow for a single token; it is what a packed layer is made from, and compared with.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """Map fp32 `[..., in_features]` to `[..., out_features]`."""
        bias = None if self.bias is None else self.bias.float()
        return functional.linear(x, self.weight.float(), bias)


class NarrowEmbedding(nn.Module):
    """An embedding that keeps half precision and gives fp32."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight = embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Give fp32 `[..., embedding_dim]` for ids of any shape."""
        return functional.embedding(ids, self.weight).float()


class PackedLinear(nn.Module):
    """A linear layer over fp16 weights in the order in which FBGEMM reads them.

    Args:
        weight: `[out_features, in_features]`, every element a number of fp16.
        bias: `[out_features]` or None; kept in fp32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        wide_bias = None if bias is None else bias.float()
        self.packed = torch.ops.quantized.linear_prepack_fp16(weight.float(), wide_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map fp32 `[..., in_features]` to `[..., out_features]`."""
        out: Tensor = torch.ops.quantized.linear_dynamic_fp16.default(x, self.packed)
        return out


@cache
def can_pack() -> bool:
    """Whether this build of torch has FBGEMM, on a processor that it knows."""
    weight, x = torch.eye(4), torch.arange(4.0)[None]
    try:
        return torch.equal(PackedLinear(weight, None)(x), x)
    except (RuntimeError, AttributeError):
        return False


def fits_fp16(weight: Tensor) -> bool:
    """Whether fp16 holds every element exactly: all of a float16 tensor, nearly always all of a
    bfloat16 one, whose significands are shorter."""
    return weight.dtype is torch.float16 or torch.equal(weight.half().to(weight.dtype), weight)


def narrow(model: PreTrainedModel) -> bool:
    """Make a model compute in fp32 with its matrices left in half precision, if all can be packed.

    Args:
        model: On the CPU, in half precision. Changed only if the answer is yes.

    Returns:
        Whether it was done.
    """
    linears = [module for module in model.modules() if type(module) is nn.Linear]
    if not can_pack() or not all(fits_fp16(linear.weight) for linear in linears):
        return False
    for owner, name, child in _children(model):
        if type(child) is nn.Linear:
            setattr(owner, name, NarrowLinear(child))
        elif type(child) is nn.Embedding:
            setattr(owner, name, NarrowEmbedding(child))
    for module in model.modules():
        if not isinstance(module, NarrowLinear | NarrowEmbedding):
            _widen(module)
    return True


def pack(model: PreTrainedModel) -> None:
    """Pack the matrices of a model that `narrow` has prepared, one after the other."""
    for owner, name, child in _children(model):
        if isinstance(child, NarrowLinear):
            setattr(owner, name, PackedLinear(child.weight, child.bias))


def _children(model: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """List every module but the outermost as (owner, attribute, module)."""
    return [
        (owner, name, child) for owner in model.modules() for name, child in owner.named_children()
    ]


def _widen(module: nn.Module) -> None:
    """Turn the module's own parameters to fp32; its children keep theirs."""
    for name, weight in module.named_parameters(recurse=False):
        setattr(module, name, nn.Parameter(weight.float(), requires_grad=False))
