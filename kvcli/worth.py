"""What a line that a small model wrote is worth: whether it says anything, and from what it read.

Owns the three ways in which such a line is worth nothing: it says that there is no answer, it only
repeats the question, or its names and numbers stand nowhere in what was read. Knows text alone.
"""

from __future__ import annotations

import re

_NONE = re.compile(
    r"^\W*none\b"
    r"|\b(does|did|do)(n't| not) (\w+ )?(answer|provide|mention|contain|say|specify|state)"
    r"|\bnot (mentioned|provided|specified|stated|answered)\b|\bno (information|mention|answer)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+(?:[.,'’-]\w+)*")

CONTENT_LETTERS = 4
"""Letters from which on a word is taken to carry meaning; names and numbers always do."""


def says_none(line: str) -> bool:
    """Whether a line only says that there is no answer."""
    return not line.strip() or _NONE.search(line) is not None


def is_worth_something(line: str, question: str, read: str) -> bool:
    """Whether a line answers a question from what was read.

    Args:
        line: What the model wrote.
        question: What it was asked.
        read: What it was given to read.
    """
    if says_none(line):
        return False
    words = _WORD.findall(line)
    asked = {word.lower() for word in _WORD.findall(question)}
    names = {word for word in words[1:] if word[0].isupper()}
    names |= {word for word in words if any(char.isdigit() for char in word)}
    names = {word for word in names if word.lower() not in asked}
    news = {word for word in words if len(word) >= CONTENT_LETTERS and word.lower() not in asked}
    if not names and not news and len(words) > 1:
        return False
    known = {word.lower() for word in _WORD.findall(read)}
    return not names or any(word.lower() in known for word in names)
