"""Plain torch: the definition that every faster kernel is tested against.

Owns the mathematics of attention over one part of a sequence and of merging parts. Knows nothing of
pages, tiers or models. All accumulation is in fp32.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROWS = 128
"""Query rows scored at once, to bound the fp32 scores (128 rows x 2,048 keys: 1 MiB a head)."""


def attention_part(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scaling: float,
    first_query: int = 0,
    first_key: int = 0,
    causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend to one part of the keys and return what `merge` needs to join parts.

    Query i stands at position `first_query + i`, key j at `first_key + j`. A key is seen if it is
    not after the query (`causal`) and fewer than `window` positions before it.

    Args:
        queries: `[num_heads, T, head_dim]`, rotated.
        keys: `[num_kv_heads, N, head_dim]`, rotated; `num_heads % num_kv_heads == 0`.
        values: `[num_kv_heads, N, head_dim]`.
        scaling: Factor on the scores.
        first_query: Position of the first query, tokens.
        first_key: Position of the first key, tokens.
        causal: Hide keys after the query.
        window: Sliding window, tokens, or None.
        softcap: `softcap * tanh(score / softcap)` if given (Gemma 2, arXiv 2408.00118).

    Returns:
        `out [num_heads, T, head_dim]` in the queries' dtype and `lse [num_heads, T]` fp32, the
        log-sum-exp of the visible scores; rows that see nothing give 0 and -inf.
    """
    num_heads, num_queries, head_dim = queries.shape
    num_kv_heads, num_keys, _ = keys.shape
    group = num_heads // num_kv_heads
    grouped = queries.view(num_kv_heads, group, num_queries, head_dim)
    key_rows = keys.float().transpose(-1, -2).unsqueeze(1)
    value_rows = values.float().unsqueeze(1)
    key_positions = torch.arange(first_key, first_key + num_keys, device=keys.device)
    outs: list[Tensor] = []
    lses: list[Tensor] = []
    for start in range(0, num_queries, ROWS):
        rows = grouped[:, :, start : start + ROWS].float()
        scores = torch.matmul(rows, key_rows) * scaling
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        positions = first_query + start + torch.arange(rows.shape[2], device=keys.device)
        distance = positions[:, None] - key_positions[None, :]
        if causal:
            scores = scores.masked_fill(distance < 0, float("-inf"))
        if window is not None:
            scores = scores.masked_fill(distance >= window, float("-inf"))
        lse = torch.logsumexp(scores, dim=-1)
        weights = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0.0).unsqueeze(-1))
        outs.append(torch.matmul(weights, value_rows))
        lses.append(lse)
    out = torch.cat(outs, dim=2).to(queries.dtype)
    return out.view(num_heads, num_queries, head_dim), torch.cat(lses, dim=2).view(num_heads, -1)


def merge(out: Tensor, lse: Tensor, part_out: Tensor, part_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Join the attention of two disjoint sets of keys (online softmax, arXiv 1805.02867).

    Args:
        out: `[num_heads, T, head_dim]` fp32, updated in place.
        lse: `[num_heads, T]` fp32.
        part_out: `[num_heads, T, head_dim]`, any dtype.
        part_lse: `[num_heads, T]` fp32.

    Returns:
        The joined `out` (the same tensor) and the joined `lse`.
    """
    # The part's share of the joined sum; where neither has seen anything there is none to take.
    share = torch.sigmoid(part_lse - lse).nan_to_num_(0.0)
    out.lerp_(part_out.float(), share.unsqueeze(-1))
    return out, torch.logaddexp(lse, part_lse)
