"""How much memory each part of the engine may use, decided before anything is allocated.

Owns the split of the RAM and device budgets over tiers and buffers. Knows sizes and counts only.
Every byte the engine will hold is in a `MemoryPlan`: arenas, stream buffers and the write queue.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import OverBudget
from engine.types import KVGeometry

FORK_TOKENS = 64
"""What a fork of an unsealed sequence may add, in the smallest host tier; enough for a short
question."""

LEAST_WRITE_BUFFERS = 4

LEAST_STREAM_DEPTH = 2
"""One part in use, one on its way."""

WRITE_QUEUE_MAX = 64 << 20
"""Bytes; deeper queues only delay the back-pressure that a slow disk must exert anyway."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What may be allocated."""

    device_pages: int
    """Slots in the device tier."""
    host_pages: int
    """Slots in the host tier; at least `least_host_pages`."""
    write_buffers: int
    """Slice-sized buffers between compute and the writer."""
    stream_depth: int
    """Parts read ahead of the compute; at most what was asked for."""
    needs_disk: bool
    """Whether the pages at rest do not fit the host tier."""
    streams: bool
    """Whether no tier in memory holds every page, so that some are read from disk again."""
    fixed_bytes: int
    """Bytes of the write queue, the stream buffers and the buffers of coded pages."""
    sketch_bytes: int = 0
    """Bytes that the key sketch may take; 0: there is none."""
    sketch_refusal: str | None = None
    """Why there is no room for one although it is wanted."""
    mapped_bytes: int = 0
    """Bytes of the session file that may be mapped; 0: pages are moved explicitly."""


def least_host_pages(geometry: KVGeometry, fork_tokens: int = FORK_TOKENS) -> int:
    """Slots of the smallest host tier: a growing segment, and a fork's copy of its last page with
    the pages of `fork_tokens` more."""
    return geometry.pages_per_segment + 1 + geometry.num_pages(fork_tokens)


def slice_buffer_bytes(geometry: KVGeometry) -> int:
    """Bytes of one slice buffer, whole disk blocks."""
    return -(-geometry.slice_bytes // 4096) * 4096


def plan_memory(
    geometry: KVGeometry,
    *,
    num_tokens: int,
    ram_bytes: int,
    device_bytes: int | None,
    shared_memory: bool,
    has_file: bool,
    part_tokens: int,
    stream_depth: int,
    fork_tokens: int = FORK_TOKENS,
    sketch_bytes: int = 0,
    is_mapped: bool = False,
    coding_bytes: int = 0,
) -> MemoryPlan:
    """Split the budgets, or refuse before anything is computed.

    Args:
        geometry: Shape of the KV.
        num_tokens: Tokens the sequence may grow to.
        ram_bytes: Budget for everything that lies in RAM, bytes.
        device_bytes: Cap of the device tier, bytes; None means as much as there is.
        shared_memory: Whether the device tier lies in RAM too (CPU).
        has_file: Whether a session file takes sealed segments.
        part_tokens: Tokens per attention part, the size of a stream buffer.
        stream_depth: Parts read ahead. More than `LEAST_STREAM_DEPTH` are granted only out of a
            sixteenth of the budget, and only where the least fits beside them.
        fork_tokens: Tokens that sequences beside the main one may hold.
        sketch_bytes: What a key sketch would take; granted if the least still fits beside it.
        is_mapped: Whether pages at rest are the mapped file: the host tier holds only what has no
            place in the file yet, and what it would take may be mapped instead.
        coding_bytes: What coding takes while pages move.

    Raises:
        OverBudget: Less than one segment and its buffers fit.
    """
    host_least = least_host_pages(geometry, fork_tokens)
    need = (geometry.num_segments(num_tokens) - 1) * geometry.pages_per_segment + host_least
    part_bytes = part_tokens * geometry.token_bytes // geometry.num_layers
    least_depth = min(stream_depth, LEAST_STREAM_DEPTH)
    stream_bytes = (least_depth + 1) * part_bytes
    buffer_bytes = slice_buffer_bytes(geometry)
    least = stream_bytes + LEAST_WRITE_BUFFERS * buffer_bytes + coding_bytes
    least += (host_least + shared_memory) * geometry.page_bytes
    if ram_bytes < least:
        raise OverBudget(
            f"the RAM budget of {ram_bytes:,} bytes is below the {least:,} bytes that one segment "
            f"of {geometry.segment_tokens} tokens and its buffers take",
            f"Give --ram at least {-(-least // (1 << 20))}MiB.",
        )
    refusal = None
    if sketch_bytes > ram_bytes - least:
        refusal = (
            f"the key sketch would take {sketch_bytes:,} bytes of the RAM budget, which beside "
            f"what is needed most has {ram_bytes - least:,} left: questions read every key instead"
        )
        sketch_bytes = 0
    ram_bytes -= sketch_bytes
    share, spare = ram_bytes // 16, ram_bytes - least
    deeper = min(stream_depth - least_depth, min(share, spare) // part_bytes)
    depth = least_depth + deeper
    stream_bytes += deeper * part_bytes
    more_bytes = min(WRITE_QUEUE_MAX, share, spare - deeper * part_bytes)
    write_buffers = LEAST_WRITE_BUFFERS + more_bytes // buffer_bytes
    fixed = stream_bytes + write_buffers * buffer_bytes + coding_bytes
    room = (ram_bytes - fixed) // geometry.page_bytes
    device_pages = need if device_bytes is None else min(need, device_bytes // geometry.page_bytes)
    if device_bytes is not None and device_pages < 1:
        raise OverBudget(
            f"the device budget of {device_bytes:,} bytes is below one page of "
            f"{geometry.page_bytes:,} bytes",
            f"Give --vram at least {-(-geometry.page_bytes // (1 << 20))}MiB.",
        )
    if shared_memory:
        device_pages = min(device_pages, room - host_least)
        room -= device_pages
    host_pages = min(need, room)
    if is_mapped or (has_file and device_pages >= need):
        host_pages = host_least
    needs_disk = not has_file and host_pages < need
    # In place of the stream buffers, and of what the host tier would have taken.
    mapped = depth * part_bytes + (room - host_pages) * geometry.page_bytes
    return MemoryPlan(
        device_pages, host_pages, write_buffers, depth, needs_disk,
        max(device_pages, host_pages) < need, fixed, sketch_bytes, refusal,
        mapped if is_mapped else 0,
    )  # fmt: skip
