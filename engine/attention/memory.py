"""The tensors, threads and streams behind the tiers, in one place for whoever attends."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.telemetry import Telemetry
from engine.tiers.copies import CopyStream
from engine.tiers.device import DeviceTier
from engine.tiers.host import HostTier
from engine.tiers.transfer import Transfer
from engine.types import KVGeometry


@dataclass(frozen=True, slots=True)
class TierMemory:
    """The tensors and threads behind the tiers."""

    geometry: KVGeometry
    device: DeviceTier
    host: HostTier
    transfer: Transfer | None
    scratch: Tensor
    """`[2, num_kv_heads, part_tokens, head_dim]` on the device, for parts that lie in pieces."""
    telemetry: Telemetry
    """Where the time is booked that bringing pages up takes."""
    up: CopyStream
    """Copies to the device."""
    down: CopyStream
    """Copies from the device."""
    staging: tuple[Tensor, ...] = ()
    """Two of `[2, part_pages, num_kv_heads, page_tokens, head_dim]` on the device, where pages at
    rest arrive; none where compute reads RAM itself."""
