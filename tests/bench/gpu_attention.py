"""Attention of many queries beside torch's flash attention, and the probe's scan beside memory.

Owns the rates of `attention_part` on the tensors that prefill gives it, a causal diagonal and an
unmasked past, and of `page_lse` on the keys of one layer.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernels.attention import attention_part, page_lse
from tests.bench.gpu_clock import GB, Figure, GpuBench

SHAPES = {"9 of 3 heads x 64": (9, 3, 64), "32 of 8 heads x 128": (32, 8, 128)}
"""Heads, KV heads and head size of the default model, and of one of 8 B parameters."""

PREFILL_GOAL, SCAN_GOAL = 0.7, 0.8
QUESTION = 16
"""Tokens of a question to probe with."""


def figures(bench: GpuBench) -> Iterator[Figure]:
    """Operations per second of prefill, bytes of keys per second of a scan."""
    for name, (heads, kv_heads, dim) in SHAPES.items():
        yield _prefill(bench, name, heads, kv_heads, dim, causal=True)
        yield _prefill(bench, name, heads, kv_heads, dim, causal=False)
        yield _scan(bench, name, heads, kv_heads, dim)


def _prefill(
    bench: GpuBench, name: str, heads: int, kv_heads: int, dim: int, *, causal: bool
) -> Figure:
    tokens = bench.size(8192, 64)
    queries, keys, values = (
        torch.randn(count, tokens, dim, device=bench.device).to(torch.bfloat16)
        for count in (heads, kv_heads, kv_heads)
    )
    first = 0 if causal else tokens
    ours = bench.seconds(
        lambda: attention_part(
            queries, keys, values, scaling=dim**-0.5, first_query=first, first_key=0, causal=causal
        )
    )
    batch = [x.unsqueeze(0) for x in (queries, keys, values)]
    theirs = bench.seconds(
        lambda: torch.nn.functional.scaled_dot_product_attention(
            *batch, is_causal=causal, enable_gqa=True
        )
    )
    operations = 4 * heads * tokens * tokens * dim / (2 if causal else 1) / 1e12
    kind = "causal" if causal else "past"
    return Figure(
        f"prefill, {kind}, {tokens:,} tokens, {name}", operations / ours, "TFLOP/s",
        operations / theirs, "torch's SDPA", PREFILL_GOAL,
    )  # fmt: skip


def _scan(bench: GpuBench, name: str, heads: int, kv_heads: int, dim: int) -> Figure:
    tokens = bench.size(524_288, 256)
    keys = torch.empty(kv_heads, tokens, dim, dtype=torch.bfloat16, device=bench.device).normal_()
    queries = torch.randn(heads, QUESTION, dim, device=bench.device).to(torch.bfloat16)
    seconds = bench.seconds(lambda: page_lse(queries, keys, scaling=dim**-0.5, page_tokens=64))
    return Figure(
        f"probe scan, {tokens:,} keys, {name}", keys.nbytes / seconds / GB, "GB/s",
        bench.peaks.memory / GB, "device copy", SCAN_GOAL,
    )  # fmt: skip
