"""The model's own dtype, byte for byte: a page read back has the bits of one that never left."""

from engine.codecs.base import Codec

RAW = Codec("raw")
