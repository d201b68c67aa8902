"""The parent's side of the PDF worker: starts it, listens, and outlives whatever happens to it.

Owns the messages and the restarts after a page that kills or hangs the worker. Knows nothing of
what the text means.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from . import child
from .child import ChildFailed
from .pdf_outline import OutlineEntry


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What one PDF may cost."""

    memory_bytes: int = 2 << 30
    """Address space of the worker."""
    silence_seconds: float = 20.0
    """Longest wait for the opening, and then for each page."""
    base_seconds: float = 60.0
    seconds_per_page: float = 0.25
    """With `base_seconds`, the wall-clock limit of the whole file."""
    max_restarts: int = 3
    """After this many pages that killed the worker, the rest of the file is given up."""
    max_lost: int = 1_000
    """After this many pages that cannot be read, the rest is given up as well: a damaged file may
    claim a million pages that it does not have."""
    max_chars: int = 256_000_000
    """Text of the whole file."""


class Opening(Enum):
    """How the file opened."""

    OK = "ok"
    ENCRYPTED = "encrypted"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class PdfPage:
    """A page's text as the library gave it. `number` is the physical page, 0-based."""

    number: int
    text: str
    label: str
    images: int
    """Images on the page, counted only where there is no text."""


@dataclass(slots=True)
class Extraction:
    """What came out of one file with one library."""

    opening: Opening = Opening.DAMAGED
    detail: str = ""
    num_pages: int = 0
    num_chars: int = 0
    pages: dict[int, PdfPage] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    """Page number (0-based) to the reason why it could not be read."""
    outline: list[OutlineEntry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PdfRequest:
    """One file, one library, and the pages wanted (0-based, None: all)."""

    path: str
    engine: str = "pdfium"
    password: str | None = None
    only: tuple[int, ...] | None = None


def extract(
    request: PdfRequest, limits: WorkerLimits, on_page: Callable[[int, int], None] | None = None
) -> Extraction:
    """Read a PDF in child processes; returns whatever could be read, and never hangs.

    Args:
        request: The file and what to read of it.
        limits: Time, memory and restarts.
        on_page: Called with pages done and pages in all after each page.
    """
    out = Extraction()
    started = time.monotonic()
    for attempt in range(limits.max_restarts + 1):
        try:
            for message in _messages(request, out, limits, started):
                _take(message, out, limits)
                if on_page is not None and "page" in message:
                    on_page(len(out.pages) + len(out.lost), out.num_pages)
            return out
        except ChildFailed as failure:
            told = out.detail = f"the PDF reader {failure}"
            pending = _pending(request, out)
            if not pending:
                return out
            spent = time.monotonic() - started > _whole_limit(out, limits)
            too_much = out.num_chars > limits.max_chars or len(out.lost) > limits.max_lost
            given_up = attempt == limits.max_restarts or spent or too_much
            for number in pending if given_up else pending[:1]:
                out.lost[number] = told
            if given_up:
                return out
    return out


def _pending(request: PdfRequest, out: Extraction) -> list[int]:
    wanted = range(out.num_pages) if request.only is None else request.only
    return [number for number in wanted if number not in out.pages and number not in out.lost]


def _whole_limit(out: Extraction, limits: WorkerLimits) -> float:
    return limits.base_seconds + limits.seconds_per_page * out.num_pages


def _take(message: dict[str, Any], out: Extraction, limits: WorkerLimits) -> None:
    if "refused" in message:
        out.opening, out.detail = Opening(message["refused"]), message["detail"]
    elif "num_pages" in message:
        out.opening, out.num_pages = Opening.OK, message["num_pages"]
    elif "outline" in message:
        out.outline = [
            OutlineEntry(page, level, title) for page, level, title in message["outline"]
        ]
    elif "error" in message:
        out.lost[message["page"]] = message["error"]
        if len(out.lost) > limits.max_lost:
            raise ChildFailed("too many pages could not be read")
    elif "page" in message:
        page = PdfPage(message["page"], message["text"], message["label"], message["images"])
        out.pages[page.number] = page
        out.num_chars += len(page.text)
        if out.num_chars > limits.max_chars:
            raise ChildFailed("found more text than the limit")


def _messages(
    request: PdfRequest, out: Extraction, limits: WorkerLimits, started: float
) -> Iterator[dict[str, Any]]:
    """Messages of one worker, from the first page not yet dealt with."""
    pending = _pending(request, out)
    order = {
        "path": request.path,
        "engine": request.engine,
        "password": request.password,
        "first": pending[0] if pending else 0,
        "only": pending if request.only is not None else None,
        "memory_bytes": limits.memory_bytes,
        "cpu_seconds": int(_whole_limit(out, limits)) + 600,
    }
    heard = time.monotonic()

    def seconds_left() -> float:
        now = time.monotonic()
        whole = started + _whole_limit(out, limits) - now
        return min(heard + limits.silence_seconds - now, whole)

    with child.start("kvcli.corpus.pdf_worker") as process:
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.close()
            for line in child.lines(process, seconds_left):
                message = json.loads(line)
                yield message
                if "done" in message or "refused" in message:
                    return
                heard = time.monotonic()
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise ChildFailed("crashed") from error
        finally:
            process.kill()
    raise ChildFailed(child.cause_of_death(process.returncode))
