"""Coding and decoding of pages by Triton: every bit as `kernels/quantize.py` has it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import OnCuda
from test_moved_pages import rope
from torch import Tensor

from kernels import quantize, reference_coded, triton_decode, triton_encode

CODECS = [name for name in quantize.CODECS if name != "raw"]
SHAPES = [
    (1, 64, 64, torch.bfloat16),
    (3, 16, 64, torch.float32),
    (2, 16, 80, torch.float16),
    (1, 128, 96, torch.bfloat16),
    (4, 16, 128, torch.bfloat16),
    (1, 48, 256, torch.float16),
    (1, 24, 192, torch.float32),
]
"""Heads, page tokens, head size, dtype."""

KERNELS = pytest.mark.parametrize(
    "kernels",
    [
        SimpleNamespace(
            encode=triton_encode.encode,
            decode=triton_decode.decode,
            gather_coded=triton_decode.gather_coded,
        ),
        pytest.param(
            SimpleNamespace(
                encode=OnCuda(triton_encode).encode,
                decode=OnCuda(triton_decode).decode,
                gather_coded=OnCuda(triton_decode).gather_coded,
            ),
            marks=pytest.mark.gpu,
        ),
    ],
    ids=["interpreted", "on a GPU"],
)


def slices(count: int, shape: tuple[int, int, int], dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Keys or values with outlying channels, groups of equal numbers, zeros of both signs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((count, *shape), generator=generator)
    x[..., 3] *= 40
    x[..., :, 5] = 2.5
    if count:
        x[0, 0, 1] = -1.25
        x[0, 0, :, 7], x[0, 0, 2, 7] = 0.0, -0.0
        x[-1] *= 1e-6
    return x.to(dtype)


@KERNELS
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("part", [quantize.KEYS, quantize.VALUES], ids=["keys", "values"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_codes_and_numbers_are_those_of_the_definition(kernels, name, part, shape) -> None:
    *sizes, dtype = shape
    page = tuple(sizes)
    # tokens as the model gives them: of a token all heads lie together
    x = slices(1 if dtype is torch.bfloat16 else 2, page, dtype)
    x = x.transpose(1, 2).contiguous().transpose(1, 2)
    coded = kernels.encode(name, part, x)
    assert torch.equal(coded, quantize.encode(name, part, x))
    back = kernels.decode(name, part, coded, page, dtype)
    assert torch.equal(back, quantize.decode(name, part, coded, page, dtype))


@KERNELS
@settings(max_examples=8, deadline=None)
@given(
    name=st.sampled_from(CODECS),
    part=st.sampled_from([quantize.KEYS, quantize.VALUES]),
    dtype=st.sampled_from([torch.bfloat16, torch.float16, torch.float32]),
    exponent=st.integers(-40, 15),
    seed=st.integers(0, 1 << 16),
)
def test_any_magnitude_is_coded_to_the_same_bits(
    kernels, name, part, dtype, exponent, seed
) -> None:
    """Scales may become subnormal or 0: codes are then clamped alike, or 0."""
    x = (slices(1, (1, 16, 32), torch.float32, seed) * 2.0**exponent / 64).to(dtype)
    coded = kernels.encode(name, part, x)
    assert torch.equal(coded, quantize.encode(name, part, x))
    back = kernels.decode(name, part, coded, (1, 16, 32), dtype)
    assert torch.equal(back, quantize.decode(name, part, coded, (1, 16, 32), dtype))


@KERNELS
def test_every_byte_of_e4m3_is_decoded_as_torch_does_it(kernels) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(4, 64)
    finite = torch.where(codes & 0x7F == 0x7F, 0, codes).to(torch.uint8)
    scales = torch.ones(64, dtype=torch.bfloat16).view(torch.uint8)
    coded = torch.cat((finite.flatten(), scales))[None]
    back = kernels.decode("fp8", quantize.KEYS, coded, (1, 4, 64), torch.float32)
    assert torch.equal(back[0, 0], finite.view(torch.float8_e4m3fn).float())


@KERNELS
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("part", [quantize.KEYS, quantize.VALUES], ids=["keys", "values"])
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), -float("nan")])
def test_what_is_no_number_is_refused(kernels, name, part, value) -> None:
    x = slices(1, (1, 16, 32), torch.bfloat16)
    x[0, 0, 9, 11] = value
    for encode in (quantize.encode, kernels.encode):
        with pytest.raises(ValueError, match="not finite"):
            encode(name, part, x)


@pytest.mark.parametrize(
    "gather",
    [
        reference_coded.gather_coded,
        triton_decode.gather_coded,
        pytest.param(OnCuda(triton_decode).gather_coded, marks=pytest.mark.gpu),
    ],
    ids=["reference", "triton", "on a GPU"],
)
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize(
    ("heads", "dim", "width", "dtype"),
    [
        (1, 64, 64, torch.bfloat16),
        (3, 80, 32, torch.float16),
        (4, 128, 128, torch.bfloat16),
        (1, 256, 256, torch.float32),
    ],
    ids=str,
)
def test_coded_pages_are_promoted_in_one_pass(gather, name, heads, dim, width, dtype) -> None:
    """As decoding to the dtype of the KV first and rotating then, in slots and at positions."""
    shape, turner = (heads, 16, dim), rope(width, 1.2)
    given = [slices(2, shape, dtype, seed) for seed in (1, 2)]
    coded = [quantize.encode(name, part, x) for part, x in enumerate(given)]
    # rows of a segment's extent: other slices lie between them
    apart = [torch.stack((rows, rows), 1)[:, 1] for rows in coded]
    arena = torch.full((2, heads, 4 * 16, dim), -7.0, dtype=dtype)
    gather(
        name, *apart, arena[0], arena[1], page_tokens=16, rotation=turner.tables(500, 64, 0),
        slots=torch.tensor([3, 1]), starts=torch.tensor([16, 48]),
    )  # fmt: skip
    keys, values = (
        quantize.decode(name, part, rows, shape, dtype) for part, rows in enumerate(coded)
    )
    slots = arena.view(2, heads, 4, 16, dim)
    for page, (slot, start) in enumerate(((3, 516), (1, 548))):
        assert torch.equal(slots[0, :, slot], turner.rotate(keys[page], start, 0))
        assert torch.equal(slots[1, :, slot], values[page])
    assert (slots[:, :, [0, 2]] == -7).all()


@KERNELS
@pytest.mark.parametrize("name", CODECS)
def test_no_pages_have_no_bytes(kernels, name) -> None:
    arena = torch.zeros(2, 16, 32)
    for part in (quantize.KEYS, quantize.VALUES):
        coded = kernels.encode(name, part, slices(0, (2, 16, 32), torch.float32))
        assert coded.shape == (0, quantize.coded_bytes(name, part, (2, 16, 32), torch.float32))
        back = kernels.decode(name, part, coded, (2, 16, 32), torch.float32)
        assert back.shape == (0, 2, 16, 32)
    empty = [
        torch.empty(0, quantize.coded_bytes(name, part, (2, 16, 32), torch.float32)).byte()
        for part in (0, 1)
    ]
    kernels.gather_coded(
        name, *empty, arena, arena, page_tokens=16, rotation=rope(32).tables(0, 0, 0)
    )
    assert arena.eq(0).all()
