"""Four-bit integers with a scale and a zero a group (KIVI, arXiv 2402.02750)."""

from engine.codecs.base import Codec

INT4 = Codec("int4")
