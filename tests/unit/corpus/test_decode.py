"""Bytes to text: the order of evidence."""

from __future__ import annotations

import codecs
import random

import pytest

from kvcli.corpus.decode import Decoded, NotText, decode

RUSSIAN = "Широкая электрификация южных губерний даст мощный толчок подъёму хозяйства.\n" * 4
FRENCH = "L'été dernier, à Évreux, le garçon naïf déjeunait où ça coûte 12 €.\n" * 4
JAPANESE = "これは日本語の文章です。文字コードの判定を試験するために書かれました。\n" * 4


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ],
)
def test_byte_order_mark_decides_and_is_dropped(mark: bytes, encoding: str) -> None:
    assert decode(mark + FRENCH.encode(encoding)) == Decoded(FRENCH, encoding)


def test_utf8_needs_no_warning_and_keeps_line_ends() -> None:
    assert decode("a\r\nü\rb\n".encode()) == Decoded("a\r\nü\rb\n", "utf-8")


def test_a_character_across_any_block_border_is_still_utf8() -> None:
    for before in range(1020, 1026):
        assert isinstance(decode(b"a" * before + "日".encode()), Decoded)


@pytest.mark.parametrize(
    ("text", "encoding"), [(RUSSIAN, "koi8_r"), (RUSSIAN, "cp1251"), (JAPANESE, "shift_jis")]
)
def test_a_confident_detector_is_believed_with_a_warning(text: str, encoding: str) -> None:
    decoded = decode(text.encode(encoding))
    assert isinstance(decoded, Decoded)
    assert decoded.text == text
    assert decoded.warning is not None


def test_western_text_is_windows_1252() -> None:
    decoded = decode(FRENCH.encode("cp1252"))
    assert decoded == Decoded(FRENCH, "cp1252", "not UTF-8; read as cp1252")


def test_a_few_odd_bytes_are_no_evidence_for_a_rare_encoding() -> None:
    """A detector calls such short samples Big5 or code page 1250."""
    source = "/* größe der Fläche */\nint main(void) { return 0; }\n"
    decoded = decode(source.encode("latin-1"))
    assert isinstance(decoded, Decoded)
    assert decoded.text == source


def test_nul_means_binary() -> None:
    assert isinstance(decode(b"looks like text\0 but is not"), NotText)


def test_random_bytes_are_binary_even_without_nul() -> None:
    noise = random.Random(1).randbytes(20_000).replace(b"\0", b"")
    assert isinstance(decode(noise), NotText)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "PNG"),
        (b"\x7fELF\x02\x01\x01\0\0", "ELF"),
        (b"\x1f\x8b\x08\0\0", "gzip"),
        (b"PK\x03\x04\x14\0\0", "zip"),
    ],
)
def test_known_formats_are_named(data: bytes, what: str) -> None:
    found = decode(data)
    assert isinstance(found, NotText)
    assert what in found.detail


def test_control_characters_make_it_binary() -> None:
    assert isinstance(decode(b"\x01\x02\x03abc\x04\x05"), NotText)


def test_coloured_log_output_is_text() -> None:
    assert isinstance(decode(b"\x1b[31mred\x1b[0m\tok\f\n"), Decoded)


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF8 + bytes(50),
        codecs.BOM_UTF8 + b"text\0text",
        codecs.BOM_UTF16_LE + bytes(100),
        codecs.BOM_UTF16_BE + "text\0more".encode("utf-16-be"),
        codecs.BOM_UTF16_LE + "\x01\x02\x03abc\x04".encode("utf-16-le"),
    ],
)
def test_a_byte_order_mark_does_not_make_text_of_binary_data(data: bytes) -> None:
    assert isinstance(decode(data), NotText)
