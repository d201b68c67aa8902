"""How pages at rest are coded: one codec a file, all of them in one table."""

from typing import Final

from engine.codecs.base import Codec
from engine.codecs.fp8 import FP8
from engine.codecs.int4 import INT4
from engine.codecs.int8 import INT8
from engine.codecs.k8v4 import K8V4
from engine.codecs.raw import RAW

CODECS: Final = {codec.name: codec for codec in (RAW, FP8, INT8, INT4, K8V4)}
"""By name, as in a session's identity and in `--kv-dtype`."""

__all__ = ["CODECS", "Codec"]
