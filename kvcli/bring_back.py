"""How a stored sequence comes back: its KV is read, or that of its beginning computed again.

Owns what the choice is made from, and the words that say it. Only what was measured on this machine
decides: as long as the disk's speed or the model's is not known, everything is read.
"""

from __future__ import annotations

from pathlib import Path

from engine.memory.budget import MemoryPlan
from engine.model.load import LoadedModel
from engine.tiers.cost import Rates, Split, Work, cheapest_split
from kvcli.estimate import measured_speed
from kvcli.known_disks import recall

EMBEDDINGS = ("embed_tokens.weight", "lm_head.weight")
"""Weights that reading a token hardly touches."""


def matrix_params(model: LoadedModel) -> int:
    """Parameters that every token of a prompt is multiplied with."""
    weights = model.model.named_parameters()
    matrices = [w for name, w in weights if w.ndim == 2 and not name.endswith(EMBEDDINGS)]
    return sum(weight.numel() for weight in matrices)


def split_of(
    model: LoadedModel, plan: MemoryPlan, session: Path, kv_tokens: int, page_tokens: int
) -> Split | None:
    """Choose what of a stored sequence that is attended to exactly is computed again.

    Args:
        model: Whose KV.
        plan: Room in the tiers: what is computed again must fit the device tier.
        session: The file.
        kv_tokens: Tokens that have KV in it.
        page_tokens: Tokens per page.

    Returns:
        The choice; None as long as a speed is not known.
    """
    probe, flops = recall(session.resolve().parent), measured_speed(model.device.type)
    if probe is None or flops is None:
        return None
    geometry = model.geometry
    rates = Rates(probe.choice(geometry.slice_bytes).rate, flops)
    attention = 4.0 * geometry.num_layers * model.num_heads * geometry.head_dim
    work = Work(2.0 * matrix_params(model), attention)
    most = min(kv_tokens, plan.device_pages * page_tokens)
    return cheapest_split(geometry, kv_tokens, most, rates, work)


def describe(split: Split) -> str:
    """The choice and its reason, for people."""
    both = f"reading the KV takes about {split.load_seconds:.1f} s"
    return (
        f"{both}, computing it {split.recompute_seconds:.1f} s: the first {split.recomputed:,} "
        f"tokens are computed again ({split.seconds:.1f} s)"
        if split.recomputed
        else f"{both}, computing it {split.recompute_seconds:.1f} s: it is read"
    )
