"""Paths in, corpus out: every input is read or accounted for."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest
from corpus_kit import IMAGE, MakeTree, encrypted, pdf_bytes, png, write_pdf

from engine.errors import ConfigError, NothingReadable
from kvcli.corpus import corpus as corpus_module
from kvcli.corpus.corpus import (
    Corpus,
    DocumentKind,
    Parsed,
    Progress,
    SkipReason,
    read_corpus,
)


def refusal(*paths: Path | str) -> NothingReadable:
    with pytest.raises(NothingReadable) as caught:
        read_corpus(paths)
    assert "\n" not in caught.value.message
    return caught.value


def reasons(corpus: Corpus) -> dict[str, SkipReason]:
    return {skip.path: skip.reason for skip in corpus.skipped}


def test_files_of_every_kind_are_read_as_what_they_are(tree: MakeTree) -> None:
    root = tree(
        {
            "README.md": "# A\n",
            "a.py": "def f(): pass\n",
            "b.lua": "x\n",
            "c.txt": "x\n",
            "d.ipynb": '{"cells": [{"cell_type": "code", "source": "x"}]}',
            "e.pdf": pdf_bytes(["text"]),
        }
    )
    read = {doc.path: (doc.kind, doc.language, doc.parsed) for doc in read_corpus([root]).documents}
    assert read == {
        "README.md": (DocumentKind.MARKDOWN, None, None),
        "a.py": (DocumentKind.CODE, "python", Parsed.DEFINITIONS),
        "b.lua": (DocumentKind.CODE, "lua", Parsed.LINES),
        "c.txt": (DocumentKind.TEXT, None, None),
        "d.ipynb": (DocumentKind.NOTEBOOK, None, None),
        "e.pdf": (DocumentKind.PDF, None, None),
    }


def test_a_document_knows_its_bytes(tree: MakeTree) -> None:
    data = "\ufeffmän\r\n".encode()
    document = read_corpus([tree({"a.txt": data}) / "a.txt"]).documents[0]
    assert document.num_bytes == len(data)
    assert document.sha256 == hashlib.sha256(data).hexdigest()
    assert "".join(span.text for span in document.spans) == "män\r\n"


def test_a_pdf_is_hashed_too(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["text"])
    document = read_corpus([path]).documents[0]
    assert document.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert document.num_bytes == path.stat().st_size


def test_what_cannot_be_read_in_a_folder_is_listed_with_its_reason(tree: MakeTree) -> None:
    root = tree(
        {
            "ok.txt": "x\n",
            "empty.txt": "",
            "blank.txt": " \n\n",
            "noise.txt": bytes(range(256)),
            "image.png": png(),
            "scan.pdf": pdf_bytes([IMAGE]),
            "page.pdf": "<html>not a pdf</html>",
            "one-line.js": "x" * 20_000,
        }
    )
    corpus = read_corpus([root])
    assert [doc.path for doc in corpus.documents] == ["ok.txt"]
    assert reasons(corpus) == {
        "empty.txt": SkipReason.EMPTY,
        "blank.txt": SkipReason.EMPTY,
        "noise.txt": SkipReason.BINARY,
        "image.png": SkipReason.BINARY,
        "scan.pdf": SkipReason.SCANNED,
        "page.pdf": SkipReason.DAMAGED,
        "one-line.js": SkipReason.GENERATED,
    }


def test_a_long_line_in_a_named_file_is_read(tree: MakeTree) -> None:
    root = tree({"data.json": "[" + "1," * 9_000 + "1]"})
    assert len(read_corpus([root / "data.json"]).documents) == 1


def test_a_pdf_is_known_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    write_pdf(tmp_path / "report", ["text"])
    (tmp_path / "junk.pdf").write_bytes(b"\r\njunk\n" + pdf_bytes(["text"]))
    for name in ("report", "junk.pdf"):
        assert read_corpus([tmp_path / name]).documents[0].kind is DocumentKind.PDF


def test_source_that_mentions_a_pdf_header_is_source(tree: MakeTree) -> None:
    root = tree({"a.py": 'HEAD = b"%PDF-1.7"\n'})
    assert read_corpus([root]).documents[0].kind is DocumentKind.CODE


def test_legacy_text_is_read_with_a_warning(tree: MakeTree) -> None:
    corpus = read_corpus([tree({"a.txt": "Größe\n".encode("cp1252")})])
    assert corpus.documents[0].spans[0].text == "Größe\n"
    assert corpus.all_warnings() == ("a.txt: not UTF-8; read as cp1252",)


def test_a_damaged_notebook_is_read_as_text(tree: MakeTree) -> None:
    document = read_corpus([tree({"a.ipynb": '{"cells": [\n'})]).documents[0]
    assert document.kind is DocumentKind.TEXT
    assert document.warnings == ("not a notebook; read as text",)


def test_standard_input_is_text_or_pdf() -> None:
    corpus = read_corpus(["-"], stdin=io.BytesIO(b"piped\n"))
    assert (corpus.documents[0].path, corpus.documents[0].spans[0].text) == ("stdin", "piped\n")
    piped_pdf = read_corpus(["-"], stdin=io.BytesIO(pdf_bytes(["page one"])))
    assert piped_pdf.documents[0].spans[0].text == "page one\n"


def test_inputs_are_read_in_the_order_given(
    tree: MakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree({"b.txt": "b\n", "a.txt": "a\n", "d/c.txt": "c\n"}))
    corpus = read_corpus(["b.txt", "-", "d", "a.txt"], stdin=io.BytesIO(b"s\n"))
    assert [doc.path for doc in corpus.documents] == ["b.txt", "stdin", "c.txt", "a.txt"]


def test_a_file_that_fails_while_being_read_is_a_skip(
    tree: MakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree({"a.txt": "x\n", "b.txt": "x\n"})
    really_open = os.open

    def deny(path: str | Path, flags: int, *rest: int) -> int:
        if Path(path).name == "b.txt":
            raise PermissionError(13, "Permission denied")
        return really_open(path, flags, *rest)

    monkeypatch.setattr(os, "open", deny)
    corpus = read_corpus([root])
    assert reasons(corpus) == {"b.txt": SkipReason.UNREADABLE}
    assert corpus.skipped[0].detail == "Permission denied"


def test_a_file_that_became_a_link_since_it_was_listed_is_not_followed(
    tree: MakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree({"a.txt": "x\n", "b.txt": "y\n"})

    def swap(progress: Progress) -> None:
        if progress.files_done == 1:
            (root / "b.txt").unlink()
            (root / "b.txt").symlink_to("/etc/hostname")

    assert reasons(read_corpus([root], on_progress=swap)) == {"b.txt": SkipReason.UNREADABLE}


@pytest.mark.parametrize("limit", ["MAX_TEXT_BYTES", "MAX_STDIN_BYTES"])
def test_what_has_no_end_is_given_up(
    tree: MakeTree, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """A named file is read whatever its size, but no machine holds any size in memory."""
    monkeypatch.setattr(corpus_module, limit, 100)
    path = tree({"a.txt": "x" * 101}) / "a.txt"
    paths: list[Path | str] = [path] if limit == "MAX_TEXT_BYTES" else ["-"]
    with pytest.raises(NothingReadable, match="more than 100 bytes"):
        read_corpus(paths, stdin=io.BytesIO(b"x" * 101))
    path.write_text("x" * 100)
    assert read_corpus(paths, stdin=io.BytesIO(b"x" * 100)).documents


def test_progress_covers_files_and_pages(tree: MakeTree) -> None:
    root = tree({"a.txt": "x\n", "b.pdf": pdf_bytes(["one", "two"])})
    told: list[Progress] = []
    read_corpus([root], on_progress=told.append)
    assert [(one.files_done, one.num_files) for one in told] == [(0, 2), *[(1, 2)] * 3, (2, 2)]
    assert [(one.pages_done, one.num_pages) for one in told[2:4]] == [(1, 2), (2, 2)]


def test_no_path_at_all_is_a_usage_error() -> None:
    with pytest.raises(ConfigError):
        read_corpus([])


def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    error = refusal(empty)
    assert error.message == f"nothing readable in '{empty}': no file was found there"


def test_a_scan_gets_the_advice_to_recognise_its_text(tmp_path: Path) -> None:
    error = refusal(write_pdf(tmp_path / "scan.pdf", [IMAGE, IMAGE]))
    assert error.message.endswith("scan.pdf': all 2 pages are images without text")
    assert "ocrmypdf" in error.advice


def test_an_encrypted_pdf_gets_the_advice_to_give_a_password(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "a.pdf", ["x"], user_password="sesame")
    assert "--password" in refusal(path).advice
    assert read_corpus([path], password="sesame").documents


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.txt", b"", "the file is empty"),
        ("a.txt", b"\x7fELF\0\0", "an ELF program"),
        ("a.pdf", b"%PDF-1.7 cut", "cannot be opened as a PDF"),
        ("a.pdf", b"<html>", "it is not a PDF inside"),
    ],
)
def test_one_bad_file_is_told_in_one_line(
    tmp_path: Path, name: str, data: bytes, told: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert told in refusal(path).message


def test_many_bad_files_are_summed_up(tree: MakeTree) -> None:
    root = tree({"a.bin": b"\0", "b.bin": b"\0", "c.txt": ""})
    assert refusal(root).message == f"nothing readable in '{root}': 2 binary, 1 empty"
