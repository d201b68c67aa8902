"""A session as its commits add up to it.

Owns the folding of records, which is the same when a file is opened and when a commit has just
succeeded. Knows no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import NotASession
from engine.session.attachments import Attachment, attachments_of
from engine.session.format import (
    DATA_START,
    FORMAT_VERSION,
    LINKED_VERSION,
    PLAIN_VERSION,
    Identity,
    RecordRef,
    coded_from_json,
    geometry_from_json,
    identity_from_json,
)
from engine.session.lineage import Base
from engine.session.record import Record, Rewind, Tail, no_u32
from engine.session.segments import SegmentTable
from engine.types import CodedSizes, KVGeometry


def _joined(pieces: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


@dataclass(slots=True, eq=False)
class SessionState:
    """Everything a session holds except the bytes of its pages."""

    uuid: bytes
    identity: Identity
    geometry: KVGeometry
    coded: CodedSizes | None = None
    """Bytes of a coded page slice; None: pages are raw."""
    segments: SegmentTable = field(init=False)
    generation: int = 0
    head: RecordRef | None = None
    """The newest record."""
    token_ids: NDArray[np.uint32] = field(default_factory=no_u32)
    kv_tokens: int = 0
    committed_pages: int = 0
    """Full pages that belong to the committed sequence."""
    tail: Tail | None = None
    tail_slots: tuple[int, int] = (0, 0)
    spans: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    attachments: list[Attachment] = field(default_factory=list)
    """Of this file alone; see `all_attachments`."""
    base: Base | None = None
    """Has the first segments of a fork."""
    was_rewound: bool = False
    """Whether a commit went back to earlier tokens, which readers of version 1 do not know."""
    forks: list[dict[str, Any]] = field(default_factory=list)
    """Where files were made that have their first segments from this one."""

    def __post_init__(self) -> None:
        self.segments = SegmentTable(self.geometry, self.coded)
        if self.base is not None:
            self._inherit(self.base)
        self.token_ids.setflags(write=False)

    def _inherit(self, base: Base) -> None:
        """Begin with all that the base says, and the KV of the segments that are shared."""
        there = base.state
        self.token_ids, self.notes = there.token_ids, there.notes
        self.spans = list(there.spans)
        self.kv_tokens = base.ref.num_segments * self.geometry.segment_tokens
        self.committed_pages = self.kv_tokens // self.geometry.page_tokens

    @property
    def format_version(self) -> int:
        """The version that a reader must know."""
        if self.coded is not None:
            return FORMAT_VERSION
        return LINKED_VERSION if self.base is not None or self.was_rewound else PLAIN_VERSION

    def all_attachments(self) -> list[Attachment]:
        """Those of a fork's base first, for later ones take the place of earlier ones."""
        before = [] if self.base is None else self.base.state.all_attachments()
        return [*before, *self.attachments]

    @classmethod
    def from_records(
        cls, records: Sequence[tuple[Record, RecordRef]], base: Base | None = None
    ) -> SessionState:
        """Fold a whole chain, oldest record first.

        Args:
            records: Of one file.
            base: Of a fork.

        Raises:
            NotASession: The records contradict each other or the base.
        """
        first = records[0][0]
        identity = identity_from_json(first.extra.get("identity"))
        geometry = geometry_from_json(first.extra.get("geometry"))
        coded = coded_from_json(first.extra.get("coded"), identity)
        if base is not None:
            shared = base.ref.num_segments * geometry.segment_tokens
            there = base.state
            is_same = (there.geometry, there.identity.codec, there.coded) == (
                geometry, identity.codec, coded,
            )  # fmt: skip
            if not is_same or shared > there.kv_tokens:
                raise NotASession("the base has not what the header record says")
        state = cls(first.uuid, identity, geometry, coded, base=base)
        state.apply(records)
        return state

    def apply(self, records: Sequence[tuple[Record, RecordRef]]) -> None:
        """Add commits, oldest first.

        Raises:
            NotASession: The records contradict each other or what is here.
        """
        # Commits of a long document add pages and no tokens: copied each time, a million of them
        # leave holes of megabytes in the C heap.
        token_ids = [self.token_ids]
        spans, attachments = list(self.spans), list(self.attachments)
        forks = list(self.forks)
        for record, ref in records:
            if "rewind" in record.extra:
                kept = Rewind.from_json(record.extra["rewind"])
                token_ids = [_joined(token_ids)[: kept.token_ids]]
                del spans[kept.spans :]
                self._drop_kv(kept.kv_tokens)
            if len(record.token_ids):
                token_ids.append(record.token_ids)
            self.committed_pages = self.segments.adopt(
                record.runs, record.checksums, self.committed_pages, ref.offset
            )
            spans += record.extra.get("spans", [])
            attachments += attachments_of(record.extra, ref.offset)
            self.notes = record.extra.get("notes", self.notes)
            forks += record.extra.get("forks", [])
        record, self.head = records[-1]
        self.generation = record.generation
        self.kv_tokens = record.kv_tokens
        self.tail, self.tail_slots = record.tail, record.tail_slots
        self.token_ids, self.spans, self.attachments = _joined(token_ids), spans, attachments
        self.token_ids.setflags(write=False)
        self.forks = forks
        self._check()

    def _drop_kv(self, kv_tokens: int) -> None:
        """Forget the segments behind some tokens; a fork may so need less of its base.

        Raises:
            NotASession: They are no whole segments, or not all of them are there.
        """
        size = self.geometry.segment_tokens
        pages = kv_tokens // self.geometry.page_tokens
        if kv_tokens % size or pages > self.committed_pages:
            raise NotASession("a record goes back to where no segment ends")
        self.segments.drop_from(kv_tokens // size)
        if self.base is not None and self.base.ref.num_segments * size > kv_tokens:
            self.base = replace(
                self.base, ref=replace(self.base.ref, num_segments=kv_tokens // size)
            )
        self.committed_pages = pages
        self.was_rewound = True

    def drop_tail(self) -> int:
        """Forget the tail page; its tokens stay and their KV can be computed again.

        Returns:
            How many tokens lost their KV.
        """
        lost = self.kv_tokens % self.geometry.page_tokens
        self.kv_tokens -= lost
        self.tail = None
        return lost

    def _check(self) -> None:
        full_pages, tail_tokens = divmod(self.kv_tokens, self.geometry.page_tokens)
        stored_tail = 0 if self.tail is None else self.tail.tokens
        sound = (
            full_pages == self.committed_pages
            and tail_tokens == stored_tail
            and self.kv_tokens <= len(self.token_ids)
            and all(slot == 0 or slot >= DATA_START for slot in self.tail_slots)
        )
        if self.tail is not None:
            sound = (
                sound
                and len(self.tail.checksums) == 2 * self.geometry.num_layers
                and self.tail_slots[self.tail.slot] != 0
            )
        if not sound:
            raise NotASession("the records do not add up")
