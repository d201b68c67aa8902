"""Plain torch: attention to keys that a table finds, the definition for the faster kernels.

Owns what a page table means. The mathematics is `reference.py`'s; which pages are in the table is
the caller's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.reference import attention_part


def attention_pages(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    *,
    num_keys: int,
    page_tokens: int,
    scaling: float,
    first_query: int,
    first_key: int,
    window: int | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend to one part of the keys, page by page from wherever they lie (arXiv 2309.06180).

    Key j of the part is token `j % page_tokens` of slot `table[j // page_tokens]` and stands at
    `first_key + j`; query i stands at `first_query + i`. No key is after a query.

    Args:
        queries: `[num_heads, T, head_dim]`, rotated.
        keys: `[num_kv_heads, slots * page_tokens, head_dim]`, rotated; any strides but dense along
            the last.
        values: Likewise.
        table: Slot of each page, int32 `[ceil(num_keys / page_tokens)]`.
        num_keys: Keys of the part; the last page may be partial.
        page_tokens: Tokens of a page.
        scaling: Factor on the scores.
        first_query: Position of the first query, tokens.
        first_key: Position of the first key, tokens.
        window: A key is seen if it is fewer than so many tokens before the query; None: always.
        softcap: `softcap * tanh(score / softcap)` if given.

    Returns:
        `out [num_heads, T, head_dim]` in the queries' dtype and `lse [num_heads, T]` fp32, as
        `kernels.reference.attention_part` gives them.
    """
    tokens = torch.arange(page_tokens, device=table.device)
    rows = (table[:, None].long() * page_tokens + tokens).flatten()[:num_keys]
    return attention_part(
        queries, keys[:, rows], values[:, rows], scaling=scaling, first_query=first_query,
        first_key=first_key, window=window, softcap=softcap,
    )  # fmt: skip
