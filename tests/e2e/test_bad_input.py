"""Bad documents, questions and models: one clear line and an advice, the right exit code."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from child_kit import Spawn
from cli_kit import Kvcli, check_refused
from PIL import Image
from pypdf import PdfReader, PdfWriter
from reportlab.pdfgen.canvas import Canvas

SHORT = ("--max-tokens", 4)


# -- what to read ----------------------------------------------------------------------------------


def missing(folder: Path) -> str:
    return "nowhere.txt"


def empty_file(folder: Path) -> str:
    (folder / "empty.txt").write_text("")
    return "empty.txt"


def blank_file(folder: Path) -> str:
    (folder / "blank.txt").write_text(" \n\n\t\n")
    return "blank.txt"


def empty_folder(folder: Path) -> str:
    (folder / "empty").mkdir()
    return "empty"


def dangling_link(folder: Path) -> str:
    (folder / "link.txt").symlink_to("nowhere.txt")
    return "link.txt"


def binary(folder: Path) -> str:
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 8)
    return "binary.txt"


def pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return "pipe"


def pdf(path: Path, **more: Any) -> str:
    canvas = Canvas(str(path), **more)
    canvas.drawString(72, 700, "The pier is sound.")
    canvas.save()
    return path.name


def scanned_pdf(folder: Path) -> str:
    Image.new("RGB", (40, 40), "red").save(folder / "scan.png")
    canvas = Canvas(str(folder / "scan.pdf"))
    canvas.drawImage(str(folder / "scan.png"), 0, 0, 500, 700)
    canvas.save()
    return "scan.pdf"


def encrypted_pdf(folder: Path) -> str:
    pdf(folder / "plain.pdf")
    writer = PdfWriter(clone_from=PdfReader(folder / "plain.pdf"))
    writer.encrypt("secret", algorithm="AES-256")
    writer.write(folder / "locked.pdf")
    return "locked.pdf"


def truncated_pdf(folder: Path) -> str:
    path = folder / "cut.pdf"
    pdf(path)
    path.write_bytes(path.read_bytes()[:200])
    return path.name


def not_a_pdf(folder: Path) -> str:
    (folder / "page.pdf").write_text("<html></html>")
    return "page.pdf"


@pytest.mark.parametrize("command", ["summarize", "ask", "ingest"])
@pytest.mark.parametrize(
    ("make", "code", "told"),
    [
        (missing, 2, "no such file or folder: 'nowhere.txt'"),
        (dangling_link, 2, "'link.txt' is a link to nothing"),
        (empty_file, 3, "nothing readable in 'empty.txt': the file is empty"),
        (blank_file, 3, "nothing but blank space"),
        (empty_folder, 3, "no file was found there"),
        (binary, 3, "not text"),
        (pipe, 3, "nothing readable in 'pipe'"),
        (scanned_pdf, 3, "nothing readable in 'scan.pdf'"),
        (encrypted_pdf, 3, "nothing readable in 'locked.pdf'"),
        (truncated_pdf, 3, "nothing readable in 'cut.pdf'"),
        (not_a_pdf, 3, "it is not a PDF inside"),
    ],
)
def test_what_cannot_be_read_is_refused(
    kvcli: Kvcli, tmp_path: Path, command: str, make: Callable[[Path], str], code: int, told: str
) -> None:
    name = make(tmp_path)
    arguments: dict[str, list[object]] = {
        "summarize": [name],
        "ask": ["--doc", name, "--session", "s.kv", "Why?"],
        "ingest": [name, "-o", "s.kv"],
    }
    check_refused(kvcli(command, *arguments[command]), code, told, tmp_path)


def test_an_encrypted_pdf_opens_with_its_password(kvcli: Kvcli, tmp_path: Path) -> None:
    name = encrypted_pdf(tmp_path)
    wrong = kvcli("summarize", name, "--password", "wrong")
    assert wrong.code == 3
    assert kvcli("summarize", *SHORT, name, "--password", "secret").code == 0


def test_empty_standard_input_is_refused(kvcli: Kvcli, tmp_path: Path) -> None:
    check_refused(kvcli("summarize", "-", stdin=b""), 3, "nothing readable", tmp_path)


def test_a_file_that_may_not_be_read_is_named(
    kvcli: Kvcli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so the refusal is the system's word alone."""
    (tmp_path / "secret.txt").write_text("text\n")
    real = os.open

    def refuse(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).endswith("secret.txt"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)
    check_refused(kvcli("summarize", "secret.txt"), 3, "Permission denied", tmp_path)


def test_text_that_is_not_utf_8_is_read_and_said(kvcli: Kvcli, tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes("Die Brücke 7.\n".encode("latin-1"))
    ran = kvcli("ask", *SHORT, "--doc", "old.txt", "--json", "Why?")
    assert ran.code == 0
    assert ran.json["warnings"] == ["old.txt: not UTF-8; read as cp1252",
                                    "the answer was cut at --max-tokens 4"]  # fmt: skip
    assert "warning: old.txt: not UTF-8; read as cp1252" in ran.err


def test_a_name_of_odd_bytes_and_markup_is_read(kvcli: Kvcli, tmp_path: Path) -> None:
    """A name that is not UTF-8, and one that would close the tag it stands in."""
    names = [os.fsencode(tmp_path) + b"/odd-\xff.txt", os.fsencode(tmp_path) + b'/a">[b]<.txt']
    for name in names:
        with open(name, "wb") as file:
            file.write(b"The pier is sound.\n")
    ran = kvcli("ask", *SHORT, "--repo", ".", "--session", "s.kv", "Why?")
    assert ran.code == 0
    sources = kvcli("inspect", "s.kv", "--json").json["notes"]["sources"]
    assert sources == ['a">[b]<.txt', "odd-\\xff.txt"]


# -- the question ----------------------------------------------------------------------------------


@pytest.mark.parametrize("question", ["", "  \n"])
def test_an_empty_question_is_refused(
    kvcli: Kvcli, notes: Path, tmp_path: Path, question: str
) -> None:
    """Also by resume, where no question at all means a chat."""
    check_refused(kvcli("ask", "--doc", notes, question), 2, "the question is empty", tmp_path)
    check_refused(kvcli("resume", "r.kv", question), 2, "the question is empty", tmp_path)


def test_a_question_of_odd_bytes_is_asked(kvcli: Kvcli, notes: Path) -> None:
    """From the command line they come as lone surrogates, from a chat's input they are replaced."""
    assert kvcli("ask", *SHORT, "--doc", notes, os.fsdecode(b"Br\xfccke?")).code == 0
    kvcli("ingest", notes, "-o", "s.kv")
    assert kvcli("resume", *SHORT, "s.kv", stdin=b"Br\xfccke?\n").code == 0


def test_ask_without_documents_is_refused(kvcli: Kvcli, tmp_path: Path) -> None:
    check_refused(kvcli("ask", "Why?"), 2, "no documents to ask", tmp_path)
    check_refused(
        kvcli("ask", "--session", "s.kv", "Why?"), 2, "s.kv: no such session file", tmp_path
    )


def test_a_chat_as_json_is_refused(kvcli: Kvcli) -> None:
    ran = kvcli("resume", "s.kv", "--json")
    assert ran.code == 2
    assert ran.json["error"]["message"] == "a chat has no single JSON result"


def no_standard_input() -> None:
    """What Python makes of a descriptor that was closed before the start."""
    sys.stdin = None  # type: ignore[assignment]


def test_a_closed_standard_input_is_refused(spawn: Spawn, tmp_path: Path) -> None:
    chat = spawn("resume", "r.kv", scenario=no_standard_input)
    read = spawn("summarize", "-", scenario=no_standard_input)
    check_refused(chat.end(), 2, "standard input is closed", tmp_path)
    check_refused(read.end(), 2, "standard input is closed", tmp_path)


def test_a_question_too_long_ends_a_chat_that_nobody_watches(kvcli: Kvcli, notes: Path) -> None:
    """A script has to learn of it by the exit code; what was answered before stays."""
    kvcli("ingest", notes, "-o", "kept.kv")
    ran = kvcli("resume", *SHORT, "kept.kv", stdin=b"Why?\n" + b"why " * 900 + b"\nWhy?\n")
    assert ran.code == 4
    assert "more than the window of 2,048" in ran.error[0]
    assert kvcli("inspect", "kept.kv", "--json").json["notes"]["turns"] == 1


# -- the model -------------------------------------------------------------------------------------


def test_an_unknown_model_is_refused(kvcli: Kvcli, notes: Path, tmp_path: Path) -> None:
    given = ["ingest", notes, "-o", "s.kv"]
    check_refused(kvcli(*given, model=Path("nonsense")), 1, 'unknown model "nonsense"', tmp_path)
    check_refused(kvcli(*given, model=tmp_path), 1, "config.json is missing", tmp_path)
    check_refused(kvcli(*given, model=notes), 1, "is not a GGUF file", tmp_path)


def test_a_model_whose_template_makes_no_conversation_is_refused(
    kvcli: Kvcli, notes: Path, tmp_path: Path, tiny_model: Path
) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "odd")
    (model / "chat_template.jinja").write_text("{{ raise_exception('only tools') }}")
    ran = kvcli("ingest", notes, "-o", "s.kv", model=model)
    check_refused(ran, 1, "its chat template does not render a plain conversation", tmp_path)
    assert "only tools" in ran.error[0]
