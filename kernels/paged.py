"""Attention to pages that a table finds: the implementation is chosen here, by device.

Owns the choice. It depends on the device and the number of queries, never on where pages lie: where
tables are read, every part of the past is read by one, so that a page gives the same bits in any
slot.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from kernels import reference_paged
from kernels.choice import by_triton

MOST_QUERIES = 16
"""More queries are worth a copy of scattered pages side by side, for a kernel made for many."""


def reads_tables(device: torch.device, num_queries: int) -> bool:
    """Whether attention of so many queries finds pages by a table.

    On a CPU a view of neighbouring slots is as good, and scattered pages are copied side by side:
    its attention takes contiguous keys. Tests put another function here.
    """
    return num_queries <= MOST_QUERIES and table_kernel(device) is not None


@cache
def table_kernel(device: torch.device) -> ModuleType | None:
    """Give the module of the kernel for a device, if it has one."""
    return import_module("kernels.triton_paged") if by_triton(device) else None


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
    """As `kernels.reference_paged.attention_pages`; a window that hides nothing is dropped."""
    if window is not None and first_query + queries.shape[1] - 1 - first_key < window:
        window = None
    module = table_kernel(queries.device) or reference_paged
    result: tuple[Tensor, Tensor] = module.attention_pages(
        queries, keys, values, table, num_keys=num_keys, page_tokens=page_tokens,
        scaling=scaling, first_query=first_query, first_key=first_key, window=window,
        softcap=softcap,
    )  # fmt: skip
    return result
