"""The nouns of the engine: ids, tiers, and the shape of a model's KV.

Owns the words that every other room of the engine uses. Knows no tensors, no files and no policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NewType

PageId = NewType("PageId", int)
"""A logical page: `page_tokens` consecutive tokens, K and V of every layer."""

SlotId = NewType("SlotId", int)
"""A place for one page inside one tier's arena."""

SegmentId = NewType("SegmentId", int)
"""The index of a segment in its sequence: segment i holds tokens [i*S, (i+1)*S)."""


class Tier(Enum):
    """Where a page can lie, fastest first."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


class Part(IntEnum):
    """Which half of the KV: keys or values. Also the order of the halves inside a segment."""

    KEYS = 0
    VALUES = 1


@dataclass(frozen=True, slots=True)
class CodedSizes:
    """Bytes of a page slice in a codec that is not raw."""

    keys: int
    values: int

    def of(self, part: Part) -> int:
        """Bytes of one half."""
        return self.keys if part == Part.KEYS else self.values


@dataclass(frozen=True, slots=True)
class KVGeometry:
    """The shape of a model's KV and of the pages and segments it is cut into.

    At rest a page is an array `[num_layers, 2, num_kv_heads, page_tokens, head_dim]`; one
    `[num_kv_heads, page_tokens, head_dim]` block of it is a *page slice*, the smallest thing that
    is moved and checksummed. A segment is `[2, num_layers, pages_per_segment, <page slice>]`; one
    `[pages_per_segment, <page slice>]` block of it is a *slice*, the extent of a disk read.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: str
    """Element type at rest, as torch and safetensors name it: "bfloat16", "float16", "float32"."""
    page_tokens: int = 64
    segment_tokens: int = 512

    def __post_init__(self) -> None:
        assert self.segment_tokens % self.page_tokens == 0

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return {"bfloat16": 2, "float16": 2, "float32": 4}[self.dtype]

    @property
    def pages_per_segment(self) -> int:
        """Pages in a full segment."""
        return self.segment_tokens // self.page_tokens

    @property
    def page_slice_bytes(self) -> int:
        """Bytes of K or V of one page in one layer."""
        return self.num_kv_heads * self.page_tokens * self.head_dim * self.itemsize

    @property
    def slice_bytes(self) -> int:
        """Bytes of K or V of one segment in one layer."""
        return self.page_slice_bytes * self.pages_per_segment

    @property
    def page_bytes(self) -> int:
        """Bytes of one page: K and V of every layer."""
        return self.page_slice_bytes * 2 * self.num_layers

    @property
    def segment_bytes(self) -> int:
        """Bytes of one segment: K and V of every layer."""
        return self.page_bytes * self.pages_per_segment

    @property
    def token_bytes(self) -> int:
        """Bytes of KV per token."""
        return self.page_bytes // self.page_tokens

    def num_pages(self, num_tokens: int) -> int:
        """Pages that hold `num_tokens` tokens."""
        return -(-num_tokens // self.page_tokens)

    def num_segments(self, num_tokens: int) -> int:
        """Segments that hold `num_tokens` tokens."""
        return -(-num_tokens // self.segment_tokens)
