"""Bytes to text, or the reason why they are not text.

Owns the order of evidence: byte order mark, NUL bytes, strict UTF-8, a detector where it is
confident, Windows-1252 last. Knows nothing of files and spans.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from charset_normalizer import CharsetMatches, from_bytes

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_MAGIC = (
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"\x7fELF", "an ELF program"),
    (b"MZ", "a Windows program"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program"),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O program"),
    (b"\0asm", "a WebAssembly module"),
    (b"PK\x03\x04", "a zip archive or an office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"\xd0\xcf\x11\xe0", "an old office document"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"RIFF", "a RIFF sound, image or film"),
    (b"OggS", "an Ogg stream"),
    (b"wOF", "a font"),
)

_SAMPLE_BYTES = 1 << 16
_MIN_EVIDENCE = 24
"""Non-ASCII bytes below which a detector's guess is noise."""
_MAX_CONTROLS_UTF8 = 0.10
_MAX_CONTROLS_OTHER = 0.01
_ODD_CONTROLS = re.compile(r"[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
"""Control characters but for tabs, line and page ends, backspaces and escapes."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The text, without byte order mark and with its line ends as they were."""

    text: str
    encoding: str
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class NotText:
    """The bytes are not text; `detail` says what they look like."""

    detail: str


def decode(data: bytes) -> Decoded | NotText:
    """Decode a whole file. Nothing is replaced: text encodes back to the bytes it came from."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decode_marked(data[len(mark) :], encoding)
    if b"\0" in data:
        return NotText(_looks_like(data))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _decode_legacy(data)
    if _control_share(text) > _MAX_CONTROLS_UTF8:
        return NotText(_looks_like(data))
    return Decoded(text, "utf-8")


def _decode_marked(data: bytes, encoding: str) -> Decoded | NotText:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return NotText(f"marked as {encoding}, which it is not")
    if "\0" in text or _control_share(text) > _MAX_CONTROLS_UTF8:
        return NotText(f"marked as {encoding}, but not text")
    return Decoded(text, encoding)


def _looks_like(data: bytes) -> str:
    for magic, what in _MAGIC:
        if data.startswith(magic):
            return what
    return "not text"


def _control_share(text: str) -> float:
    sample = text[:_SAMPLE_BYTES]
    return len(_ODD_CONTROLS.findall(sample)) / max(1, len(sample))


def _decode_legacy(data: bytes) -> Decoded | NotText:
    known = _looks_like(data)
    if known != "not text":
        return NotText(known)
    for encoding in filter(None, (_confident_guess(data), "cp1252", "latin-1")):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if _control_share(text) > _MAX_CONTROLS_OTHER:
            return NotText("not text")
        return Decoded(text, encoding, f"not UTF-8; read as {encoding}")
    raise AssertionError("latin-1 decodes everything")


def _confident_guess(data: bytes) -> str | None:
    """The detector's encoding, unless the evidence is thin or Windows-1252 explains it as well."""
    sample = data[:_SAMPLE_BYTES]
    if sum(byte >= 0x80 for byte in sample) < _MIN_EVIDENCE:
        return None
    matches: CharsetMatches = from_bytes(sample)
    best = matches.best()
    if best is None or best.percent_chaos > 5:
        return None
    rivals = [match for match in matches if match.encoding != best.encoding]
    if any(match.encoding in ("cp1252", "latin_1") for match in (best, *rivals)):
        return None
    lead = min((match.percent_chaos for match in rivals), default=100.0) - best.percent_chaos
    return best.encoding if best.percent_coherence >= 30 or lead >= 4 else None
