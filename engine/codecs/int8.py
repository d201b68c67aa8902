"""Eight-bit integers, symmetric, with a scale a group (KIVI, arXiv 2402.02750): half the bytes."""

from engine.codecs.base import Codec

INT8 = Codec("int8")
