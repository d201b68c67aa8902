"""Packed weights are the same numbers in half the bytes."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from tiny_models import ARCHITECTURES, make_tiny_model
from torch import nn

from engine.model.load import load_model
from engine.model.packed import (
    NarrowLinear,
    PackedLinear,
    WeightForm,
    can_pack,
    fits_fp16,
    narrow,
    pack,
)
from engine.model.selfcheck import hooked_logits

needs_fbgemm = pytest.mark.skipif(not can_pack(), reason="this torch has no FBGEMM")


def linear(inputs: int, outputs: int, *, bias: bool) -> nn.Linear:
    generator = torch.Generator().manual_seed(inputs + outputs)
    made = nn.Linear(inputs, outputs, bias=bias)
    for weight in made.parameters():
        weight.data = torch.randn(weight.shape, generator=generator)
    return made.to(torch.bfloat16).requires_grad_(False)


@needs_fbgemm
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (7, 3), (64, 96), (576, 960), (129, 65)])
@pytest.mark.parametrize("tokens", [1, 2, 65])
def test_products_are_those_of_wide_weights(
    tokens: int, inputs: int, outputs: int, bias: bool
) -> None:
    given = linear(inputs, outputs, bias=bias)
    x = torch.randn(1, tokens, inputs, generator=torch.Generator().manual_seed(0))
    expected = copy.deepcopy(given).double()(x.double())
    out = PackedLinear(given.weight, given.bias)(x)
    assert out.shape == (1, tokens, outputs) and out.dtype == torch.float32
    assert (out - expected).abs().max() < 1e-6 * inputs
    assert torch.allclose(NarrowLinear(given)(x), out, rtol=1e-4, atol=1e-4)


@needs_fbgemm
def test_every_weight_survives() -> None:
    """The rows of the identity read a matrix back: each product is one weight times one."""
    weight = linear(64, 48, bias=False).weight
    assert torch.equal(PackedLinear(weight, None)(torch.eye(64)).T, weight.float())


@pytest.mark.parametrize(
    ("value", "dtype", "fits"),
    [
        (0.0123, torch.bfloat16, True),
        (65504.0, torch.float16, True),
        (2.0**-17 * 1.5, torch.bfloat16, True),
        (2.0**-24, torch.bfloat16, True),
        (2.0**-25, torch.bfloat16, False),
        (1e5, torch.bfloat16, False),
    ],
)
def test_says_whether_fp16_holds_a_weight(value: float, dtype: torch.dtype, fits: bool) -> None:
    assert fits_fp16(torch.tensor([1.0, value]).to(dtype)) is fits


@needs_fbgemm
def test_a_model_with_a_weight_that_would_be_rounded_is_left_alone() -> None:
    model = nn.Sequential(linear(8, 8, bias=False), linear(8, 8, bias=False))
    model[1].weight[0, 0] = 1e-12
    assert not narrow(model)  # type: ignore[arg-type]
    assert [type(module) for module in model] == [nn.Linear] * 2
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}


@needs_fbgemm
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_are_those_of_wide_weights(architecture: str, tmp_path: Path) -> None:
    """KV is rounded to bf16 in both, so a difference in the last bit of a key may show."""
    make_tiny_model(tmp_path, architecture, dtype="bfloat16")
    ids = torch.randint(0, 300, (60,), generator=torch.Generator().manual_seed(1))
    said = []
    for form in (WeightForm.WIDE, WeightForm.PACKED):
        loaded = load_model(tmp_path, weight_form=form, fused=False)
        assert loaded.weight_form is form
        said.append(hooked_logits(loaded.model, loaded.rope, ids)[0])
    kinds = {type(module) for module in loaded.model.modules()}
    assert PackedLinear in kinds and not kinds & {nn.Linear, NarrowLinear}
    assert (said[0] - said[1]).abs().max() < 0.1 * said[0].std()
    assert torch.equal(said[0].argmax(-1), said[1].argmax(-1))


@needs_fbgemm
def test_packing_takes_half_the_bytes_of_wide_weights() -> None:
    model = nn.Sequential(nn.Embedding(1000, 64), linear(64, 512, bias=True), nn.LayerNorm(512))
    model[0].to(torch.bfloat16)
    model[2].to(torch.bfloat16)
    assert narrow(model)  # type: ignore[arg-type]
    assert [w.dtype for w in model.parameters()] == [torch.bfloat16] * 3 + [torch.float32] * 2
    pack(model)  # type: ignore[arg-type]
    assert [tuple(w.shape) for w in model.parameters()] == [(1000, 64), (512,), (512,)]
    assert model(torch.tensor([[3, 4]])).dtype == torch.float32
