"""Attention of one token to pages that a table finds, beside what the device's memory gives.

Owns the rates at which keys and values are read, from slots in mixed order: of a long past in one
call, and of one part as the engine asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kernels.paged import attention_pages
from tests.bench.gpu_clock import GB, Figure, GpuBench

SHAPES = {"3 KV heads x 64": (9, 3, 64), "8 KV heads x 128": (32, 8, 128)}
"""Heads, KV heads and head size of the default model, and of one of 8 B parameters."""

PAGE = 64
GOAL = 0.85


def figures(bench: GpuBench) -> Iterator[Figure]:
    """Bytes of keys and values per second."""
    for name, (heads, kv_heads, dim) in SHAPES.items():
        for keys, goal in ((bench.size(262_144, 512), GOAL), (bench.size(2048, 256), None)):
            slots = torch.randperm(keys // PAGE).to(device=bench.device, dtype=torch.int32)
            arena = torch.empty(2, kv_heads, keys, dim, dtype=torch.bfloat16, device=bench.device)
            arena.normal_()
            queries = torch.randn(heads, 1, dim, device=bench.device).to(torch.bfloat16)

            def call(
                q: Tensor = queries, kv: Tensor = arena, table: Tensor = slots, count: int = keys
            ) -> None:
                attention_pages(
                    q, kv[0], kv[1], table, num_keys=count, page_tokens=PAGE, scaling=0.1,
                    first_query=count, first_key=0,
                )  # fmt: skip

            rate = arena.nbytes / bench.seconds(call) / GB
            what = f"paged decode, {keys:,} keys, {name}"
            yield Figure(what, rate, "GB/s", bench.peaks.memory / GB, "device copy", goal)
