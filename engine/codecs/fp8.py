"""Eight-bit floats, e4m3 (arXiv 2209.05433), with a scale a group: half the bytes."""

from engine.codecs.base import Codec

FP8 = Codec("fp8")
