"""Facts stamped at the foot of a PDF's pages, so that a real manual asks for them by page.

Owns the stamping. What the facts are is `tests.bench.haystack`'s; the rest of every page stays as
it is.
"""

from __future__ import annotations

import ctypes
import random
from dataclasses import replace
from pathlib import Path

import pypdfium2 as pdfium
from pypdfium2 import raw

from tests.bench.haystack import Place, Question, choose_sites, invent

FRONT_PAGES = 20
"""Pages of title and contents, where nothing is stamped."""

FONT, SIZE, LEFT, FOOT = b"Times-Roman", 10.0, 72.0, 24.0
"""Points; below the page number of most manuals."""


def stamp(source: Path, target: Path, seed: int, *, singles: int, groups: int) -> list[Question]:
    """Copy a PDF with facts at the foot of some of its pages, one at most on each.

    Args:
        source: A PDF with more pages than there are facts.
        target: Where the copy goes.
        seed: The same seed gives the same facts and places.
        singles: Single questions, and as many absent ones.
        groups: Questions of each other kind.

    Returns:
        The questions, their places given by page.
    """
    rng = random.Random(seed)
    with pdfium.PdfDocument(source) as document:
        text = "\n".join(page.get_textpage().get_text_range() for page in document)
        questions = invent(rng, text, singles, groups)
        pages = list(range(FRONT_PAGES, len(document)))
        sites = choose_sites(questions, pages, list(range(len(document))), rng)
        for at, sentence in sites.items():
            _write(document, at, sentence)
        document.save(target)
    page_of = {sentence: at + 1 for at, sentence in sites.items()}
    return [
        replace(q, places=tuple(Place(page_of[fact], 0) for fact in q.facts)) for q in questions
    ]


def _write(document: pdfium.PdfDocument, at: int, sentence: str) -> None:
    page = document[at]
    line = raw.FPDFPageObj_NewTextObj(document, FONT, SIZE)
    data = (sentence + "\0").encode("utf-16-le")
    raw.FPDFText_SetText(line, ctypes.cast(data, ctypes.POINTER(ctypes.c_ushort)))
    raw.FPDFPageObj_Transform(line, 1, 0, 0, 1, LEFT, FOOT)
    raw.FPDFPage_InsertObject(page, line)
    raw.FPDFPage_GenerateContent(page)
