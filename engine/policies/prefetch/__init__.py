"""What is brought in before anybody asks. Ids only; one policy a file."""

from engine.policies.prefetch.base import PrefetchPolicy
from engine.policies.prefetch.runner_up import RunnerUp
from engine.policies.prefetch.sequential import Sequential
from engine.policies.prefetch.temporal import Temporal

__all__ = ["PREFETCH_POLICIES", "PrefetchPolicy", "RunnerUp", "Sequential", "Temporal"]

PREFETCH_POLICIES: dict[str, type[PrefetchPolicy]] = {
    "sequential": Sequential,
    "temporal": Temporal,
    "runner-up": RunnerUp,
}
"""Every policy by the name `--prefetch` takes. What a layer reads next needs no prediction: those
slices are streamed ahead of compute anyway."""
