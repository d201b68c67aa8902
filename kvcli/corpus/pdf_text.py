"""What PDF libraries do to text, undone: line ends, hyphens, ligatures; and how much to trust it.

Owns the repair of extracted text and the score of how much it looks like language. Knows no PDF.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from unicodedata import normalize

HYPHEN = "\ufffe"
"""PDFium's mark for a hyphen at a line's end; the line break after it is already gone."""

_LIGATURES = {
    "\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl",
    "\ufb05": "st", "\ufb06": "st",
}  # fmt: skip
_LIGATURE = re.compile("[\ufb00-\ufb06]")
_DIAERESIS = re.compile("\u00a8([aeiouyAEIOUY])")
_WORD = re.compile(r"[^\W\d_]+")
_COMPOUND = re.compile(r"[^\W\d_]+-[^\W\d_]+")
# Scripts without spaces have one-letter words and long ones by nature; they begin at U+2E80.
_ONE_LETTER = re.compile(r"(?<!\S)[^\W\d_\u2e80-\U0010ffff](?!\S)")
_LONG_WORD = re.compile(r"(?<!\S)[^\s/.\u2e80-\U0010ffff]{26,}(?!\S)")
_BROKEN = re.compile(rf"([^\W_]*){HYPHEN}(?:\n)?([^\W_]*)")
_BAD = re.compile("[\ue000-\uf8ff\U000f0000-\U0010fffd\ufffd\0]")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f]")


def tidy(text: str) -> str:
    """Line feeds only, one mark for broken words, ligatures spelt out, no control characters.

    A diaeresis drawn before its vowel, as TeX does, is put on it. Other accents stay as they are,
    for they also stand for apostrophes and powers.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x02", HYPHEN)
    text = _CONTROLS.sub("", text)
    text = _LIGATURE.sub(lambda found: _LIGATURES[found[0]], text)
    text = _DIAERESIS.sub(lambda found: normalize("NFC", found[1] + "\u0308"), text)
    # Fonts with a broken encoding yield lone surrogates, which no file could hold.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True, slots=True)
class TextScore:
    """How far extracted text is from language: shares between 0 (good) and 1."""

    one_char_words: float
    long_words: float
    bad_chars: float
    """Private-use, replacement and NUL characters."""
    num_words: int

    @property
    def badness(self) -> float:
        """One number to compare two readings of a page by."""
        return self.one_char_words + 2 * self.long_words + 5 * self.bad_chars

    @property
    def is_suspicious(self) -> bool:
        """Whether a second opinion is worth its time."""
        if self.bad_chars > 0.02:
            return True
        return self.num_words >= 20 and (self.one_char_words > 0.5 or self.long_words > 0.15)


def score(text: str) -> TextScore:
    """Judge a page as a library gave it. Numbers and dots are never odd, so tables pass."""
    num_words = len(text.split())
    count = max(1, num_words)
    return TextScore(
        one_char_words=len(_ONE_LETTER.findall(text)) / count,
        long_words=len(_LONG_WORD.findall(text)) / count,
        bad_chars=count_bad_chars(text) / max(1, len(text)),
        num_words=num_words,
    )


def count_bad_chars(text: str) -> int:
    """Private-use, replacement and NUL characters: letters that the file did not say."""
    return len(_BAD.findall(text))


class Hyphens:
    """Joins words broken at a line's end, or keeps their hyphen, by the document's own evidence."""

    def __init__(self, pages: Collection[str]) -> None:
        self._words: set[str] = set()
        self._compounds: set[str] = set()
        for page in pages if any(HYPHEN in page for page in pages) else ():
            page = _BROKEN.sub(" ", page).casefold()
            self._words.update(_WORD.findall(page))
            self._compounds.update(_COMPOUND.findall(page))

    def resolve(self, text: str) -> str:
        """The text with every mark resolved."""
        return _BROKEN.sub(self._decide, text) if HYPHEN in text else text

    def _decide(self, found: re.Match[str]) -> str:
        left, right = found[1], found[2]
        whole = (left + right).casefold()
        if not (left.isalpha() and right.isalpha()) or (left[-1].islower() and right[0].isupper()):
            return f"{left}-{right}"
        if whole in self._words:
            return left + right
        if f"{left}-{right}".casefold() in self._compounds:
            return f"{left}-{right}"
        both_known = left.casefold() in self._words and right.casefold() in self._words
        return f"{left}-{right}" if both_known else left + right
