"""Mail: who wrote what, the best of several forms of a text, and every attachment accounted for."""

from __future__ import annotations

import base64
import io
from email.message import EmailMessage

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcli.corpus.mail import read_mail, read_mailbox
from kvcli.corpus.reading import NotRead, NotThisFormat, Reading
from kvcli.corpus.spans import SkipReason


def read(data: bytes | str | EmailMessage) -> Reading:
    if isinstance(data, EmailMessage):
        data = data.as_bytes()
    return read_mail(io.BytesIO(data.encode() if isinstance(data, str) else data))


def letter(text: str = "The Brücke is sound.\n") -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Jürgen Vogt <j@example.org>"
    message["To"] = "a@example.org"
    message["Subject"] = "Brücke 7"
    message.set_content(text)
    return message


def texts(reading: Reading) -> list[str]:
    return [span.text for span in reading.spans]


def test_headers_are_decoded_and_the_subject_is_the_name() -> None:
    reading = read(letter())
    assert texts(reading) == [
        "From: Jürgen Vogt <j@example.org>\nTo: a@example.org\nSubject: Brücke 7\n",
        "The Brücke is sound.\n",
    ]
    assert {(span.name, span.lines) for span in reading.spans} == {("Brücke 7", None)}


def test_plain_text_is_preferred_to_html() -> None:
    message = letter("plain\n")
    message.add_alternative("<p>rich</p>", subtype="html")
    assert texts(read(message))[1:] == ["plain\n"]


def test_html_is_read_where_the_plain_text_says_nothing() -> None:
    message = letter(" \n")
    message.add_alternative("<h1>Rich</h1><p>text", subtype="html")
    assert texts(read(message))[1:] == ["# Rich\n\ntext\n"]


def test_attachments_of_text_are_read_and_others_are_told() -> None:
    message = letter("see below\n")
    message.add_attachment("a,b\n1,2\n", subtype="csv", filename="Tabelle ü.csv")
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="plan.pdf")
    reading = read(message)
    assert texts(reading)[1:] == [
        "see below\n",
        "a,b\n1,2\n",
        "[attached: plan.pdf, application/pdf, 4 bytes, not read]\n",
    ]
    assert reading.spans[2].name == "Brücke 7: attachment Tabelle ü.csv"
    assert reading.warnings == ["1 attachment is not read: plan.pdf"]


def test_a_large_attachment_of_text_is_told_only() -> None:
    message = letter()
    message.add_attachment("x\n" * 200_000, filename="log.txt")
    assert read(message).warnings == ["1 attachment is not read: log.txt"]


def test_a_message_inside_is_read_as_one() -> None:
    outer, inner = letter("outer\n"), letter("inner\n")
    outer.add_attachment(inner)
    named = [(span.name, span.text) for span in read(outer).spans]
    assert named[1] == ("Brücke 7", "outer\n")
    assert named[3] == ("attached message: Brücke 7", "inner\n")


def test_a_charset_that_is_wrong_or_unknown_is_guessed() -> None:
    for charset in ("utf-8", "x-unheard-of"):
        mail = (
            f"Subject: s\nContent-Type: text/plain; charset={charset}\n\n".encode() + b"Br\xfccke"
        )
        assert texts(read(mail))[-1] == "Brücke"


@pytest.mark.parametrize(
    ("mail", "expected"),
    [
        ("Subject: s\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\ncut off", "cut off"),
        ("Subject: s\nContent-Type: multipart/mixed\n\nno boundary\n", "no boundary"),
        ("Subject: s\nContent-Transfer-Encoding: base64\n\n!!!!dGV4dA", "text"),
        ("Subject: =?utf-8?b?broken\nFrom: <<>;;,\nDate: never\n\nbody\n", "body"),
        ("Subject: s\nContent-Type: text\n\nodd type\n", "odd type"),
        ("Subject: s\nContent-Disposition: attachment\n\nnameless\n", "nameless"),
    ],
)
def test_broken_mime_is_survived(mail: str, expected: str) -> None:
    assert expected in "".join(texts(read(mail)))


def test_nesting_is_followed_so_far_only() -> None:
    """A message inside a message, fifty times."""
    part = b"Subject: innermost\n\ntext\n"
    for number in range(50):
        part = b"Subject: m%d\nContent-Type: message/rfc822\n\n" % number + part
    assert len(read(part).spans) < 50


def test_what_is_no_mail_is_left_to_the_reader_of_text() -> None:
    for text in ("just text\n", "", "a: b\n\nc\n"):
        with pytest.raises(NotThisFormat):
            read(text)


def test_a_mailbox_is_read_message_by_message() -> None:
    box = (
        b"From a@x Mon Jan  1\r\nSubject: one\r\n\r\nbody one\r\nFrom here on\r\n\r\n"
        b"From b@x Tue Jan  2\r\nSubject: two\r\n\r\nbody two\r\n"
    )
    named = [(span.name, span.text.strip()) for span in read_mailbox(io.BytesIO(box)).spans]
    assert named == [
        ("message 1: one", "Subject: one"),
        ("message 1: one", "body one\nFrom here on"),
        ("message 2: two", "Subject: two"),
        ("message 2: two", "body two"),
    ]


PIECES = [
    b"Subject: s\n", b"From: a\n", b"\n", b"--b\n", b"--b--\n", b"--c\n", b"text\n", b"\xff",
    b"Content-Type: multipart/alternative; boundary=b\n", b"Content-Type: message/rfc822\n",
    b"Content-Type: multipart/mixed; boundary=c\n", b"Content-Type: text/html\n\n<p>x",
    b"Content-Transfer-Encoding: quoted-printable\n", b"Content-Transfer-Encoding: uuencode\n",
    b"Content-Disposition: attachment; filename*0*=x''%ff\n", b"=?utf-8?q?=ff?=", b"=3D=\n",
    b"Content-Type: text/plain; charset=unicode_escape\n\n\\ud800", b"Content-Type: ;;\n", b"\0",
    base64.b64encode(b"text"), b"Date: x\n", b"To: =?x?y?z?=, <\n",
]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=4)), max_size=25))
@settings(deadline=None, max_examples=80)
def test_any_bytes_are_read_or_refused(pieces: list[bytes]) -> None:
    for reader in (read_mail, read_mailbox):
        try:
            reading = reader(io.BytesIO(b"From \n" * (reader is read_mailbox) + b"".join(pieces)))
        except (NotThisFormat, NotRead):
            continue
        assert all(isinstance(span.text, str) and span.name for span in reading.spans)


@pytest.mark.parametrize("data", ["From:", "Subject:\n\n \n", "Received: by pier.example\n\n"])
def test_a_message_that_says_nothing_is_named_as_empty(data: str) -> None:
    """`From:` alone became a document without a span, which counted as read."""
    with pytest.raises(NotRead, match="a message without text") as refused:
        read(data)
    assert refused.value.reason is SkipReason.EMPTY
