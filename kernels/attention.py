"""Attention over one part of a sequence: the implementation is chosen here, by device and shape.

Owns the choice. The choice depends on device, dtype, shape and mask alone, never on where the keys
came from, so results do not change with residency.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kernels.choice import by_triton
from kernels.cpu import multiplies_bf16
from kernels.reference import attention_part as reference_part
from kernels.reference import merge

__all__ = ["attention_part", "merge", "page_lse"]

CPU_FLASH: Callable[..., tuple[Tensor, Tensor]] = (
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
)
"""Blocked online softmax (arXiv 2205.14135) in ATen; gives the log-sum-exp that `merge` needs."""

MOST_DIM = 256
"""Largest head size that the Triton kernels' tiles were made for."""

LEAST_ROWS = 4
"""Query rows of one product below which they are padded, on a CPU."""


def attention_part(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scaling: float,
    first_query: int,
    first_key: int,
    causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """As `kernels.reference.attention_part`, by the fastest implementation that fits.

    Masks that hide nothing are dropped first: a masked call costs 1.1 to 1.8 times an unmasked one.
    """
    num_heads, num_queries, head_dim = queries.shape
    num_kv_heads, num_keys, _ = keys.shape
    causal = causal and num_queries > 1
    if window is not None and first_query + num_queries - 1 - first_key < window:
        window = None
    if by_triton(queries.device) and head_dim <= MOST_DIM:
        from kernels import triton_attention  # takes 0.5 s, which only its users shall wait for

        with torch.cuda.device_of(queries):  # type: ignore[no-untyped-call]  # of several GPUs
            return triton_attention.attention_part(
                queries, keys, values, scaling=scaling, first_query=first_query,
                first_key=first_key, causal=causal, window=window, softcap=softcap,
            )  # fmt: skip
    if queries.device.type != "cpu" or window is not None or softcap is not None:
        return reference_part(
            queries, keys, values, scaling=scaling, first_query=first_query, first_key=first_key,
            causal=causal, window=window, softcap=softcap,
        )  # fmt: skip
    if causal:
        assert first_query == first_key and num_queries == num_keys
        group = num_heads // num_kv_heads
        repeated = [x.repeat_interleave(group, dim=0).unsqueeze(0) for x in (keys, values)]
        out, lse = CPU_FLASH(queries.unsqueeze(0), *repeated, 0.0, True, scale=scaling)
        return out[0], lse[0]
    # Grouped queries become rows: the keys of a group are read once and never repeated.
    rows = queries.reshape(1, num_kv_heads, -1, head_dim)
    count = rows.shape[2]
    # Products of less than four rows take longer than those of four: a row of zeros is cheap.
    if missing := -count % LEAST_ROWS if count < LEAST_ROWS else 0:
        rows = torch.nn.functional.pad(rows, (0, 0, 0, missing))
    out, lse = CPU_FLASH(rows, keys.unsqueeze(0), values.unsqueeze(0), 0.0, False, scale=scaling)
    if missing:
        out, lse = out[:, :, :count], lse[..., :count]
    return out.reshape(num_heads, num_queries, head_dim), lse.reshape(num_heads, num_queries)


def page_lse(
    queries: Tensor,
    keys: Tensor,
    *,
    scaling: float,
    page_tokens: int,
    softcap: float | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Give the log-sum-exp of the scores within each page, for attention mass per page.

    Args:
        queries: `[num_heads, T, head_dim]`, rotated.
        keys: `[num_kv_heads, N, head_dim]`, rotated, starting at a page border.
        scaling: Factor on the scores.
        page_tokens: Tokens per page.
        softcap: `softcap * tanh(score / softcap)` if given.
        bias: Added to every product of a query before scaling, `[num_heads, T, 1]`.

    Returns:
        `[num_heads, T, ceil(N / page_tokens)]` fp32.
    """
    num_heads, num_queries, head_dim = queries.shape
    num_kv_heads, num_keys, _ = keys.shape
    if by_triton(keys.device) and head_dim <= MOST_DIM and queries.dtype == keys.dtype:
        from kernels import triton_probe

        with torch.cuda.device_of(keys):  # type: ignore[no-untyped-call]
            return triton_probe.page_lse(
                queries, keys, scaling=scaling, page_tokens=page_tokens, softcap=softcap, bias=bias
            )
    rows = queries.reshape(num_kv_heads, -1, head_dim)
    if keys.device.type == "cpu" and not multiplies_bf16():
        rows, keys = rows.float(), keys.float()
    scores = torch.matmul(rows, keys.transpose(-1, -2)).float().mul_(scaling)
    added = None if bias is None else bias.reshape(num_kv_heads, -1, 1).float() * scaling
    if softcap is not None:
        scores = scores if added is None else scores.add_(added)
        scores, added = scores.div_(softcap).tanh_().mul_(softcap), None
    missing = -num_keys % page_tokens
    if missing:
        scores = torch.nn.functional.pad(scores, (0, missing), value=float("-inf"))
    paged = scores.view(num_kv_heads, rows.shape[1], -1, page_tokens)
    # In place: `torch.logsumexp` makes further tensors as large as this one.
    highest = paged.amax(dim=-1, keepdim=True)
    sums = paged.sub_(highest).exp_().sum(dim=-1)
    result = sums.log_().add_(highest[..., 0])
    result = result if added is None else result.add_(added)  # the same for every key
    return result.reshape(num_heads, num_queries, -1)
