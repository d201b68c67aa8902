"""Working sets: chosen pages of the documents in a sequence of their own, ready for a request.

Owns the two ways in which pages get there. Which pages, and what is asked about them, is the
caller's choice; the caller drops the sequence when it is done.
"""

from __future__ import annotations

from enum import Enum

from engine.sequence import Sequence
from engine.tiers.past import SINK_TOKENS
from kvcli.conversation import Conversation
from kvcli.focus_pages import FocusPages, reading_ids


class Reading(Enum):
    """How the chosen pages reach the model. The value is what `--attention` takes."""

    REREAD = "reread"
    """Their tokens are encoded afresh, exactly, when the sequence is computed."""
    STORED = "stored"
    """Their KV as it was stored when the documents were read; at once, and less exact."""


def lay_out(talk: Conversation, pages: FocusPages, reading: Reading) -> Sequence:
    """Put pages of a conversation's documents into a sequence beside the main one.

    Args:
        talk: Whose documents; for stored KV they must have been read.
        pages: Which, in the order wanted.
        reading: How.

    Raises:
        OverBudget: The host tier has no room for copies of stored pages.
    """
    size = talk.engine.model.geometry.page_tokens
    ids = talk.sequence.token_ids[: talk.document_tokens]
    if reading is Reading.REREAD:
        working_set = talk.engine.side_sequence()
        working_set.token_ids += reading_ids(talk.builder, ids, talk.source_map, pages, size)
        return working_set
    full = talk.document_tokens // size
    chosen = dict.fromkeys([*range(-(-SINK_TOKENS // size)), *pages.pages])
    working_set = talk.engine.gather(talk.sequence, [page for page in chosen if page < full])
    if full in chosen:  # a page that is not full holds turns as well, or nothing but its tokens
        working_set.token_ids += ids[full * size :]
    return working_set
