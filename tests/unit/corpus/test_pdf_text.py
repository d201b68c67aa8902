"""Repair of extracted text, and the score that asks for a second opinion."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvcli.corpus import pdf as pdf_module
from kvcli.corpus.pdf import PdfText, read_pdf
from kvcli.corpus.pdf_process import (
    Extraction,
    Opening,
    PdfPage,
    PdfRequest,
    WorkerLimits,
)
from kvcli.corpus.pdf_text import HYPHEN, Hyphens, score, tidy

PROSE = (
    "The bridge was inspected in spring and found to be in good order by the two engineers. " * 3
)


def test_line_ends_and_control_characters_are_tidied() -> None:
    assert tidy("a\r\nb\rc\0\x07\td\x0c") == "a\nb\nc\td\x0c"


def test_only_ligatures_are_spelt_out() -> None:
    assert tidy("o\ufb03ce \ufb01t x² ½ ﹪") == "office fit x² ½ ﹪"


def test_only_a_diaeresis_is_put_on_its_vowel() -> None:
    """TeX draws accents before their letters: a search for Müller must find him."""
    assert tidy("M¨uller, ¨Ust¨un") == "Müller, Üstün"
    assert tidy("it´s xˆa ¨ ¨b") == "it´s xˆa ¨ ¨b"


def test_lone_surrogates_cannot_survive() -> None:
    tidy("a\ud800b").encode("utf-8")


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        (f"infor{HYPHEN}mation", "information"),
        (f"well{HYPHEN}known", "well-known"),
        (f"re{HYPHEN}cover", "re-cover"),
        (f"zig{HYPHEN}zag", "zigzag"),
        (f"2023{HYPHEN}01", "2023-01"),
        (f"a {HYPHEN} b", "a - b"),
        (f"end{HYPHEN}", "end-"),
    ],
)
def test_hyphens_by_evidence(text: str, resolved: str) -> None:
    pages = [text, "information; well and known; re-cover the chair", "no more"]
    assert Hyphens(pages).resolve(text) == resolved


def test_prose_and_tables_are_not_suspicious() -> None:
    assert not score(PROSE).is_suspicious
    assert not score("1 2 3 4 5 . . . . . . 7 8 9 10\n" * 20).is_suspicious
    assert not score("日本語の文章です。" * 40).is_suspicious


@pytest.mark.parametrize(
    "text", [" ".join(PROSE), PROSE.replace(" ", "") + " x" * 2 + "y" * 40, "\ue000\ue001 ab " * 9]
)
def test_letters_apart_words_together_and_private_characters_are(text: str) -> None:
    assert score(text * 8 if " " in text[:30] else "\n".join([text] * 30)).is_suspicious


def test_the_better_reading_of_a_page_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    spaced = " ".join(PROSE)
    asked: list[PdfRequest] = []

    def two_readings(
        request: PdfRequest, limits: WorkerLimits, on_page: object = None
    ) -> Extraction:
        asked.append(request)
        text = spaced if request.engine == "pdfium" else PROSE
        pages = {0: PdfPage(0, text, "", 0)}
        if request.engine == "pdfium":
            pages[1] = PdfPage(1, PROSE, "", 0)
        return Extraction(Opening.OK, num_pages=2, pages=pages)

    monkeypatch.setattr(pdf_module, "extract", two_readings)
    found = read_pdf("a.pdf")
    assert isinstance(found, PdfText)
    assert found.spans[0].text == PROSE.strip() + "\n"
    assert found.warnings == ()
    assert asked[1].only == (0,)


def test_a_page_that_both_read_badly_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {0: PdfPage(0, "\ue000\ue001\ue002 " * 30, "", 0)}
    both = Extraction(Opening.OK, num_pages=1, pages=pages)
    monkeypatch.setattr(pdf_module, "extract", lambda *_, **__: both)
    found = read_pdf(str(Path("a.pdf")))
    assert isinstance(found, PdfText)
    assert "page 1 with garbled text" in found.warnings[0]
    assert found.warnings[1].startswith("90 characters without a meaning")
