"""How a stored sequence comes back: its KV is read, or that of its beginning computed again.

Owns what the choice is made from, and the words that say it. Only what was measured on this machine
decides: as long as the disk's speed or the model's is not known, everything is read.
"""

from __future__ import annotations

from engine.engine import Engine
from engine.model.load import LoadedModel
from engine.session import SessionFile
from engine.tiers.cost import Rates, Split, Work, cheapest_split
from kvcli.estimate import measured_speed
from kvcli.known_disks import recall
from kvcli.output import Output


def tokens_to_recompute(
    model: LoadedModel, engine: Engine, file: SessionFile, output: Output
) -> int:
    """Choose how many leading tokens of a session to compute again, and say why.

    Args:
        model: Whose KV.
        engine: What is computed again must fit its device tier.
        file: The session, which will be attended to exactly.
        output: Is told of the choice; in detail only if everything is read.
    """
    probe, flops = recall(file.path.resolve().parent), measured_speed(model.device.type)
    if probe is None or flops is None:
        return 0
    geometry = model.geometry
    rates = Rates(probe.choice(geometry.slice_bytes).rate, flops)
    attention = 4.0 * geometry.num_layers * model.num_heads * geometry.head_dim
    work = Work(2.0 * model.matrix_params, attention)
    most = engine.memory_plan.device_pages * geometry.page_tokens
    split = cheapest_split(geometry, file.kv_tokens, most, rates, work)
    say = output.status if split.recomputed else output.detail
    say(describe(split))
    return split.recomputed


def describe(split: Split) -> str:
    """The choice and its reason, for people."""
    both = f"reading the KV takes about {split.load_seconds:.1f} s"
    return (
        f"{both}, computing it {split.recompute_seconds:.1f} s: the first {split.recomputed:,} "
        f"tokens are computed again ({split.seconds:.1f} s)"
        if split.recomputed
        else f"{both}, computing it {split.recompute_seconds:.1f} s: it is read"
    )
