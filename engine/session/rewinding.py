"""Other contents for a session: what they share with the old ones is kept.

Owns how much that is. Nothing is written over: the KV of tokens that are no more stays in the file,
for nobody, until it is compacted, and forks that have it from here go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.session.record import Rewind
from engine.session.writer import SessionFile


def replace_contents(
    file: SessionFile,
    token_ids: Sequence[int] | NDArray[np.integer[Any]],
    spans: Sequence[Mapping[str, Any]],
    notes: Mapping[str, Any],
    *,
    step_tokens: int,
    keeps_kv: bool = True,
) -> None:
    """Make a session hold another sequence, durably, with the KV that still counts.

    Args:
        file: Open for writing.
        token_ids: Of the new sequence.
        spans: Its source map, JSON objects.
        notes: JSON object.
        step_tokens: KV is kept in multiples of so many tokens, whole segments: what a token attends
            to depends on where its step begins.
        keeps_kv: Whether KV of the same tokens still counts.

    Raises:
        StorageError: The disk is full or failed; the last commit stands.
    """
    assert step_tokens % file.geometry.segment_tokens == 0
    ids = np.asarray(token_ids, dtype=np.uint32)
    same = num_same(file.token_ids, ids)
    pairs = zip(file.spans, spans, strict=False)
    same_spans = sum(1 for _ in takewhile(lambda pair: pair[0] == dict(pair[1]), pairs))
    keep = min(same, file.kv_tokens) // step_tokens * step_tokens if keeps_kv else 0
    file.commit(
        kv_tokens=keep,
        token_ids=ids[same:],
        spans=spans[same_spans:],
        notes=notes,
        rewind=Rewind(same, same_spans, keep),
    )


def drop_kv(file: SessionFile, kv_tokens: int) -> None:
    """Have the KV behind some tokens, whole segments, computed again; all else stays.

    Raises:
        StorageError: The disk is full or failed; the last commit stands.
    """
    kept = Rewind(len(file.token_ids), len(file.spans), kv_tokens)
    file.commit(kv_tokens=kv_tokens, rewind=kept)


def num_same(old: NDArray[np.uint32], new: NDArray[np.uint32]) -> int:
    """How many leading ids two sequences share."""
    length = min(len(old), len(new))
    differing = np.flatnonzero(old[:length] != new[:length])
    return int(differing[0]) if len(differing) else length
