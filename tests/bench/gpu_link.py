"""Copies between RAM and the device as the engine makes them, beside one large copy.

Owns the rates of `engine.tiers.copies`: pages of one layer and part going up from the host tier,
and slices of whole segments going down, in the shapes of two models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from engine.tiers.copies import CopyStream, copy_streams
from engine.tiers.disk import PageBuffer
from engine.tiers.host import HostTier
from engine.types import KVGeometry, Part, SlotId
from tests.bench.gpu_clock import GB, Figure, GpuBench

SHAPES = {"3 KV heads x 64": (3, 64), "8 KV heads x 128": (8, 128)}
"""KV heads and head size of the default model, and of one of 8 B parameters."""

LINK_LEAST = 45.0
"""GB/s that PCIe 5 x16 carries one way."""


def figures(bench: GpuBench) -> Iterator[Figure]:
    """Rates up, down, and of both at once."""
    yield Figure("link up, one copy", bench.peaks.up / GB, "GB/s", bench.peaks.up / GB, "itself",
                 least=LINK_LEAST)  # fmt: skip
    yield Figure("link down, one copy", bench.peaks.down / GB, "GB/s", bench.peaks.down / GB,
                 "itself", least=LINK_LEAST)  # fmt: skip
    for name, (heads, head_dim) in SHAPES.items():
        yield from _of_shape(bench, name, KVGeometry(4, heads, head_dim, "bfloat16"))


def _of_shape(bench: GpuBench, name: str, geometry: KVGeometry) -> Iterator[Figure]:
    part_pages = bench.size(32, 4)
    up, down = copy_streams(bench.device)
    host = HostTier(geometry, part_pages, pinned=bench.device.type == "cuda")
    staging = torch.empty(
        (geometry.num_layers, len(Part), *host.pages(0, Part.KEYS, SlotId(0), part_pages).shape),
        dtype=torch.bfloat16,
        device=bench.device,
    )
    tokens = torch.empty(
        geometry.num_kv_heads, geometry.segment_tokens, geometry.head_dim,
        dtype=torch.bfloat16, device=bench.device,
    )  # fmt: skip
    slices = [
        PageBuffer(geometry, geometry.pages_per_segment, pinned=bench.device.type == "cuda")
        for _ in range(8)
    ]

    def send_up() -> None:
        for layer in range(geometry.num_layers):
            for half in Part:
                up.copy(staging[layer, half], host.pages(layer, half, SlotId(0), part_pages))

    def send_down() -> None:
        shape = (geometry.num_kv_heads, -1, geometry.page_tokens, geometry.head_dim)
        pages = tokens.view(shape).transpose(0, 1)
        for buffer in slices:
            down.copy(buffer.pages, pages)

    up_bytes, down_bytes = staging.nbytes, len(slices) * geometry.slice_bytes
    rate_up = up_bytes / bench.seconds(_beside(send_up, up)) / GB
    rate_down = down_bytes / bench.seconds(_beside(send_down, down)) / GB
    peaks = bench.peaks
    yield Figure(f"pages up, {name}", rate_up, "GB/s", peaks.up / GB, "link up", 0.9)
    yield Figure(f"slices down, {name}", rate_down, "GB/s", peaks.down / GB, "link down", 0.9)
    both = _beside(lambda: (send_up(), send_down()), up, down)
    rate = (up_bytes + down_bytes) / bench.seconds(both) / GB
    yield Figure(f"both ways, {name}", rate, "GB/s", (peaks.up + peaks.down) / GB, "both links")


def _beside(call: Callable[[], object], *streams: CopyStream) -> Callable[[], None]:
    """A call between what compute has queued before it and what it will queue after it."""

    def ordered() -> None:
        for stream in streams:
            stream.after(stream.compute_point())
        call()
        for stream in streams:
            stream.before_compute(stream.point())

    return ordered
