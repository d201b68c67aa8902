"""Small PDFs and folders for tests, made on the spot."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pypdf
from pypdf.constants import PageLabelStyle
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen import canvas

MakeTree = Callable[[Mapping[str, str | bytes]], Path]
"""Writes files (path -> contents) into a folder and returns it."""

IMAGE = "<image>"
"""As a page's text: the page is a picture."""


def png(width: int = 8, height: int = 8) -> bytes:
    """A grey PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    rows = (b"\0" + b"\x80" * width) * height
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def pdf_bytes(pages: Sequence[str]) -> bytes:
    """One page for each text; lines are drawn below each other; "" is a blank page."""
    buffer = io.BytesIO()
    sheet = canvas.Canvas(buffer)
    for page in pages:
        if page == IMAGE:
            sheet.drawImage(ImageReader(io.BytesIO(png())), 72, 400, 300, 300)
        elif page:
            text = sheet.beginText(72, 720)
            for line in page.split("\n"):
                text.textLine(line)
            sheet.drawText(text)
        sheet.showPage()
    sheet.save()
    return buffer.getvalue()


def write_pdf(path: Path, pages: Sequence[str]) -> Path:
    """Write such a PDF."""
    path.write_bytes(pdf_bytes(pages))
    return path


def encrypted(path: Path, pages: Sequence[str], user_password: str) -> Path:
    """An AES-256 PDF; with an empty user password it restricts permissions only."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf_bytes(pages)))
    writer.encrypt(user_password, owner_password="owner", algorithm="AES-256")
    writer.write(path)
    return path


def labelled(path: Path, pages: Sequence[str], roman: int) -> Path:
    """A PDF whose first `roman` pages are labelled i, ii, ... and the rest 1, 2, ..."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf_bytes(pages)))
    writer.set_page_label(0, roman - 1, style=PageLabelStyle.LOWERCASE_ROMAN)
    writer.set_page_label(roman, len(pages) - 1, style=PageLabelStyle.DECIMAL, start=1)
    writer.write(path)
    return path
