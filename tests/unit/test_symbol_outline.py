"""The outline in the header of a code file is short, in order, and never part of the text."""

from __future__ import annotations

from kvcli.corpus.code import CodeCutter
from kvcli.corpus.languages import language_of
from kvcli.corpus.spans import Document, DocumentKind
from kvcli.prompts import pieces_of
from kvcli.symbol_outline import MAX_CHARS, MAX_ENTRIES, MAX_SHARE, outline_of

FILLER = "    x = 'some code that is long enough to be worth an outline of its names'\n"


def document(path: str, text: str) -> Document:
    language = language_of(path, "")
    assert language is not None
    cut = CodeCutter().cut(text, language)
    return Document(
        path, DocumentKind.CODE, cut.spans, "0", len(text), (), cut.language, cut.parsed
    )


def function(name: str, indent: str = "", lines: int = 20) -> str:
    return f"{indent}def {name}():\n" + (indent + FILLER) * lines


def test_members_are_indented_below_what_holds_them() -> None:
    text = "class A:\n" + FILLER * 2 + function("m", "    ") + function("n", "    ")
    found = outline_of(document("a.py", text + function("f")))
    assert found == "[defines]\nA 1-45\n  m 4-24\n  n 25-45\nf 46-66\n"


def test_what_does_not_fit_is_left_out_from_the_inside_and_private_first() -> None:
    short = "".join(function(f"name_{at}", lines=1) for at in range(3))
    private = "".join(function(f"_private_{at}", lines=1) for at in range(30))
    tail = "".join(function(f"last_{at}", lines=1) for at in range(3))
    found = outline_of(document("a.py", short + private + tail)).splitlines()
    names = [line.split()[0] for line in found[1:]]
    assert [name for name in names if not name.startswith("_")] == [
        *(f"name_{at}" for at in range(3)),
        *(f"last_{at}" for at in range(3)),
    ]
    assert sum(name.startswith("_") for name in names) < 30


def test_an_outline_is_a_small_share_of_its_file() -> None:
    for count in (1, 5, 50, 1_000):
        text = "".join(function(f"a_rather_long_name_{at}", lines=3) for at in range(count))
        found = outline_of(document("a.py", text))
        body = found.removeprefix("[defines]\n")
        assert len(body) <= min(MAX_CHARS, MAX_SHARE * len(text))
        assert body.count("\n") <= MAX_ENTRIES


def test_small_files_data_tests_and_text_have_none() -> None:
    assert not outline_of(document("a.py", function("f") + function("g")))
    assert not outline_of(document("a.json", '{\n"a": [\n1,\n2],\n' * 9))
    assert not outline_of(document("a.py", "".join(function(f"test_{at}") for at in range(9))))
    assert not outline_of(document("a.lua", "function f()\nend\n" * 50))


def test_the_outline_is_scaffolding_and_no_source() -> None:
    found = document("a.py", "".join(function(name) for name in "fgh"))
    (header, _, span), *_ = pieces_of(found, "document")
    assert header == f'<document path="a.py">\n{outline_of(found)}'
    assert "f 1-21" in header
    assert span is None
    texts = [piece.text for _, _, piece in pieces_of(found, "document") if piece is not None]
    assert "".join(texts) == "".join(one.text for one in found.spans)
