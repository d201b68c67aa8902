"""Coded page slices: what comes back is near enough, the size is as told, nothing is silent."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels import quantize
from kernels.quantize import KEYS, VALUES, coded_bytes, coded_slice, decode, encode, group_length

CODED = ("fp8", "int8", "int4", "k8v4")
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
HALF_ULP = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-23}
"""Relative error of rounding to a dtype once, and a little more for bfloat16's neighbours."""

shapes = st.tuples(
    st.integers(1, 3),
    st.integers(1, 8),
    st.sampled_from((16, 32, 64, 128)),
    st.sampled_from((64, 80, 96, 128, 256)),
)


def numbers(shape: tuple[int, ...], dtype: torch.dtype, seed: int, spread: float = 1.0) -> Tensor:
    """Random slices whose channels and tokens differ in size and offset, as those of models do."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(shape, generator=generator)
    channel = torch.randn(1, shape[1], 1, shape[3], generator=generator).mul(2).exp()
    offset = torch.randn(1, shape[1], 1, shape[3], generator=generator) * 3
    return ((noise * channel + offset) * spread).clamp(-60000, 60000).to(dtype)


def scales_of(name: str, part: int, coded: Tensor, slices: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and zero of every element, read from the bytes by the layout that the module tells."""
    how = coded_slice(name, part, tuple(slices.shape[1:]), slices.dtype)
    assert how is not None
    begin, found = how.code_bytes, []
    while begin < how.num_bytes:
        flat = coded[:, begin : begin + how.scale_bytes].clone()
        numbers = flat.view(how.scale_dtype).view(-1, *how.scale_shape).float()
        found.append(numbers.expand(-1, *how.grouped).reshape(slices.shape))
        begin += how.scale_bytes
    return found[0], found[1] if len(found) > 1 else torch.zeros_like(found[0])


@settings(max_examples=60, deadline=None)
@given(shapes, st.sampled_from(CODED), st.sampled_from((KEYS, VALUES)), st.sampled_from(DTYPES),
       st.integers(0, 1 << 30), st.sampled_from((1.0, 1e-3, 50.0)))  # fmt: skip
def test_what_comes_back_is_within_half_a_step(
    shape: tuple[int, int, int, int],
    name: str,
    part: int,
    dtype: torch.dtype,
    seed: int,
    spread: float,
) -> None:
    slices = numbers(shape, dtype, seed, spread)
    coded = encode(name, part, slices)
    assert coded.shape == (shape[0], coded_bytes(name, part, shape[1:], dtype))
    given_back = decode(name, part, coded, shape[1:], dtype)
    assert given_back.dtype == dtype and given_back.shape == slices.shape
    scheme = quantize.scheme_of(name, part)
    scale, zero = scales_of(name, part, coded, slices)
    wide = slices.float()
    # Of fp8: three bits of mantissa, and steps of 2**-9 below the smallest normal.
    step = (wide.abs() * 2**-3).maximum(scale * 2**-9) if scheme == "fp8" else scale
    # A scale that was rounded down does not quite reach the ends.
    largest = zero + scale * quantize.LIMITS[scheme]
    smallest = zero if scheme == "int4" else -largest
    beyond = (wide - largest).maximum(smallest - wide).clamp(min=0)
    rounded = wide.abs().maximum(given_back.float().abs())  # what comes back is rounded once more
    bound = 0.5001 * step + beyond + rounded * HALF_ULP[dtype] + 1e-7
    if dtype is torch.float16:
        bound += 2.0**-24
    assert ((given_back.float() - wide).abs() <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", [KEYS, VALUES])
@pytest.mark.parametrize("name", CODED)
def test_numbers_on_the_grid_come_back_as_they_are(
    name: str, part: int, dtype: torch.dtype
) -> None:
    """With a step of 1 every code is the number itself; fp8 has the numbers of its own type."""
    generator = torch.Generator().manual_seed(3)
    scheme, shape = quantize.scheme_of(name, part), (2, 2, 64, 64)
    if scheme == "fp8":
        bits = torch.randint(0, 0x7F, shape, generator=generator, dtype=torch.uint8)
        bits |= torch.randint(0, 2, shape, generator=generator, dtype=torch.uint8) << 7
        exact, ends = bits.view(torch.float8_e4m3fn).float(), (448.0, -448.0)
    elif scheme == "int8":
        exact, ends = torch.randint(-127, 128, shape, generator=generator).float(), (127.0, -3.0)
    else:
        exact, ends = torch.randint(-4, 12, shape, generator=generator).float(), (11.0, -4.0)
    across = exact.transpose(2, 3) if part == KEYS else exact
    across[..., 0], across[..., 1] = ends
    slices = exact.to(dtype)
    given_back = decode(name, part, encode(name, part, slices), shape[1:], dtype)
    assert torch.equal(given_back, slices)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", [KEYS, VALUES])
@pytest.mark.parametrize("name", CODED)
def test_groups_of_equal_values(name: str, part: int, dtype: torch.dtype) -> None:
    one = torch.tensor([0.0, 1.0, -2.0, 3.140625, 127.0, -448.0]).to(dtype)
    slices = one.view(-1, 1, 1, 1).expand(-1, 2, 32, 64)
    given_back = decode(name, part, encode(name, part, slices), (2, 32, 64), dtype)
    if quantize.scheme_of(name, part) == "int4":
        assert torch.equal(given_back, slices)
    else:
        torch.testing.assert_close(given_back.float(), slices.float(), rtol=2**-7, atol=0)
        assert torch.equal(given_back[0], slices[0])


@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize("part", [KEYS, VALUES])
def test_the_bytes_of_a_slice_do_not_depend_on_what_stands_beside_it(name: str, part: int) -> None:
    slices = numbers((21, 3, 64, 64), torch.bfloat16, 7)
    slices[5, :, :, 3] = torch.tensor([0.0, -0.0], dtype=torch.bfloat16).repeat(32)
    slices[6, :, 3] = torch.tensor([-0.0, 0.0], dtype=torch.bfloat16).repeat(32)
    together = encode(name, part, slices)
    for index in range(len(slices)):
        alone = slices[index : index + 1].transpose(2, 3).contiguous().transpose(2, 3)
        assert torch.equal(encode(name, part, alone)[0], together[index])
    whole = decode(name, part, together, (3, 64, 64), torch.bfloat16)
    out = torch.empty(3, 21, 64, 64, dtype=torch.bfloat16).transpose(0, 1)
    assert decode(name, part, together, (3, 64, 64), torch.bfloat16, out) is out
    assert torch.equal(out, whole)
    alone = decode(name, part, together[4:5], (3, 64, 64), torch.bfloat16)
    assert torch.equal(alone[0], whole[4])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", [KEYS, VALUES])
@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(name: str, part: int, dtype: torch.dtype, bad: float) -> None:
    slices = numbers((3, 2, 32, 64), dtype, 1)
    slices[1, 1, 17, 5] = bad
    with pytest.raises(ValueError, match="not finite"):
        encode(name, part, slices)


@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize("part", [KEYS, VALUES])
def test_what_would_come_back_as_no_number_is_refused(name: str, part: int) -> None:
    """The largest numbers of float16, with a scale that was rounded up, would be infinite."""
    slices = torch.zeros(1, 1, 16, 64, dtype=torch.float16)
    slices[0, 0, 3, 3] = torch.finfo(torch.float16).max
    slices[0, 0, 3, 4] = slices[0, 0, 4, 3] = -torch.finfo(torch.float16).max
    with pytest.raises(ValueError, match="range"):
        encode(name, part, slices)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", [KEYS, VALUES])
def test_raw_is_the_slice_itself(part: int, dtype: torch.dtype) -> None:
    slices = numbers((3, 2, 32, 80), dtype, 2).transpose(0, 1)[:1]
    coded = encode("raw", part, slices)
    assert bytes(coded.numpy()) == slices.contiguous().view(torch.uint8).numpy().tobytes()
    assert coded.shape[1] == coded_bytes("raw", part, tuple(slices.shape[1:]), dtype)
    assert torch.equal(decode("raw", part, coded, tuple(slices.shape[1:]), dtype), slices)


@pytest.mark.parametrize("name", quantize.CODECS)
@pytest.mark.parametrize("part", [KEYS, VALUES])
def test_no_slices_give_no_bytes(name: str, part: int) -> None:
    coded = encode(name, part, torch.empty(0, 2, 16, 64))
    assert coded.shape == (0, coded_bytes(name, part, (2, 16, 64), torch.float32))
    assert decode(name, part, coded, (2, 16, 64), torch.float32).shape == (0, 2, 16, 64)


def test_sizes_of_the_default_models_pages() -> None:
    """3 KV heads, 64 tokens, 64 channels in bfloat16: 24,576 bytes raw."""
    shape = (3, 64, 64)
    sizes = {
        name: [coded_bytes(name, part, shape, torch.bfloat16) for part in (KEYS, VALUES)]
        for name in quantize.CODECS
    }
    assert sizes == {
        "raw": [24576, 24576],
        "fp8": [12672, 12672],
        "int8": [12672, 12672],
        "int4": [6912, 6912],
        "k8v4": [12672, 6912],
    }
    assert sizes["raw"][0] / sizes["int8"][0] > 1.85
    assert sizes["raw"][0] / sizes["int4"][0] > 3.5


def test_groups_divide_their_axis() -> None:
    assert [group_length(axis) for axis in (16, 64, 80, 96, 128, 256, 97)] == [
        16, 64, 40, 48, 64, 64, 1,
    ]  # fmt: skip


def test_the_order_of_nibbles_and_of_what_follows() -> None:
    """Channel c lies low and channel c + D / 2 high in byte c; scales follow, then zeros."""
    slices = torch.arange(64, dtype=torch.float32).view(1, 1, 1, 64).expand(1, 1, 2, 64) * 0.25
    coded = encode("int4", VALUES, slices)[0]
    codes, scale, zero = coded[:64], coded[64:68], coded[68:72]
    assert scale.view(torch.bfloat16).tolist() == [1.046875, 1.046875]
    assert zero.view(torch.bfloat16).tolist() == [0.0, 0.0]
    wanted = torch.round(slices / 1.046875).to(torch.uint8)[0, 0]
    assert torch.equal(codes.view(2, 32) & 15, wanted[:, :32])
    assert torch.equal(codes.view(2, 32) >> 4, wanted[:, 32:])


def test_what_cannot_be_coded_is_an_error() -> None:
    with pytest.raises(ValueError, match="no codec 'int5'"):
        encode("int5", KEYS, torch.zeros(1, 1, 16, 64))
    with pytest.raises(ValueError, match="two channels"):
        coded_bytes("int4", KEYS, (1, 16, 65), torch.bfloat16)
