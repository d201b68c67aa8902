"""A PDF to one span a page, with printed labels; or the reason why it cannot be read.

Owns the choice between two readings of a page and what is told about pages without text. Knows the
worker only through `pdf_process`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from .pdf_outline import trails
from .pdf_process import Extraction, Opening, PdfPage, PdfRequest, WorkerLimits, extract
from .pdf_text import Hyphens, count_bad_chars, score, tidy
from .running_lines import Cleared, clear_running_lines
from .spans import SkipReason, Span

_LONGEST_LABEL = 40
"""A label stands in every citation of its page, and a file may name any."""
_MAX_SECOND_OPINIONS = 200


@dataclass(frozen=True, slots=True)
class PdfText:
    """The pages that hold text, in order, and what to tell about the others."""

    spans: tuple[Span, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What was done to the text."""


@dataclass(frozen=True, slots=True)
class PdfRefused:
    """The file gave no text at all."""

    reason: SkipReason
    detail: str


def read_pdf(
    path: str,
    password: str | None = None,
    limits: WorkerLimits | None = None,
    on_page: Callable[[int, int], None] | None = None,
) -> PdfText | PdfRefused:
    """Read a PDF's text page by page.

    Args:
        path: The file on disk.
        password: Tried when the empty one does not open it.
        limits: Time and memory of the worker.
        on_page: Called with pages done and pages in all.
    """
    limits = limits or WorkerLimits()
    request = PdfRequest(path, password=password)
    first = extract(request, limits, on_page)
    if first.opening is Opening.DAMAGED:
        told = first.detail
        request = replace(request, engine="pypdf")
        first = extract(request, limits, on_page)
        if first.opening is Opening.DAMAGED:
            return PdfRefused(SkipReason.DAMAGED, f"cannot be opened as a PDF ({told})")
    if first.opening is Opening.ENCRYPTED:
        wrong = "the password does not open it" if password else "it needs a password"
        return PdfRefused(SkipReason.ENCRYPTED, wrong)
    if request.engine == "pdfium":
        _ask_again(request, first, limits)
    return _assemble(first)


def _ask_again(request: PdfRequest, first: Extraction, limits: WorkerLimits) -> None:
    """Let the second library read the doubtful pages, and keep the better reading of each."""
    lost = list(first.lost)
    odd = [page.number for page in first.pages.values() if score(page.text).is_suspicious]
    doubtful = tuple(sorted([*lost, *odd])[:_MAX_SECOND_OPINIONS])
    if not doubtful:
        return
    second = extract(replace(request, engine="pypdf", only=doubtful), limits)
    for number, page in second.pages.items():
        known = first.pages.get(number)
        if known is None and page.text.strip():
            first.pages[number] = page
            del first.lost[number]
        elif known is not None and score(page.text).badness < 0.5 * score(known.text).badness:
            first.pages[number] = replace(known, text=page.text)


def _assemble(extraction: Extraction) -> PdfText | PdfRefused:
    pages = [extraction.pages[number] for number in sorted(extraction.pages)]
    cleared = clear_running_lines({page.number: tidy(page.text).strip() for page in pages})
    texts = {number: text.strip() for number, text in cleared.texts.items()}
    hyphens = Hyphens(texts.values())
    names = trails(extraction.outline, extraction.num_pages)
    spans = tuple(
        Span(
            hyphens.resolve(texts[page.number]) + "\n",
            page=page.number + 1,
            label=_label(page, cleared),
            name=names.get(page.number),
        )
        for page in pages
        if texts[page.number]
    )
    scanned = [page.number + 1 for page in pages if not texts[page.number] and page.images]
    if not spans:
        return _without_text(extraction, scanned)
    return PdfText(spans, tuple(_warnings(extraction, scanned)), tuple(_notes(cleared)))


def _label(page: PdfPage, cleared: Cleared) -> str | None:
    """The file's own label, or else the number printed in a running line; None: as counted."""
    label = (page.label or cleared.printed.get(page.number) or "")[:_LONGEST_LABEL]
    return label if label and label != str(page.number + 1) else None


def _notes(cleared: Cleared) -> Iterable[str]:
    if cleared.num_lines:
        lines = "1 running header or footer" if cleared.num_lines == 1 else (
            f"{cleared.num_lines:,} running headers and footers"
        )  # fmt: skip
        pages = "1 page" if cleared.num_pages == 1 else f"{cleared.num_pages:,} pages"
        yield f"{lines} left out of {pages}; each stays where it first comes"


def _without_text(extraction: Extraction, scanned: list[int]) -> PdfRefused:
    count = extraction.num_pages
    pages = "its only page" if count == 1 else f"all {count} pages"
    if extraction.lost:
        why = next(iter(extraction.lost.values()))
        return PdfRefused(SkipReason.DAMAGED, f"no page of {count} could be read ({why})")
    if scanned:
        blank = count - len(scanned)
        rest = f", {blank} blank" if blank else ""
        which = pages if not blank else f"{len(scanned)} of {count} pages"
        verb = "is an image" if count == 1 else "are images"
        return PdfRefused(SkipReason.SCANNED, f"{which} {verb} without text{rest}")
    return PdfRefused(SkipReason.EMPTY, f"no text on {pages}" if count else "it has no pages")


def _warnings(extraction: Extraction, scanned: list[int]) -> Iterable[str]:
    if scanned:
        yield f"{_pages(scanned)} without text, only images; run ocrmypdf on the file to read them"
    if extraction.lost:
        why = next(iter(extraction.lost.values()))
        lost = [number + 1 for number in sorted(extraction.lost)]
        yield f"{_pages(lost)} could not be read ({why})"
    scores = {number: score(page.text) for number, page in extraction.pages.items()}
    odd = [number + 1 for number in sorted(scores) if scores[number].is_suspicious]
    if odd:
        yield f"{_pages(odd)} with garbled text: words run together or letters without meaning"
    bad = sum(count_bad_chars(page.text) for page in extraction.pages.values())
    if bad:
        yield f"{bad} characters without a meaning outside the file's own fonts"


def _pages(numbers: list[int]) -> str:
    """`page 3` or `pages 3, 5-9 (6 of them)`; numbers ascending."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    told = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    shown = ", ".join(told[:20]) + (", ..." if len(told) > 20 else "")
    many = f" ({len(numbers)} of them)" if len(numbers) > 2 else ""
    return f"page {shown}" if len(numbers) == 1 else f"pages {shown}{many}"
