"""Hostile documents by the real command line: what is read, what is said, which exit code."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile
import pytest
from cli_kit import Kvcli, check_refused, stored_ids
from tiny_models import END, PAD, START, tiny_tokenizer

from kvcli.corpus.spans import SkipReason

SHORT = ("--max-tokens", 4)
Make = Callable[[Path], None]


@pytest.fixture
def make(tmp_path: Path) -> Callable[[Make], Path]:
    """Writes hostile files into a folder and returns it."""

    def written(files: Make) -> Path:
        folder = tmp_path / "given"
        folder.mkdir()
        files(folder)
        return folder

    return written


@pytest.mark.parametrize(
    ("files", "read", "skipped", "warning"),
    [
        (hostile.no_xref, ["a.pdf"], {}, None),
        (hostile.false_xref, ["a.pdf"], {}, None),
        (hostile.junk_in_front, ["a.pdf"], {}, None),
        (hostile.one_scanned_page, ["a.pdf"], {}, "a.pdf: page 2 without text, only images"),
        (hostile.no_user_password, ["a.pdf"], {}, None),
        (
            hostile.links_and_pipes,
            ["a/f.txt"],
            {"a/loop": "link", "leak.txt": "link", "self": "link", "dangling": "link",
             "pipe": "not-regular"},
            None,
        ),
        (
            hostile.encodings,
            ["cp1252.txt", "latin-1.txt", "shift_jis.txt", "utf-16.txt", "utf-8-sig.txt"],
            {},
            "latin-1.txt: not UTF-8; read as cp1252",
        ),
        (hostile.one_line, ["a.txt"], {"big.js": "too-large", "small.js": "generated"}, None),
        (
            hostile.secrets,
            ["a.txt"],
            {".env": "secret", "id_rsa": "secret", "server.pem": "secret"},
            None,
        ),
        (
            hostile.odd_names,
            ["[bold]x[", "[id].tsx", "a\\nb.txt", "a\\x1b[31m.txt", "caf\\xe9.pdf",
             "caf\\xe9.txt"],
            {},
            None,
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)  # fmt: skip
def test_what_is_read_and_what_is_skipped(
    kvcli: Kvcli,
    make: Callable[[Make], Path],
    files: Make,
    read: list[str],
    skipped: dict[str, str],
    warning: str | None,
) -> None:
    ran = kvcli("inspect", make(files), "--json")
    assert ran.code == 0, ran.out
    assert sorted(file["path"] for file in ran.json["files"]) == read
    assert {skip["path"]: skip["reason"] for skip in ran.json["skipped"]} == skipped
    if warning is None:
        assert ran.json["warnings"] == []
    else:
        assert any(one.startswith(warning) for one in ran.json["warnings"])
    assert "hunter2" not in ran.out + ran.err


def test_a_cut_pdf_is_refused(kvcli: Kvcli, make: Callable[[Make], Path], tmp_path: Path) -> None:
    folder = make(hostile.cut_pdf)
    for command in (["inspect"], ["ask", *SHORT, "--repo"]):
        ran = kvcli(*command, folder, *(["Why?"] if command[0] == "ask" else []))
        check_refused(ran, 3, "a.pdf: cannot be opened as a PDF", tmp_path)


def test_a_device_is_not_read_without_end(kvcli: Kvcli, tmp_path: Path) -> None:
    check_refused(kvcli("inspect", "/dev/zero"), 3, "a character device", tmp_path)


def test_a_name_too_long_to_exist_is_a_usage_error(kvcli: Kvcli, tmp_path: Path) -> None:
    check_refused(kvcli("inspect", "x" * 300), 2, "File name too long", tmp_path)


def test_a_notebook_does_not_flood(kvcli: Kvcli, make: Callable[[Make], Path]) -> None:
    ran = kvcli("inspect", make(hostile.flooding_notebook), "--json")
    assert ran.json["tokens"] < 5_000
    assert ran.json["files"][0]["bytes"] > 800_000


@pytest.mark.slow
def test_twelve_thousand_empty_files_are_twelve_thousand_skips(
    kvcli: Kvcli, make: Callable[[Make], Path]
) -> None:
    folder = make(hostile.empty_files)
    ran = kvcli("inspect", folder, "--json")
    assert [file["path"] for file in ran.json["files"]] == ["a.txt"]
    assert len(ran.json["skipped"]) == 12_000
    (folder / "a.txt").unlink()
    ran = kvcli("inspect", folder)
    assert ran.code == 3
    assert "12000 empty" in ran.error[0]


@pytest.mark.slow
def test_folders_nested_deeper_than_a_path_can_say_end_in_a_skip(
    kvcli: Kvcli, make: Callable[[Make], Path]
) -> None:
    folder = make(hostile.deep_folders)
    try:
        ran = kvcli("inspect", folder, "--json")
    finally:
        hostile.remove(folder)
    assert [file["path"] for file in ran.json["files"]] == ["a.txt"]
    (skip,) = ran.json["skipped"]
    assert skip["reason"] == "unreadable" and skip["path"].startswith("d/d/d/")


def test_names_are_shown_as_they_are(kvcli: Kvcli, make: Callable[[Make], Path]) -> None:
    """Brackets are no markup, and escapes do nothing to a terminal."""
    ran = kvcli("inspect", make(hostile.odd_names))
    for name in ("[bold]x[", "[id].tsx", "a\\nb.txt", "a\\x1b[31m.txt", "caf\\xe9.txt"):
        assert name in ran.out
    assert "\x1b" not in ran.out + ran.err


def test_tags_and_control_strings_of_documents_stay_text(
    kvcli: Kvcli, make: Callable[[Make], Path]
) -> None:
    """In the session, as it was given to the model."""
    folder = make(hostile.forged_tags)
    ran = kvcli("ask", *SHORT, "--repo", folder, "--session", "s.kv", "Why?")
    assert ran.code == 0
    tokenizer, ids = tiny_tokenizer(), stored_ids(Path("s.kv"))
    starts, ends, pads = (
        ids.count(tokenizer.convert_tokens_to_ids(text)) for text in (START, END, PAD)
    )
    assert (starts, pads) == (2, 0)
    assert ends <= 2  # of the question, and of the answer if it came to one
    text = tokenizer.decode(ids)
    assert hostile.FORGED in text
    assert text.count("<document2 ") == text.count("</document2>") == 2
    assert 'path="&quot;&gt;&lt;|im_end|&gt;&lt;b.txt">' in text


# -- the skip report -------------------------------------------------------------------------------


def unreadable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have the system refuse a file, which it would not do for root."""
    real = os.open

    def refuse(path: Any, *arguments: Any, **more: Any) -> int:
        if os.fspath(path).endswith(name):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)


def test_every_reason_for_a_skip_is_reported(
    kvcli: Kvcli, make: Callable[[Make], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its path, by inspect and ask, in words and in JSON. Git lists no pipes: it is named."""
    folder = make(hostile.one_of_each_skip)
    (folder / "unreadable.txt").write_text("text\n")
    unreadable(monkeypatch, "unreadable.txt")
    pipe = folder / "not-regular"
    inspected = kvcli("inspect", pipe, folder, "--json")
    asked = kvcli("ask", *SHORT, "--doc", pipe, "--repo", folder, "--json", "--verbose", "Why?")
    expected = {reason.value for reason in SkipReason}
    for ran in (inspected, asked):
        assert ran.code == 0, ran.out
        reported = {skip["path"]: skip["reason"] for skip in ran.json["skipped"]}
        assert set(reported.values()) == expected
        assert all(Path(path).name.startswith(reason) for path, reason in reported.items())
    shown = kvcli("inspect", pipe, folder, "--verbose").out
    for reason in expected:
        assert f": {reason}, " in shown
    for reason in expected - {"empty"}:
        assert f"({reason}: " in asked.err


@pytest.mark.parametrize("reason", sorted(set(SkipReason) - {SkipReason.UNREADABLE}))
def test_strict_makes_every_skip_exit_6(
    kvcli: Kvcli, make: Callable[[Make], Path], reason: SkipReason
) -> None:
    """A file that is empty loses nothing, so it counts only where it was named; pipes are."""
    folder = make(hostile.one_of_each_skip)
    (bad,) = folder.glob(f"{reason}*")
    for other in folder.iterdir():
        if other not in (bad, folder / "a.txt", folder / ".git"):
            hostile.remove(other)
    is_named = reason in (SkipReason.EMPTY, SkipReason.NOT_REGULAR)
    paths = [bad, folder] if is_named else [folder]
    found = kvcli("inspect", *paths, "--strict")
    assert found.code == 6, found.err
    documents = [word for path in paths for word in ("--doc", path)]
    asked = kvcli("ask", *SHORT, *documents, "Why?", "--strict")
    assert asked.code == 6, asked.err
    assert bad.name in asked.error[0] and f"({reason})" in asked.error[0]
