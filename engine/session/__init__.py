"""The session file: one saved sequence with its pages, token ids, source map and identity.

FORMAT.md holds the bytes, the commit order and what happens after a crash. Imports neither torch
nor the tiers.
"""

from engine.session.attachments import Attachment
from engine.session.copying import Recoding, compact_session, copy_session, restart_session
from engine.session.forking import fork_session
from engine.session.format import Identity, aligned_buffer
from engine.session.layout import extents_bytes, pages_bytes, room_bytes
from engine.session.page_map import PageMap, PageSlices
from engine.session.reader import SessionReader
from engine.session.removal import remove_session, require_unwritten
from engine.session.rewinding import drop_kv, num_same, replace_contents
from engine.session.summary import SessionSummary, describe
from engine.session.verification import Fault, Verified, verify
from engine.session.writer import SessionFile

__all__ = [
    "Attachment",
    "Fault",
    "Identity",
    "PageMap",
    "PageSlices",
    "Recoding",
    "SessionFile",
    "SessionReader",
    "SessionSummary",
    "Verified",
    "aligned_buffer",
    "compact_session",
    "copy_session",
    "describe",
    "drop_kv",
    "extents_bytes",
    "fork_session",
    "num_same",
    "pages_bytes",
    "remove_session",
    "replace_contents",
    "require_unwritten",
    "restart_session",
    "room_bytes",
    "verify",
]
