"""Keys as int8, values as int4: attention forgives less in keys (KIVI, arXiv 2402.02750)."""

from engine.codecs.base import Codec

K8V4 = Codec("k8v4")
