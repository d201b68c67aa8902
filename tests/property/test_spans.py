"""Spans cover a file exactly once, in order, with the line numbers `nl` would give."""

from __future__ import annotations

import json
import os
import sysconfig
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvcli.corpus.code import DEFINITION, CodeCutter
from kvcli.corpus.decode import Decoded, decode
from kvcli.corpus.languages import language_of
from kvcli.corpus.notebook import cut_notebook
from kvcli.corpus.pdf_text import Hyphens, tidy
from kvcli.corpus.spans import Span
from kvcli.corpus.text import PROSE, CutSize, cut_markdown, cut_text, split_lines

PIECES = [
    "\n", "\r\n", "\r", "\n\n", " ", "\t", "    ", "\x0c", "\u2028", "日本語", "🎉", "\ufeff",
    "# ", "## T\n", "```\n", "===\n", "---\n", "// c\n", "/* d */\n", "@d\n", "#[a]\n", "x = 1\n",
    "def f():\n    pass\n", "class A:\n", "    def m(self): pass\n", "function f() {}\n", "};\n",
    "class B {\n", "  m() {}\n", "}\n", "{", "(", ")", "'", '"', "const g = () => {\n",
    "func (s *S) M() {\n", "impl T for S {\n", "fn h() {}\n", "template <class T>\n", "#ifdef X\n",
    "#endif\n", "namespace n {\n", "void k(int);\n", "  int y;\n" * 45, "    z = 1\n" * 130,
    "w" * 4_100, "<?php\n", "namespace A;\n", "?>\n", "end\n", "module M\n", "  def m; end\n",
    "f() {\n", "fi\n", "if x; then\n", ".a {\n", "  b: c;\n", "@media x {\n", "<div id=a>\n",
    "</div>\n", "<section>", "<!-- ", "-->\n", '"a": {\n', '"b": [\n', "],\n", "},\n", "k:\n",
    "  - x\n", "  # c\n", "s: |\n", "---\n", "[t]\n", "[[z]]\n", "create table t (a int);\n",
    "-- c\n", "begin;\n", "commit;\n", "$$", "using X;\n",
]  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
)
SUFFIXES = [
    ".py", ".js", ".jsx", ".ts", ".tsx", ".go", ".rs", ".java", ".c", ".h", ".cpp", ".cs", ".rb",
    ".php", ".sh", ".css", ".html", ".json", ".yaml", ".toml", ".sql", ".lua",
]  # fmt: skip
CUTTER = CodeCutter()
PLACES = ("/usr/share", sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
"""Where files of many languages lie on most machines."""
FILES_OF_A_LANGUAGE = 12


def check(spans: Sequence[Span], text: str, size: CutSize = PROSE) -> None:
    lines = split_lines(text)
    assert "".join(span.text for span in spans) == text
    expected = 1
    for span in spans:
        assert span.lines is not None
        first, last = span.lines
        assert first == expected
        assert span.text == "".join(lines[first - 1 : last])
        assert span.text
        assert last - first < size.max_lines
        assert len(span.text) <= size.max_chars or first == last
        expected = last + 1
    assert expected == len(lines) + 1


def check_code(path: str, text: str) -> None:
    language = language_of(path, text.split("\n", 1)[0])
    assert language is not None
    check(CUTTER.cut(text, language).spans, text, DEFINITION)


@given(TEXTS)
@settings(deadline=None, max_examples=60)
def test_text_and_markdown(text: str) -> None:
    check(cut_text(text), text)
    check(cut_markdown(text), text)


@given(TEXTS, st.sampled_from(SUFFIXES))
@settings(deadline=None, max_examples=300)
@example("function a(){} function b(){}", ".js")
@example("class A {" + "\n" * 60 + "m(){} }", ".ts")
def test_code(text: str, suffix: str) -> None:
    check_code("a" + suffix, text)


@cache
def sample() -> dict[str, list[Path]]:
    """Some files of each language that this machine happens to have, no more than a few a place."""
    found: dict[str, list[Path]] = {}
    for place in PLACES:
        here: Counter[str] = Counter()
        for folder, _, names in os.walk(place):
            for name in names:
                suffix = os.path.splitext(name)[1]
                if suffix in (*SUFFIXES, ".md") and here[suffix] < FILES_OF_A_LANGUAGE:
                    here[suffix] += 1
                    found.setdefault(suffix, []).append(Path(folder, name))
    return found


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".md"])
def test_files_that_people_wrote(suffix: str) -> None:
    """Whatever a machine has; the random ones above stand in where it has none."""
    for path in sample().get(suffix, ()):
        decoded = decode(path.read_bytes()[:100_000])
        if not isinstance(decoded, Decoded):
            continue
        if suffix == ".md":
            check(cut_markdown(decoded.text), decoded.text)
        else:
            check_code(str(path), decoded.text)


@given(TEXTS, st.sampled_from(SUFFIXES))
@settings(deadline=None, max_examples=60)
def test_line_numbers_are_those_of_nl(text: str, suffix: str) -> None:
    r"""`nl` and editors count "\n" alone; a file without any "\n" is counted by its "\r"."""
    numbered = dict(enumerate(text.split("\n"), start=1))
    language = language_of("a" + suffix, "")
    assert language is not None
    for span in CUTTER.cut(text, language).spans if "\n" in text else ():
        assert span.lines is not None
        rows = [numbered[row] for row in range(span.lines[0], span.lines[1] + 1)]
        assert span.text.removesuffix("\n") == "\n".join(rows)


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=200)
def test_decoding_loses_no_byte(data: bytes) -> None:
    decoded = decode(data)
    if isinstance(decoded, Decoded):
        assert data.endswith(decoded.text.encode(decoded.encoding))


@given(TEXTS)
@settings(deadline=None)
def test_utf8_encodes_back_to_the_file(text: str) -> None:
    data = text.encode()
    decoded = decode(data)
    if isinstance(decoded, Decoded):
        assert decoded.encoding == "utf-8"
        assert decoded.text.encode() == data.removeprefix(b"\xef\xbb\xbf")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["source", "outputs", "cell_type", "text", "data", "image/png"]), inner
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=5))
@settings(deadline=None)
def test_no_notebook_makes_the_reader_fail(cells: list[object]) -> None:
    assert cut_notebook(json.dumps({"cells": cells})) is not None


@given(st.lists(st.text(st.sampled_from("ab-\ufffe\x02\n\ud800ﬁ A1"), max_size=30), max_size=3))
def test_repaired_pdf_text_is_plain(pages: list[str]) -> None:
    tidied = [tidy(page) for page in pages]
    hyphens = Hyphens(tidied)
    for page in tidied:
        resolved = hyphens.resolve(page)
        resolved.encode("utf-8")
        assert not set("\ufffe\x02ﬁ\r") & set(resolved)
