"""Eviction policies: which page leaves a tier. Pure Python over page ids; one policy a file."""

from engine.policies.base import EvictionPolicy
from engine.policies.lru import LRU

__all__ = ["LRU", "POLICIES", "EvictionPolicy"]

POLICIES: dict[str, type[EvictionPolicy]] = {"lru": LRU}
"""Every policy by the name `--evict` takes."""
