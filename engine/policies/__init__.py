"""Eviction policies: which page leaves a tier. Pure Python over page ids; one policy a file."""

from engine.policies.attention_mass import AttentionMass
from engine.policies.base import EvictionPolicy
from engine.policies.clock import Clock
from engine.policies.lrfu import LRFU
from engine.policies.lru import LRU
from engine.policies.s3fifo import S3FIFO

__all__ = ["LRFU", "LRU", "POLICIES", "S3FIFO", "AttentionMass", "Clock", "EvictionPolicy"]

POLICIES: dict[str, type[EvictionPolicy]] = {
    "lru": LRU,
    "clock": Clock,
    "lrfu": LRFU,
    "s3fifo": S3FIFO,
    "mass": AttentionMass,
}
"""Every policy by the name `--evict` takes."""
