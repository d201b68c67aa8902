"""How documents are attended to, and what follows from it and from the work at hand for a run.

Owns the choice between exact and focus: exact while everything fits the model's window, focus
beyond, and never silently. Knows neither tensors nor files.
"""

from __future__ import annotations

from enum import Enum

from engine.memory.budget import FORK_TOKENS
from engine.types import KVGeometry
from kvcli.conversation import Conversation
from kvcli.documents import Room, require_window
from kvcli.focus import FOCUS_TOKENS, FocusConversation
from kvcli.ingest_settings import LOCAL_WINDOW
from kvcli.options import RunOptions
from kvcli.prompts import Prompt

SIDE_TOKENS = 2 * FOCUS_TOKENS
"""Tokens of the pages read again and of the question, with what stands around them."""

DEVICE_TOKENS = 8192
"""Tokens of the device tier in focus mode: sinks, local window, a step, and what is read again."""


class Work(Enum):
    """What a run does with documents."""

    QUESTIONS = "questions"
    """Answers from what they look for."""
    SUMMARY = "summary"
    """One request over all of them, or by sections beyond the window."""
    SECTIONS = "sections"
    """Reads every section."""


class Mode(Enum):
    """How earlier tokens are attended to. The value is what a session file remembers."""

    EXACT = "exact"
    FOCUS = "focus"

    @property
    def local_window(self) -> int | None:
        """Tokens before a step that documents are read with; None for all."""
        return LOCAL_WINDOW if self is Mode.FOCUS else None

    @property
    def conversation(self) -> type[Conversation]:
        """What asks and answers."""
        return FocusConversation if self is Mode.FOCUS else Conversation

    def fork_tokens(self, answer_tokens: int, work: Work) -> int:
        """Tokens that sequences beside the documents may hold."""
        reads_beside = self is Mode.FOCUS or work is Work.SECTIONS
        return SIDE_TOKENS + answer_tokens if reads_beside else FORK_TOKENS

    def device_bytes(self, geometry: KVGeometry, asked: int | None) -> int | None:
        """Cap of the device tier: beyond what a step sees, focus has no use for it."""
        if self is Mode.EXACT:
            return asked
        enough = geometry.num_pages(DEVICE_TOKENS) * geometry.page_bytes
        return enough if asked is None else min(asked, enough)

    def prefetch(self, options: RunOptions) -> tuple[str, ...]:
        """What is brought in before it is asked for: pages to be read again need no KV at all."""
        if options.prefetch != "auto":
            return () if options.prefetch == "off" else (options.prefetch,)
        if self is Mode.EXACT:
            return ("sequential",)
        return ("runner-up", "temporal") if options.attention == "stored" else ()

    def why(self, num_tokens: int, window: int, work: Work, *, is_outgrown: bool = False) -> str:
        """The mode and its reason, for people."""
        if self is Mode.EXACT:
            return f"exact attention: they fit the window of {window:,}"
        way = "each question is answered from the pages it looks for"
        if is_outgrown:
            return f"focus: the chat has outgrown the window of {window:,}, so {way}"
        if work is not Work.QUESTIONS:
            way = "they are read section by section"
        if num_tokens > window:
            return f"focus: they are more than the window of {window:,}, so {way}"
        return f"focus, as asked: {way}"


def choose_mode(options: RunOptions, prompt: Prompt, room: Room, window: int) -> Mode:
    """Choose by what was asked for and by what fits.

    Args:
        options: `--attention`.
        prompt: The documents.
        room: What must fit behind them.
        window: The model's, tokens.

    Raises:
        OverBudget: Exact attention is asked for, and the documents do not fit.
    """
    fits = len(prompt.token_ids) + room.total <= window
    if options.wants_focus or (options.attention == "auto" and not fits):
        return Mode.FOCUS
    require_window(prompt, room, window)
    return Mode.EXACT
