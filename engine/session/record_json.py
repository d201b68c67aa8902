"""The JSON of a commit record: everything that is neither an id nor a page.

Owns the keys that are written; who reads them back knows their own (FORMAT.md, section 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine.session.attachments import Attachment
from engine.session.format import header_json
from engine.session.record import Rewind
from engine.session.state import SessionState


def record_json(
    state: SessionState,
    spans: Sequence[Mapping[str, Any]],
    notes: Mapping[str, Any] | None,
    forks: Sequence[Mapping[str, str]],
    rewind: Rewind | None,
    attached: Sequence[Attachment],
) -> dict[str, Any]:
    """Make the object of the commit that follows on a state; what adds nothing has no key."""
    extra: dict[str, Any] = {}
    if not state.generation:
        extra |= header_json(state.identity, state.geometry, state.coded)
        if state.base is not None:
            extra["base"] = state.base.ref.to_json()
    if rewind is not None:
        extra["rewind"] = asdict(rewind)
    if len(spans):
        extra["spans"] = [dict(span) for span in spans]
    if notes is not None:
        extra["notes"] = dict(notes)
    if forks:
        extra["forks"] = [dict(fork) for fork in forks]
    if attached:
        extra["attachments"] = [attachment.to_json() for attachment in attached]
    return extra
