"""What comes of asking: an answer and what it cost, or a question that does not fit any more.

Owns these shapes alone. Knows nothing of how answers come about.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.errors import OverBudget
from kvcli.lookup import Lookup
from kvcli.results import Citation


class Ending(Enum):
    """Why an answer is over."""

    DONE = "done"
    """The model ended it."""
    CUT = "cut"
    """It reached the longest length allowed."""
    STOPPED = "stopped"
    """The user stopped it."""


class WindowOutgrown(OverBudget):
    """A question does not fit the window behind what was read and said before.

    Args:
        message: As `KVError`.
        advice: As `KVError`.
        question: The one that does not fit.
    """

    def __init__(self, message: str, advice: str, question: str) -> None:
        super().__init__(message, advice)
        self.question = question


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer and what it cost."""

    text: str
    citations: tuple[Citation, ...]
    ending: Ending
    prompt_tokens: int
    """Everything in front of the answer."""
    new_tokens: int
    first_token_s: float
    """From the question to its first token."""
    decode_s: float
    """From the first token to the last."""
    lookup: Lookup | None = None
    """How pages were found; None in exact mode."""
    reading: str = ""
    """How focus pages were read; empty in exact mode."""
    is_recalled: bool = False
    """Whether earlier turns answer to the question."""

    def mode_of(self, mode: str) -> str:
        """The mode of a run with the way in which this answer's pages were read."""
        return f"{mode}-{self.reading}" if self.reading else mode

    @property
    def is_found(self) -> bool:
        """Whether anything that was read or said answers to the question."""
        return self.lookup is None or self.lookup.is_found or self.is_recalled
