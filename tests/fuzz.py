"""Fuzz every reader of documents: random files, and real ones with bytes changed.

    python tests/fuzz.py --minutes 10

Each target takes its share of the time. A failure is printed with the file that caused it, made as
small as possible, and the next target goes on; a reader that hangs ends the run with a traceback of
where it hangs. The suite runs the same targets for some examples each (property/test_readers.py).
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent / "unit" / "corpus"))
from corpus_kit import IMAGE, pdf_bytes

from engine.errors import NothingReadable
from kvcli.corpus.corpus import Document, DocumentKind, read_corpus
from kvcli.corpus.decode import Decoded, decode
from kvcli.corpus.pdf_process import WorkerLimits
from kvcli.corpus.text import split_lines

HANG_SECONDS = 60
MEMORY_BYTES = 4 << 30
LIMITS = WorkerLimits(silence_seconds=10, base_seconds=20, max_restarts=1)
AS_THEY_ARE = (DocumentKind.TEXT, DocumentKind.MARKDOWN, DocumentKind.CODE)
"""Kinds whose spans, joined, are the text of the file."""

SUFFIXES = [
    "txt",
    "md",
    "rst",
    "py",
    "js",
    "ts",
    "tsx",
    "go",
    "rs",
    "java",
    "c",
    "h",
    "cpp",
    "cs",
    "rb",
    "php",
    "sh",
    "sql",
    "html",
    "css",
    "json",
    "yaml",
    "toml",
    "ipynb",
    "csv",
    "tsv",
    "eml",
    "epub",
    "docx",
    "xml",
    "pdf",
    "unknown",
]
SEEDS = {
    "py": "import os\n\n\n@once\nclass A:\n    # a\n    def m(self):\n        return '''x'''\n" * 9,
    "js": "export class A {\n  m() { return `a${b}` }\n}\nconst g = () => {\n};\n/* c */\n" * 9,
    "ts": "interface I { a: string }\nexport type T<X> = X;\nnamespace n {\n}\n@d class B {}\n" * 9,
    "go": "package a\n\n// F does.\nfunc (s *S[T]) F() {}\ntype (\n\tA int\n)\n" * 9,
    "rs": "#[a]\nimpl<T> X for Y {\n    fn f() {}\n}\nmod m { struct S; }\nr#\"x\"#;\n" * 9,
    "java": "/** D */\n@A class B {\n  int f() { return 1; }\n  enum E { X }\n}\n" * 9,
    "cpp": "template <class T>\nclass A : B {\n  void f();\n};\nnamespace n {\nint g() {}\n}\n" * 9,
    "c": "#ifdef X\nstatic int f(int *a) { return 0; }\n#endif\nstruct s { int a; };\n" * 9,
    "rb": "class A\n  def m\n    <<~X\n    y\n    X\n  end\nend\n" * 9,
    "php": "<?php\nclass A { function f() {} }\n?>\n<b>x</b>\n" * 9,
    "cs": "namespace N {\n  class A { int F() => 1; }\n}\n" * 9,
    "sh": "#!/bin/sh\nf() {\n  cat <<X\n$a\nX\n}\n" * 9,
    "sql": "CREATE TABLE a (b int);\nSELECT 1;\n" * 9,
    "html": "<html><head><title>t</title></head><body><h1>a</h1><p>b &amp; c<script>x</script>" * 9,
    "css": "a { b: c }\n@media x { d { e: f } }\n" * 9,
    "json": '{"a": [1, {"b": null}], "c": "\\ud83d"}\n' * 9,
    "yaml": "a:\n  - b: &x c\n  - *x\n---\nd: |\n  e\n" * 9,
    "toml": '[a]\nb = "c"\n[[d]]\ne = 1\n' * 9,
    "md": "# A\n\ntext\n\n```py\n# no\n```\n\nB\n---\n\n| a | b |\n|---|---|\n" * 9,
    "csv": 'a,b\n1,"x\ny"\n2,\n' * 9,
    "eml": "From: a\nSubject: =?utf-8?q?b?=\nContent-Type: text/plain\n\nbody\n",
    "ipynb": json.dumps({"nbformat": 4, "cells": [
        {"cell_type": "markdown", "source": ["# T\n", "x"]},
        {"cell_type": "code", "source": "1\n2", "outputs": [
            {"output_type": "stream", "text": ["a\n"]},
            {"output_type": "display_data", "data": {"image/png": "AAAA", "text/plain": "b"}},
            {"output_type": "error", "ename": "E", "evalue": "\ud83d", "traceback": []}]}]}),
}  # fmt: skip
ENCODINGS = [
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-16-le",
    "utf-32",
    "cp1252",
    "latin-1",
    "cp1251",
    "koi8_r",
    "shift_jis",
    "euc_jp",
    "gb18030",
    "big5",
    "euc_kr",
    "iso8859_7",
    "utf_7",
    "cp437",
    "mac_roman",
]


@cache
def pdf_seeds() -> list[bytes]:
    """Real PDFs: text, pictures, many pages, one page."""
    lines = "\n".join(f"Line {i} of the page, with words in-\nside." for i in range(20))
    return [pdf_bytes(pages) for pages in (["one"], [lines, IMAGE, "", lines], ["x"] * 30)]


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "repeat", "end"]),
        st.floats(0, 1),
        st.integers(1, 400),
        st.binary(max_size=8) | st.sampled_from([b"\n", b"{", b"(", b"\xff", b'"', b"[[", b"/*"]),
    ),
    max_size=8,
)
Edits = list[tuple[str, float, int, bytes]]


def edited(data: bytes, edits: Edits) -> bytes:
    """The data with each change made in turn."""
    for what, share, size, new in edits:
        at = int(share * len(data))
        if what == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (size & 255)]) + data[at + 1 :]
        elif what == "cut":
            data = data[:at] + data[at + size :]
        elif what == "insert":
            data = data[:at] + new * size + data[at:]
        elif what == "repeat":
            data = data[:at] + data[at : at + size] * 9 + data[at:]
        elif what == "end":
            data = data[:at]
    return data


def check(name: str, data: bytes) -> None:
    """Read one file, named and as a folder's only one; whatever is read must be sound."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        for what in (path, Path(folder)):
            try:
                corpus = read_corpus([what], limits=LIMITS)
            except NothingReadable as error:
                assert "\n" not in error.message
                continue
            for warning in corpus.all_warnings():
                warning.encode()
            (document,) = corpus.documents
            check_document(document, data)
    assert time.monotonic() - started < HANG_SECONDS


def check_document(document: Document, data: bytes) -> None:
    """The invariants of spans: whole text, in order, true places, names of bounded length."""
    assert document.spans
    document.path.encode()
    for span in document.spans:
        span.text.encode()
        assert span.text
        for name in (span.name, span.label):
            assert len(name or "") < 3_000
            (name or "").encode()
    if document.kind is DocumentKind.PDF:
        pages = [span.page for span in document.spans]
        assert None not in pages and pages == sorted(set(pages))
        assert not any("\x00" in span.text or "\x1b" in span.text for span in document.spans)
    if document.kind not in AS_THEY_ARE:
        return
    decoded = decode(data)
    assert isinstance(decoded, Decoded)
    assert "".join(span.text for span in document.spans) == decoded.text
    lines, expected = split_lines(decoded.text), 1
    for span in document.spans:
        assert span.lines is not None and span.lines[0] == expected
        assert span.text == "".join(lines[expected - 1 : span.lines[1]])
        expected = span.lines[1] + 1
    assert expected == len(lines) + 1


Property = Callable[..., None]
TARGETS: dict[str, tuple[Property, tuple[st.SearchStrategy[Any], ...]]] = {}
"""What is fuzzed, by name, and with what."""


def fuzzed(*strategies: st.SearchStrategy[Any]) -> Callable[[Property], Property]:
    """Make a function a target."""

    def enter(target: Property) -> Property:
        TARGETS[target.__name__] = target, strategies
        return target

    return enter


@fuzzed(st.sampled_from(SUFFIXES), st.binary(max_size=2_000))
def random_bytes(suffix: str, data: bytes) -> None:
    """Any bytes under any name."""
    check(f"a.{suffix}", data)


@fuzzed(st.sampled_from(sorted(SEEDS)), st.sampled_from(SUFFIXES) | st.none(), EDITS)
def changed_files(kind: str, suffix: str | None, edits: Edits) -> None:
    """Files of every kind, changed, at times under another's name."""
    check(f"a.{suffix or kind}", edited(SEEDS[kind].encode("utf-8", "replace"), edits))


@fuzzed(st.sampled_from(sorted(SEEDS)), st.integers(0, 1 << 30), st.integers(1, 3_000))
def shuffled_files(kind: str, number: int, size: int) -> None:
    """Pieces of the files in any order: nested, unclosed, repeated."""
    chance, words = random.Random(number), SEEDS[kind].split(" ")
    check(f"a.{kind}", " ".join(chance.choices(words, k=size)).encode("utf-8", "replace"))


@fuzzed(st.sampled_from(ENCODINGS), st.sampled_from(["txt", "md", "py"]), st.text(), EDITS)
def encodings(encoding: str, suffix: str, text: str, edits: Edits) -> None:
    """Text in the encodings that people have, whole and damaged."""
    check(f"a.{suffix}", edited((text * 9).encode(encoding, "ignore"), edits))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["source", "outputs", "cell_type", "text", "data", "image/png", "output_type"]
            ),
            inner,
        )
    ),
)


@fuzzed(st.lists(JSON, max_size=6))
def notebooks(cells: list[object]) -> None:
    """Notebooks whose fields hold what they should not."""
    check("a.ipynb", json.dumps({"cells": cells}).encode())


@fuzzed(st.integers(0, 2), EDITS)
def changed_pdfs(which: int, edits: Edits) -> None:
    """Real PDFs with bytes changed, cut and repeated."""
    check("a.pdf", edited(pdf_seeds()[which], edits))


def bounded(name: str, examples: int, start: int = 0) -> Callable[[], None]:
    """A target for some examples; the same start gives the same ones."""
    target, strategies = TARGETS[name]
    bounds = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    return seed(start)(bounds(given(*strategies)(target)))


def fuzz(name: str, seconds: float) -> tuple[int, bool]:
    """Run a target for a time; how many examples there were, and whether all held."""
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        faulthandler.dump_traceback_later(20 * HANG_SECONDS, exit=True)
        try:
            bounded(name, 25, time.monotonic_ns())()
        except Exception:
            traceback.print_exc()
            return rounds * 25, False
        rounds += 1
    return rounds * 25, True


def main() -> int:
    """Fuzz every target, or those named; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="of all targets together")
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    names = arguments.targets or list(TARGETS)
    all_held = True
    for name in names:
        examples, held = fuzz(name, arguments.minutes * 60 / len(names))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(f"{name}: {examples:,} examples, {'held' if held else 'FAILED'}, {peak} MiB at most")
        all_held = all_held and held
    return 0 if all_held else 1


if __name__ == "__main__":
    sys.exit(main())
