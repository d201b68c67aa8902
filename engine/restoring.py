"""Sequences of a session file brought back: as they were kept, or a step of them computed anew.

Owns what is computed, what is read later and what is read at once. The sequence, the file and the
parts of the engine are the caller's.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.assembly import Assembly
from engine.sequence import Sequence
from engine.session import SessionFile
from engine.stepper import Stepper
from engine.tiers.finite import require_finite_to_serve


def restore(
    sequence: Sequence,
    file: SessionFile,
    parts: Assembly,
    stepper: Stepper,
    recompute: int,
    on_step: Callable[[Sequence], None] | None,
) -> None:
    """Fill an empty sequence with what a file holds; no KV is read yet but the last page.

    Args:
        sequence: Empty.
        file: The session.
        parts: Where pages go.
        stepper: Computes.
        recompute: Leading tokens, whole segments, whose KV is computed again.
        on_step: Given the sequence after each such step; may raise to stop.

    Raises:
        PageCorrupt: The last page fails its checksum.
        OverBudget: The host tier has no slot for it.
    """
    assert recompute % file.geometry.segment_tokens == 0
    assert 0 <= recompute <= file.kv_tokens
    sequence.token_ids.extend(int(token) for token in file.token_ids)
    sequence.stored_tokens = file.kv_tokens
    while sequence.num_tokens < recompute:
        stepper.run(sequence, stepper.end(sequence, recompute), None)
        if on_step is not None:
            on_step(sequence)
    parts.stack.adopt(sequence, file.kv_tokens)
    if file.tail_tokens:
        slot = parts.stack.residency.need_host(sequence.table.pages[-1], ())
        page = parts.memory.host.bytes_of(slot)
        file.read_tail(page)
        require_finite_to_serve(page, file.geometry.dtype, f"{file.path}: tail page")


def step_again(
    sequence: Sequence,
    file: SessionFile,
    parts: Assembly,
    stepper: Stepper,
    first: int,
    end: int,
) -> list[memoryview]:
    """Compute one step of what a file holds; the KV before it is read from there, if it is raw.

    Args:
        sequence: Empty, and kept in memory.
        file: The session.
        parts: Where pages go.
        stepper: Computes.
        first: First token of the step.
        end: One past its last token.

    Returns:
        Copies of the step's pages at rest; the last may be partial.

    Raises:
        PageCorrupt: A page before them fails its checksum.
        OverBudget: The host tier has no room for them.
    """
    assert not sequence.on_disk
    sequence.token_ids.extend(int(token) for token in file.token_ids[:end])
    if file.coded is None:
        parts.stack.adopt(sequence, first)
    while sequence.num_tokens < first:
        # Coded KV is not what the step has seen: all before it is computed again, too.
        stepper.run(sequence, stepper.end(sequence, first), None)
    assert stepper.end(sequence, end) == end, "no step of a stored sequence"
    stepper.run(sequence, end, None)
    pages = sequence.table.pages[first // file.geometry.page_tokens :]
    slots = [parts.stack.residency.need_host(page, ()) for page in pages]
    return [memoryview(bytes(parts.memory.host.bytes_of(slot))) for slot in slots]
