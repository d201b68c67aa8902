"""The child process that reads one PDF: a request on stdin, one JSON object a line on stdout.

Owns the two PDF libraries and the limits put on them; runs alone because a hostile or damaged file
can take any time or memory, or kill the process. Knows nothing of spans: the text goes out as the
library gave it, but in reading order. Nothing heavy is imported, so that it starts fast.

Out: `{"num_pages": n}`, then for each page `{"page", "text", "label", "images"}` or
`{"page", "error"}`, then `{"outline": [[page, level, title], ...]}` if all pages were asked for,
then `{"done": true}`; or `{"refused": "encrypted" | "damaged", "detail"}`.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from .child_limits import limit_resources
from .pdf_words import in_reading_order

_MAX_PAGE_CHARS = 2_000_000
_WIDGET = 20  # FPDF_ANNOT_WIDGET
_PASSWORD_ERROR = 4  # FPDF_ERR_PASSWORD
_IMAGE, _FORM_XOBJECT = 3, 5
_MAX_OBJECTS_LOOKED_AT = 2_000
_MOST_ENTRIES, _MOST_LEVELS, _MOST_TITLE_CHARS = 20_000, 12, 300

Message = dict[str, Any]


def main() -> None:
    """Read the request and write one message for each page asked for."""
    request = json.loads(sys.stdin.readline())
    limit_resources(request["memory_bytes"], request["cpu_seconds"])
    read = _read_with_pypdf if request["engine"] == "pypdf" else _read_with_pdfium
    for message in read(request["path"], request["password"], request["first"], request["only"]):
        if len(message.get("text", "")) > _MAX_PAGE_CHARS:
            message = {"page": message["page"], "error": "more text than a page can hold"}
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def _read_with_pdfium(
    path: str, password: str | None, first: int, only: list[int] | None
) -> Iterator[Message]:
    import pypdfium2 as pdfium

    try:
        document = pdfium.PdfDocument(path, password=password)
    except pdfium.PdfiumError as error:
        encrypted = getattr(error, "err_code", None) == _PASSWORD_ERROR
        yield {"refused": "encrypted" if encrypted else "damaged", "detail": str(error)}
        return
    try:
        if document.get_formtype():
            document.init_forms()
        yield {"num_pages": len(document)}
        for number in only if only is not None else range(first, len(document)):
            try:
                yield _pdfium_page(document, number)
            except Exception as error:
                yield {"page": number, "error": _told(error)}
        if only is None:  # last, for a damaged outline must not cost a page
            yield {"outline": _outline(document)}
        yield {"done": True}
    finally:
        document.close()


def _pdfium_page(document: Any, number: int) -> Message:
    page = document[number]
    try:
        text_page = page.get_textpage()
        try:
            text = in_reading_order(text_page, text_page.get_text_bounded())
        finally:
            text_page.close()
        fields = _form_fields(document, page) if document.formenv else []
        images = 0 if text.strip() else _count_images(page)
    finally:
        page.close()
    text = "\n".join([text.rstrip(), *fields]) if fields else text
    label = document.get_page_label(number)
    return {"page": number, "text": text, "label": label, "images": images}


def _outline(document: Any) -> list[tuple[int, int, str]]:
    """Page, level and title of each entry; bounded, and broken off where it is damaged."""
    entries: list[tuple[int, int, str]] = []
    try:
        # loops are the library's to notice; it logs them, which nobody reads
        for entry in islice(document.get_toc(max_depth=_MOST_LEVELS), _MOST_ENTRIES):
            leads_to = entry.get_dest()
            page = leads_to.get_index() if leads_to else None
            if page is not None:
                entries.append((page, entry.level, entry.get_title()[:_MOST_TITLE_CHARS]))
    except Exception:
        return entries
    return entries


def _form_fields(document: Any, page: Any) -> list[str]:
    """`name: value` of each filled field; the page's own text never holds them."""
    from pypdfium2 import raw

    lines: dict[str, None] = {}
    for index in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        if raw.FPDFAnnot_GetSubtype(annotation) == _WIDGET:
            told = [
                _wide_string(get, document.formenv, annotation)
                for get in (
                    raw.FPDFAnnot_GetFormFieldAlternateName,
                    raw.FPDFAnnot_GetFormFieldName,
                    raw.FPDFAnnot_GetFormFieldValue,
                )
            ]
            if told[2].strip():
                lines[f"{told[0] or told[1]}: {told[2]}"] = None
        raw.FPDFPage_CloseAnnot(annotation)
    return list(lines)


def _wide_string(get: Any, formenv: Any, annotation: Any) -> str:
    num_bytes = get(formenv, annotation, None, 0)
    buffer = (ctypes.c_ushort * (num_bytes // 2 + 1))()
    get(formenv, annotation, buffer, num_bytes)
    return bytes(buffer).decode("utf-16-le", "replace").split("\0")[0]


def _count_images(page: Any) -> int:
    """Images on the page, forms looked into; bounded, for a page can hold millions of objects."""
    images = 0
    for looked_at, item in enumerate(page.get_objects(max_depth=4)):
        images += item.type == _IMAGE
        if looked_at >= _MAX_OBJECTS_LOOKED_AT:
            break
    return images


def _read_with_pypdf(
    path: str, password: str | None, first: int, only: list[int] | None
) -> Iterator[Message]:
    import pypdf

    try:
        reader = pypdf.PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(password or ""):
            yield {"refused": "encrypted", "detail": "the password does not open it"}
            return
        num_pages = len(reader.pages)
        labels = reader.page_labels if only is None else []
    except Exception as error:  # damage shows as whatever the library trips over first
        yield {"refused": "damaged", "detail": _told(error)}
        return
    yield {"num_pages": num_pages}
    for number in only if only is not None else range(first, num_pages):
        try:
            text = reader.pages[number].extract_text()
            label = labels[number] if number < len(labels) else ""
            yield {"page": number, "text": text, "label": label, "images": 0}
        except Exception as error:
            yield {"page": number, "error": _told(error)}
    yield {"done": True}


def _told(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


if __name__ == "__main__":
    main()
