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


@dataclass(frozen=True, slots=True, eq=False)
class DeviceMemory:
    """What one device has beside the pages that lie there; its layers take it in turn."""

    scratch: Tensor
    """`[2, num_kv_heads, part_tokens, head_dim]`, for parts that lie in pieces."""
    up: CopyStream
    """Copies to the device."""
    down: CopyStream
    """Copies from the device."""
    staging: tuple[Tensor, ...] = ()
    """Two of `[2, part_pages, num_kv_heads, page_tokens, head_dim]`, where pages at rest arrive;
    none where compute reads RAM itself."""


@dataclass(frozen=True, slots=True)
class TierMemory:
    """The tensors and threads behind the tiers."""

    geometry: KVGeometry
    device: DeviceTier
    host: HostTier
    transfer: Transfer | None
    telemetry: Telemetry
    """Where the time is booked that bringing pages up takes."""
    beside: tuple[DeviceMemory, ...]
    """By layer: what the layer's device has beside its pages. Layers of a device share it."""

    @property
    def devices(self) -> tuple[DeviceMemory, ...]:
        """Each device once."""
        return tuple(dict.fromkeys(self.beside))
