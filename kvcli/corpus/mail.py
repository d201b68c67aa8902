"""E-mail (.eml, .mbox) to spans: who wrote what to whom, and what they wrote.

Owns the choice among the forms of one text (plain before HTML), small attachments of text, and the
list of what is attached and not read. The standard library parses, and forgives broken MIME. Lines
of the file are not told, for they are those of an encoding: a message is cited by its subject.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email import message_from_bytes
from email.message import EmailMessage, Message
from email.policy import default as POLICY
from typing import Any, BinaryIO

from .blocks import Block, spans_of
from .decode import Decoded, NotText, decode
from .html import decode_html, read_html
from .reading import NotRead, NotThisFormat, Reading
from .spans import SkipReason, Span
from .text import cut_text

_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_MAX_HEADER_CHARS = 1_000
_MAX_ATTACHED_TEXT = 256 << 10
_MAX_DEPTH = 20
_MAX_PARTS = 1_000
_MAX_NAMED = 5
_POSTMARK = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From [^\n]*\n")


@dataclass(slots=True)
class _Found:
    """What has been read so far of one message and those inside it."""

    spans: list[Span] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    parts: int = 0


def read_mail(file: BinaryIO) -> Reading:
    """Read one message.

    Raises:
        NotThisFormat: It has no header that a message has.
        NotRead: It says nothing.
    """
    message = _parsed(file.read())
    if not any(name in message for name in (*_HEADERS, "Received", "Message-ID")):
        raise NotThisFormat
    found = _Found()
    _read(message, found, 0, "")
    if not found.spans:
        raise NotRead(SkipReason.EMPTY, "a message without text")
    return Reading(found.spans, _told(found.left_out))


def read_mailbox(file: BinaryIO) -> Reading:
    """Read every message of a mailbox in the mbox format.

    Raises:
        NotThisFormat: It does not begin with the line that parts messages.
        NotRead: There is no message in it.
    """
    data = file.read()
    marks = list(_POSTMARK.finditer(data))
    if not marks or marks[0].start():
        raise NotThisFormat
    ends = [*(mark.start() for mark in marks[1:]), len(data)]
    found = _Found()
    for number, (mark, end) in enumerate(zip(marks, ends, strict=True), start=1):
        found.parts = 0
        _read(_parsed(data[mark.end() : end]), found, 0, f"message {number}: ")
    if not found.spans:
        raise NotRead(SkipReason.EMPTY, "a mailbox without a message")
    return Reading(found.spans, _told(found.left_out))


def _parsed(data: bytes) -> Message:
    return message_from_bytes(data, policy=POLICY)


def _read(message: Message, found: _Found, depth: int, lead: str) -> None:
    headers = [(name, _header(message, name)) for name in _HEADERS]
    subject = next((value for name, value in headers if name == "Subject"), "")
    name = f"{lead}{subject or '(no subject)'}"[:120]
    told = [Block(f"{key}: {value}", is_tight=True) for key, value in headers if value]
    found.spans += [replace(span, name=name) for span in spans_of(told)]
    _read_body(message, found, depth, name)


def _header(message: Message, name: str) -> str:
    """A header's decoded value on one line; broken ones as they stand."""
    try:
        values = message.get_all(name) or []
        text = ", ".join(str(value) for value in values)
    except Exception:  # the parser of headers raises what it likes on broken ones
        raw = message.raw_items()
        text = ", ".join(str(value) for key, value in raw if key.lower() == name.lower())
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join(clean.split())[:_MAX_HEADER_CHARS]


def _read_body(message: Message, found: _Found, depth: int, name: str) -> None:
    for part in _leaves(message, found):
        kind = part.get_content_type()
        if kind == "message/rfc822":
            inner = part.get_payload(0) if part.is_multipart() else None
            if isinstance(inner, Message) and depth < _MAX_DEPTH:
                _read(inner, found, depth + 1, "attached message: ")
            continue
        attached = _file_name(part)
        text = _text(part, is_attached=attached is not None)
        if text is None:
            size = len(_payload(part))
            found.left_out.append(attached or kind)
            told = f"[attached: {attached or 'unnamed'}, {kind}, {size:,} bytes, not read]\n"
            found.spans.append(Span(told, name=name))
        elif attached is not None:
            found.spans += _named(text, f"{name}: attachment {attached}"[:200], kind)
        else:
            found.spans += _named(text, name, kind)


def _named(text: str, name: str, kind: str) -> list[Span]:
    spans = spans_of(read_html(text)) if kind == "text/html" else cut_text(text)
    return [replace(span, lines=None, name=name) for span in spans if span.text.strip()]


def _leaves(message: Message, found: _Found) -> Iterator[Message]:
    """The parts to read, in order, of alternatives the best one alone."""
    stack = [message]
    while stack and found.parts < _MAX_PARTS:
        part = stack.pop()
        found.parts += 1
        payload: Any = part.get_payload()
        if part.get_content_type() == "message/rfc822" or not isinstance(payload, list):
            yield part
        elif part.get_content_type() == "multipart/alternative":
            stack += _best(payload)
        else:
            stack += reversed(payload)


def _best(alternatives: list[Message]) -> list[Message]:
    """Plain text that says something, else HTML, else whatever comes last, as the standard has
    it."""
    for kind in ("text/plain", "text/html"):
        for part in alternatives:
            if part.get_content_type() == kind and _payload(part).strip():
                return [part]
    return alternatives[-1:]


def _file_name(part: Message) -> str | None:
    """The name of an attachment; None for what is a part of the message's own text."""
    try:
        name = part.get_filename()
        is_attached = isinstance(part, EmailMessage) and part.is_attachment()
    except Exception:  # as for any other broken header
        return "unnamed"
    if name is None and not is_attached:
        return None
    clean = (name or "unnamed").encode("utf-8", "replace").decode("utf-8")
    return " ".join(clean.split())[:120]


def _text(part: Message, *, is_attached: bool) -> str | None:
    """The text of a part; None for what is not text, and for large attachments."""
    # A multipart that could not be parted is read as it stands.
    if part.get_content_maintype() not in ("text", "multipart"):
        return None
    data = _payload(part)
    if is_attached and len(data) > _MAX_ATTACHED_TEXT:
        return None
    try:
        named = codecs.lookup(part.get_content_charset() or "").name
        return data.decode(named).replace("\r\n", "\n")
    except (LookupError, ValueError):
        decoded = decode_html(data) if part.get_content_subtype() == "html" else decode(data)
    if isinstance(decoded, NotText):
        return None
    assert isinstance(decoded, Decoded)
    return decoded.text.replace("\r\n", "\n")


def _payload(part: Message) -> bytes:
    """The decoded bytes of a leaf; broken encodings give what can be had of them."""
    try:
        data: Any = part.get_payload(decode=True)
    except (ValueError, LookupError, AssertionError):
        data = None
    return data if isinstance(data, bytes) else b""


def _told(left_out: list[str]) -> list[str]:
    if not left_out:
        return []
    more = f" and {len(left_out) - _MAX_NAMED} more" if len(left_out) > _MAX_NAMED else ""
    what = "1 attachment is" if len(left_out) == 1 else f"{len(left_out)} attachments are"
    return [f"{what} not read: {', '.join(left_out[:_MAX_NAMED])}{more}"]
