"""Word-level agreement of PDF reading with poppler's `pdftotext`, page by page, and its time.

Owns the comparison and the classes of difference: every word that one reader has and the other has
not is counted in exactly one. Line-end hyphens, ligatures, soft hyphens and white space are made
the same on both sides before, for they are no words.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

from kvcli.corpus.pdf import PdfText, read_pdf
from kvcli.corpus.pdf_process import PdfRequest, WorkerLimits, extract
from kvcli.corpus.pdf_text import HYPHEN, tidy
from kvcli.corpus.running_lines import clear_running_lines
from tests.bench.harness import report

_LINE_END_HYPHEN = re.compile(r"(?<=\w)[-\u2010\u00ad][ \t]*\n\s*(?=\w)")
_HYPHENS = str.maketrans("", "", "-\u2010\u00ad" + HYPHEN)
_LEADERS = re.compile(r"(?:\.\s*){3,}")


def words_of(text: str) -> list[str]:
    """Words as both readers would give them."""
    text = _LINE_END_HYPHEN.sub("", tidy(text))
    return _LEADERS.sub(" ", text.translate(_HYPHENS)).split()


@dataclass
class Agreement:
    """Counts over all pages of one document."""

    ours: int = 0
    theirs: int = 0
    same: int = 0
    """Words of both, whatever their order."""
    in_order: int = 0
    """Words of both in the same order."""
    pages: int = 0
    equal_pages: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, ours: list[str], theirs: list[str], left_out: int) -> None:
        """Take a page in; `left_out` words of ours were dropped after as running lines."""
        self.pages += 1
        self.equal_pages += ours == theirs
        self.ours += len(ours)
        self.theirs += len(theirs)
        self.same += (Counter(ours) & Counter(theirs)).total()
        self.classes["running line, kept on an earlier page"] += left_out
        lonely_ours, lonely_theirs = [], []
        if ours == theirs:
            self.in_order += len(ours)
            return
        for tag, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
            if tag == "equal":
                self.in_order += b - a
            elif kind := _kind(ours[a:b], theirs[c:d]):
                self._count(kind, ours[a:b], theirs[c:d])
            else:
                lonely_ours += ours[a:b]
                lonely_theirs += theirs[c:d]
        moved = Counter(lonely_ours) & Counter(lonely_theirs)
        self._count("order", list(moved.elements()), list(moved.elements()))
        for kind, mine, other in _leftover(
            Counter(lonely_ours) - moved, Counter(lonely_theirs) - moved
        ):
            self._count(kind, mine, other)

    def _count(self, kind: str, ours: Sequence[str], theirs: Sequence[str]) -> None:
        if ours or theirs:
            self.classes[kind] += max(len(ours), len(theirs))
            told = f"{' '.join(ours)[:60]} | {' '.join(theirs)[:60]}"
            self.examples.setdefault(kind, Counter())[told] += 1

    def row(self) -> dict[str, float]:
        """The shares: of words whatever their order, in the same order, and of pages."""
        words = self.ours + self.theirs
        return {
            "words": 2 * self.same / words,
            "in order": 2 * self.in_order / words,
            "equal pages": self.equal_pages / self.pages,
        }


def _kind(ours: list[str], theirs: list[str]) -> str | None:
    """The class of a difference that is one at a single place; None: words of one side only."""
    mine, other = "".join(ours), "".join(theirs)
    if mine == other:
        return "spaces"
    if not any(map(str.isalnum, mine + other)):
        return "marks"
    if not ours or not theirs:
        return None
    if unicodedata.normalize("NFKD", mine) == unicodedata.normalize("NFKD", other):
        return "glyphs"
    if _letters(mine) == _letters(other):
        return "marks"
    return None


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text)))


def _leftover(
    ours: Counter[str], theirs: Counter[str]
) -> Iterator[tuple[str, list[str], list[str]]]:
    """What is on one side only, all order set aside."""
    mine, other = list(ours.elements()), list(theirs.elements())
    if sorted(_letters("".join(mine))) == sorted(_letters("".join(other))):
        yield "order and spaces", mine, other
        return
    yield "only ours", mine, []
    yield "only theirs", [], other


def pdftotext(path: Path, first: int, last: int, *, layout: bool) -> list[str]:
    """The text of each page by poppler."""
    mode = ["-layout"] if layout else []
    pages = ["-f", str(first + 1), "-l", str(last)]
    done = subprocess.run(
        ["pdftotext", "-enc", "UTF-8", *mode, *pages, str(path), "-"],
        check=True, capture_output=True,
    )  # fmt: skip
    return done.stdout.decode("utf-8", "replace").split("\f")


def compare(path: Path, first: int, last: int | None, num_examples: int) -> None:
    """Compare one document and print figures and classes."""
    started = time.monotonic()
    found = read_pdf(str(path))
    read_s = time.monotonic() - started
    assert isinstance(found, PdfText), found
    num_pages = max(span.page or 0 for span in found.spans)
    last = min(last or num_pages, num_pages)
    extraction = extract(PdfRequest(str(path)), WorkerLimits())
    raw = {number: tidy(page.text).strip() for number, page in extraction.pages.items()}
    cleared = clear_running_lines(raw).texts
    rows, notes = {}, []
    for name, layout in (("pdftotext", False), ("pdftotext -layout", True)):
        agreement = Agreement()
        theirs = pdftotext(path, first, last, layout=layout)
        for number in range(first, last):
            ours = words_of(raw.get(number, ""))
            left_out = len(ours) - len(words_of(cleared.get(number, "")))
            agreement.add(ours, words_of(theirs[number - first]), left_out)
        rows[name] = agreement.row()
        notes.append((name, agreement))
    report(f"{path.name}, pages {first + 1}-{last}", rows, read_s=round(read_s, 1))
    for name, agreement in notes:
        print(f"{name}: {agreement.ours:,} words of ours, {agreement.theirs:,} of theirs")
        for kind, count in agreement.classes.most_common():
            print(f"  {count:8,}  {kind}")
            for told, times in agreement.examples.get(kind, Counter()).most_common(num_examples):
                print(f"             {times:5} x {told}")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("documents", type=Path, nargs="+")
    parser.add_argument("--first", type=int, default=1, help="page")
    parser.add_argument("--last", type=int, help="page")
    parser.add_argument("--examples", type=int, default=0, help="of each class of difference")
    options = parser.parse_args()
    for path in options.documents:
        compare(path, options.first - 1, options.last, options.examples)


if __name__ == "__main__":
    main()
