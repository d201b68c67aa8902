"""The table of codecs: what each says of its bytes is what it makes."""

import pytest
import torch

from engine.codecs import CODECS
from engine.errors import ConfigError
from engine.types import CodedSizes, KVGeometry, Part
from kernels import quantize

GEOMETRY = KVGeometry(2, 3, 64, "bfloat16")


def test_the_table_has_every_codec_of_the_kernels() -> None:
    assert tuple(CODECS) == quantize.CODECS
    assert [codec.name for codec in CODECS.values()] == list(CODECS)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("part", list(Part))
def test_sizes_are_those_of_the_bytes(name: str, part: Part) -> None:
    codec = CODECS[name]
    torch.manual_seed(1)
    pages = torch.randn(2, 3, 64, 64).bfloat16()
    coded = codec.encode(part, pages)
    sizes = codec.sizes(GEOMETRY) or CodedSizes(*[GEOMETRY.page_slice_bytes] * 2)
    assert coded.shape == (2, sizes.of(part))
    out = torch.empty_like(pages)
    codec.decode(part, coded, out)
    torch.testing.assert_close(out.float(), pages.float(), atol=0.3, rtol=0.07)
    assert name != "raw" or torch.equal(out, pages)


def test_raw_has_no_sizes_of_its_own() -> None:
    assert CODECS["raw"].sizes(GEOMETRY) is None


def test_pages_that_cannot_be_coded_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="65 channels"):
        CODECS["int4"].sizes(KVGeometry(2, 1, 65, "bfloat16"))
