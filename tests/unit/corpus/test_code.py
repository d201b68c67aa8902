"""Code is cut at definitions, and nothing between them is lost."""

from __future__ import annotations

import time

import pytest

from kvcli.corpus import code as code_module
from kvcli.corpus.code import CodeCut, CodeCutter
from kvcli.corpus.grammars import Grammar
from kvcli.corpus.languages import Language, language_of
from kvcli.corpus.spans import Parsed


def cut(path: str, text: str) -> CodeCut:
    language = language_of(path, text.split("\n")[0])
    assert language is not None
    found = CodeCutter().cut(text, language)
    assert "".join(span.text for span in found.spans) == text
    return found


def named(path: str, text: str) -> list[tuple[tuple[int, int] | None, str | None]]:
    return [(span.lines, span.name) for span in cut(path, text).spans]


def test_python_decorators_and_comments_stay_with_their_definition() -> None:
    text = "import os\n\n# far\n\n# near\n@once\ndef f():\n    pass\n\n\nclass A:\n    x = 1\n"
    assert named("a.py", text) == [((1, 4), None), ((5, 10), "f"), ((11, 12), "A")]


def test_a_comment_behind_code_stays_with_that_code() -> None:
    text = "x = 1  # the x\ndef f(): pass\n"
    assert named("a.py", text) == [((1, 1), None), ((2, 2), "f")]


def test_a_big_class_is_cut_at_its_methods() -> None:
    fields = "    x = 1\n" * 50
    text = f"class Scheduler:\n{fields}    # go on\n    def step(self):\n        pass\n    y = 2\n"
    assert named("a.py", text) == [
        ((1, 51), "Scheduler"),
        ((52, 54), "Scheduler.step"),
        ((55, 55), "Scheduler"),
    ]


def test_a_huge_function_is_split_and_keeps_its_name() -> None:
    text = "def f():\n" + "    x = 1\n" * 300
    spans = cut("a.py", text).spans
    assert [span.name for span in spans] == ["f"] * 3
    assert [span.lines for span in spans] == [(1, 120), (121, 240), (241, 301)]


def test_line_numbers_hold_with_wide_characters_and_windows_line_ends() -> None:
    text = "# 日本語 🎉\r\n\r\ndef f():\r\n    return '日本'\r\ndef g(): pass"
    assert named("a.py", text) == [((1, 2), None), ((3, 4), "f"), ((5, 5), "g")]


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("a.js", "export const f = () => 1;\nconst k = 2;\nclass A { m() {} }\n", ["f", None, "A"]),
        ("a.jsx", "export default function App() { return <b>x</b>; }\n", ["App"]),
        (
            "a.ts",
            "interface I { x: string }\n@d()\nexport class B<T> { m(): T }\ntype U = 1;\n",
            ["I", "B", "U"],
        ),
        ("a.tsx", "export function V(p: P) { return <a {...p}/>; }\n", ["V"]),
        (
            "a.go",
            "package p\ntype S[T any] struct{}\n// doc\nfunc (s *S[T]) Step() {}\nfunc F() {}\n",
            [None, "S", "S.Step", "F"],
        ),
        (
            "a.rs",
            "use a;\n/// doc\n#[test]\nfn f() {}\nimpl<T> D for S<T> { fn g() {} }\nmod x;\n",
            [None, "f", "S", None],
        ),
        (
            "A.java",
            "package p;\n/** doc */\n@Ann\npublic class A { void m() {} }\nrecord R(int x) {}\n",
            [None, "A", "R"],
        ),
        (
            "a.c",
            "#ifdef X\nstatic int *f(int a)\n{\n  return 0;\n}\n#endif\nstruct s { int a; };\n",
            [None, "f", None, "s"],
        ),
        (
            "a.cpp",
            "template <class T>\nclass V { };\nint V::get() const { return 1; }\nclass F;\n",
            ["V", "V::get", None],
        ),
        (
            "a.cs",
            "using X;\nnamespace N.M;\n/// doc\n[At]\nclass C<T> { void F() {} }\nrecord R(int x);",
            [None, "N.M.C", "N.M.R"],
        ),
        (
            "a.rb",
            "require 'x'\n# doc\nmodule A::B\n  def m; end\nend\nclass C; end\ndef top; end\n",
            [None, "A::B", "C", "top"],
        ),
        (
            "a.php",
            "<?php\nnamespace A\\B;\n/** doc */\n#[X]\nclass C { function m() {} }\ntrait T {}\n"
            "if (x()) {\n  function g() {}\n}\n",
            [None, "A\\B\\C", "A\\B\\T", None, "A\\B\\g"],
        ),
        (
            "a.sh",
            "set -e\n\n# doc\nfoo() {\n  echo 1\n}\nfunction bar {\n  foo\n}\nbar\n",
            [None, "foo", "bar", None],
        ),
        (
            "a.css",
            "/* doc */\n.a, .b > c {\n  x: y;\n}\n.d {}\n@media (w: 1px) {\n  .e {}\n}\n"
            "@keyframes k {\n  from {}\n}\n",
            [".a, .b > c", None, "@media (w: 1px)", "@keyframes k"],
        ),
        (
            "a.html",
            "<html><head>\n<title>T</title>\n</head>\n<body>\n<!-- doc -->\n<div id='x'>\n<p>\n"
            "</div>\n<section>\n<h2>Use</h2>\n</section>\n</body></html>\n",
            ["head T", None, "#x", "section Use", None],
        ),
        (
            "a.json",
            '{\n  "v": 1,\n  "a": {\n    "b": 2\n  },\n  "c": [\n    3\n  ]\n}\n',
            [None, "a", "c"],
        ),
        (
            "a.yaml",
            "# doc\na:\n  b: 1\n  # in a\n# doc\n'c d':\n  - 1\n  - 2\n\n# far\n\ne: 3\n",
            ["a", "c d", None],
        ),
        (
            "a.toml",
            "v = 1\n# doc\n[t]\nx = 1\n# doc\n[t.'u v']\ny = 2\n\n# far\n\n[[z]]\nw = 1\n",
            [None, "t", "t.'u v'", None, "z"],
        ),
        (
            "a.sql",
            "/* doc */\ncreate table if not exists s.t (a int);\ninsert into t values (1);\n"
            "begin;\n-- doc\nCREATE UNIQUE INDEX i ON t (a);\ncommit;\n"
            'create view "my v" as select 1;\n',
            ["s.t", None, "i", None, '"my v"'],
        ),
    ],
)
def test_each_language_names_its_definitions(path: str, text: str, names: list[str | None]) -> None:
    found = cut(path, text)
    assert [span.name for span in found.spans] == names
    assert found.parsed is Parsed.DEFINITIONS


def test_members_are_qualified_in_the_language_s_own_way() -> None:
    filler = "  int a;\n" * 50
    text = f"namespace n {{\nclass C {{\n{filler}  void go() {{}}\n}};\n}}\n"
    assert "n::C::go" in [span.name for span in cut("a.hpp", text).spans]


def test_methods_of_a_ruby_class_are_told_from_those_of_its_instances() -> None:
    text = (
        "module M\n" + "  X = 1\n" * 45 + "  class C\n" + "    Y = 1\n" * 45 + "    # doc\n"
        "    def a\n    end\n    def self.b\n    end\n    private def c\n    end\n"
        "    class << self\n      def d\n      end\n    end\n  end\nend\n"
    )
    found = [name for _, name in named("a.rb", text)]
    assert found[:5] == ["M", "M::C", "M::C#a", "M::C.b", "M::C#c"]
    assert "M::C.d" in found


def test_methods_of_php_and_nameless_members_of_c_sharp_have_names() -> None:
    text = "<?php\nnamespace A;\nclass C {\n" + "  public $x;\n" * 45 + "  function m() {\n  }\n}\n"
    assert "A\\C::m" in [name for _, name in named("a.php", text)]
    text = (
        "class C {\n" + "  int x;\n" * 45 + "  ~C() {}\n  int this[int i] => 1;\n"
        "  public static C operator +(C a, C b) => a;\n  int P { get; }\n}\n"
    )
    assert [name for _, name in named("a.cs", text)] == [
        "C",
        "C.~C",
        "C.this[]",
        "C.operator +",
        "C",
    ]


def test_a_large_value_is_cut_at_its_members_and_a_long_list_by_lines() -> None:
    member = '    "m": {\n      "x": 1\n    },\n'
    text = (
        '{\n  "a": {\n'
        + member * 15
        + '    "z": 1\n  },\n  "b": [\n'
        + "    1,\n" * 200
        + "  0]\n}\n"
    )
    found = [name for _, name in named("a.json", text)]
    assert found == [None, "a", *["a.m"] * 15, "a", "b", "b"]


def test_a_statement_that_the_grammar_does_not_know_has_no_name() -> None:
    """Guessing on after an error, the grammar sees one index from `create procedure` on."""
    text = (
        "create table a (b int);\n" * 20
        + "create procedure p() as $$ x $$ language sql;\ncreate unique index i on t (a);\n"
    )
    assert [name for _, name in named("a.sql", text)] == [*["a"] * 20, None]


def test_why_a_file_was_cut_by_lines_is_told() -> None:
    assert cut("a.lua", "x = 1\n").by_lines == "no grammar for this language"
    assert cut("a.json", "{}").by_lines is None, "there was nothing to cut"
    assert cut("a.py", "x = 1\n").by_lines is None
    told = cut("a.java", "%% this is (not java {{{ at all ]]\n" * 20).by_lines
    assert told == "its grammar cannot explain more than 10% of it"


def test_two_definitions_on_one_line_belong_to_the_first() -> None:
    assert named("a.js", "function a(){} function b(){}\n") == [((1, 1), "a")]


def test_a_header_of_classes_is_read_as_cpp() -> None:
    found = cut(
        "a.h", "template <class T>\nclass V : public W<T> {\n public:\n  V() = default;\n};\n"
    )
    assert found.language == "cpp"
    assert found.spans[0].name == "V"


def test_a_file_full_of_errors_is_cut_by_lines() -> None:
    found = cut("a.java", "%% this is (not java {{{ at all ]]\n" * 20)
    assert found.parsed is Parsed.LINES


def test_a_single_error_does_not_cost_the_other_definitions() -> None:
    text = "def f():\n    return 1\n" * 40 + "x = = 2\n" + "def g():\n    return 1\n"
    found = cut("a.py", text)
    assert found.parsed is Parsed.DEFINITIONS
    assert found.spans[-1].name == "g"


def test_a_language_without_grammar_is_cut_by_lines_without_fuss() -> None:
    found = cut("a.lua", "function f()\nend\n")
    assert (found.parsed, found.language, found.warning) == (Parsed.LINES, "lua", None)


def test_a_missing_grammar_is_told() -> None:
    absent = Grammar("x", "tree_sitter_absent", leaves=frozenset(), containers=frozenset())
    found = CodeCutter().cut("a\nb\n", Language("x", (absent,)))
    assert found.parsed is Parsed.LINES
    assert found.warning == "no grammar for x; cut by lines"
    assert found.by_lines == "its grammar is not installed, or of another version"


def test_a_grammar_of_another_abi_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel that was updated without tree-sitter itself must not end the reading."""

    def refuse(_: object) -> None:
        raise ValueError("Incompatible Language version 16. Must be between 13 and 15")

    monkeypatch.setattr(code_module.tree_sitter, "Language", refuse)
    found = cut("a.py", "def f():\n    pass\n")
    assert (found.parsed, found.warning) == (Parsed.LINES, "no grammar for python; cut by lines")
    assert found.by_lines == "its grammar is not installed, or of another version"


def test_deep_nesting_neither_crashes_nor_recurses() -> None:
    depth = 50_000
    assert cut("a.py", "x = " + "[" * depth + "]" * depth + "\n")
    assert cut("a.js", "function f() {\n" + "(" * depth + "\n")


def test_nested_definitions_do_not_recurse() -> None:
    text = "namespace n {\n" * 3_000 + "}\n" * 3_000
    found = cut("a.cpp", text)
    assert found.parsed is Parsed.DEFINITIONS
    assert max(len(span.name or "") for span in found.spans) < 200


def test_a_parse_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_module, "_PARSE_SECONDS", -1.0)
    started = time.monotonic()
    assert cut("a.py", "def f(): pass\n" * 2_000).parsed is Parsed.LINES
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("path", "first_line", "name"),
    [
        ("run", "#!/usr/bin/env python3", "python"),
        ("run", "#!/bin/sh -e", "bash"),
        ("Makefile", "", "make"),
        ("x/Dockerfile", "", "dockerfile"),
        ("A.PY", "", "python"),
    ],
)
def test_language_by_name_or_first_line(path: str, first_line: str, name: str) -> None:
    language = language_of(path, first_line)
    assert language is not None
    assert language.name == name


def test_prose_has_no_language() -> None:
    assert language_of("notes.txt", "#!/usr/bin/env python3") is None
    assert language_of("LICENSE", "Apache") is None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.go", f"package a\n\nfunc ({'a' * 3_000} b) M() {{}}\n"),
        ("a.go", f"package a\n\nfunc (a {'b' * 3_000}) M() {{}}\n"),
        ("a.go", f"package a\n\nfunc (a{' ' * 5_000}b) M() {{}}\n"),
        ("a.rs", f"impl {'x' * 3_000} {{\n    fn f() {{}}\n}}\n"),
        ("a.py", f"def {'x' * 3_000}():\n    pass\n"),
        ("a.c", f"int {'*' * 3_000}x(void) {{\n    return 0;\n}}\n"),
    ],
)
def test_endless_names_cost_no_time_and_are_cut(path: str, text: str) -> None:
    started = time.monotonic()
    spans = cut(path, text).spans
    assert time.monotonic() - started < 2
    assert max(len(span.name or "") for span in spans) < 500
