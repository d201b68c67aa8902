"""What each language's grammar calls its definitions, and which files are in which language.

Owns the table that `code.py` cuts by. Adding a language is adding a `Grammar` here and its wheel to
pyproject.toml. Knows no parsing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

_FUNCTION_VALUES = frozenset(
    {"arrow_function", "function_expression", "generator_function", "class", "function"}
)


@dataclass(frozen=True, slots=True)
class Grammar:
    """One tree-sitter grammar and the names of its nodes that matter for cutting."""

    language: str
    module: str
    """The Python module of the grammar's wheel."""
    leaves: frozenset[str]
    """Definitions that are never opened: functions, methods, types without methods."""
    containers: frozenset[str]
    """Definitions that hold others: a large one is cut at its members."""
    wrappers: frozenset[str] = frozenset()
    """Nodes around one definition that belong to it: decorators, `export`, `template<>`."""
    transparent: frozenset[str] = frozenset()
    """Nodes whose children are looked at as if they stood outside: `#ifdef`, a class body."""
    needs_body: frozenset[str] = frozenset()
    """Definitions only when they have a body, declarations otherwise."""
    needs_function: frozenset[str] = frozenset()
    """Variable declarations, definitions only when their value is a function."""
    leading: frozenset[str] = frozenset({"comment", "line_comment", "block_comment"})
    """Nodes that belong to the definition directly below them."""
    separator: str = "."
    factory: str = "language"
    """The function of the module that returns the language."""


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PYTHON = Grammar(
    "python",
    "tree_sitter_python",
    leaves=_names("function_definition"),
    containers=_names("class_definition"),
    wrappers=_names("decorated_definition"),
    transparent=_names("block if_statement else_clause elif_clause try_statement except_clause"),
)
_JS_LEAVES = "function_declaration generator_function_declaration method_definition"
_JAVASCRIPT = Grammar(
    "javascript",
    "tree_sitter_javascript",
    leaves=_names(f"{_JS_LEAVES} lexical_declaration variable_declaration"),
    containers=_names("class_declaration"),
    wrappers=_names("export_statement"),
    transparent=_names("class_body"),
    needs_function=_names("lexical_declaration variable_declaration"),
    leading=_names("comment decorator"),
)
_TS_LEAVES = f"{_JS_LEAVES} interface_declaration enum_declaration type_alias_declaration"
_TYPESCRIPT = Grammar(
    "typescript",
    "tree_sitter_typescript",
    leaves=_names(f"{_TS_LEAVES} lexical_declaration variable_declaration"),
    containers=_names("class_declaration abstract_class_declaration internal_module module"),
    wrappers=_names("export_statement ambient_declaration expression_statement"),
    transparent=_names("class_body statement_block"),
    needs_function=_names("lexical_declaration variable_declaration"),
    leading=_names("comment decorator"),
    factory="language_typescript",
)
_TSX = Grammar(
    "tsx",
    "tree_sitter_typescript",
    leaves=_TYPESCRIPT.leaves,
    containers=_TYPESCRIPT.containers,
    wrappers=_TYPESCRIPT.wrappers,
    transparent=_TYPESCRIPT.transparent,
    needs_function=_TYPESCRIPT.needs_function,
    leading=_TYPESCRIPT.leading,
    factory="language_tsx",
)
_GO = Grammar(
    "go",
    "tree_sitter_go",
    leaves=_names("function_declaration method_declaration type_declaration"),
    containers=frozenset(),
)
_RUST = Grammar(
    "rust",
    "tree_sitter_rust",
    leaves=_names(
        "function_item function_signature_item struct_item enum_item union_item type_item"
        " macro_definition"
    ),
    containers=_names("impl_item trait_item mod_item"),
    transparent=_names("declaration_list"),
    needs_body=_names("mod_item"),
    leading=_names("line_comment block_comment attribute_item"),
    separator="::",
)
_JAVA = Grammar(
    "java",
    "tree_sitter_java",
    leaves=_names("method_declaration constructor_declaration compact_constructor_declaration"),
    containers=_names(
        "class_declaration interface_declaration enum_declaration record_declaration"
        " annotation_type_declaration"
    ),
    transparent=_names("class_body interface_body enum_body enum_body_declarations"),
)
_C_TYPES = "struct_specifier union_specifier enum_specifier"
_C_BLOCKS = "preproc_ifdef preproc_if preproc_else preproc_elif linkage_specification"
_C = Grammar(
    "c",
    "tree_sitter_c",
    leaves=_names(f"function_definition type_definition preproc_function_def {_C_TYPES}"),
    containers=frozenset(),
    transparent=_names(f"{_C_BLOCKS} declaration_list"),
    needs_body=_names(_C_TYPES),
)
_CPP = Grammar(
    "cpp",
    "tree_sitter_cpp",
    leaves=_names(
        "function_definition type_definition preproc_function_def union_specifier enum_specifier"
        " alias_declaration concept_definition"
    ),
    containers=_names("class_specifier struct_specifier namespace_definition"),
    wrappers=_names("template_declaration"),
    transparent=_names(f"{_C_BLOCKS} declaration_list field_declaration_list"),
    needs_body=_names(f"{_C_TYPES} class_specifier"),
    separator="::",
)

_GRAMMARS: dict[str, tuple[Grammar, ...]] = {
    **dict.fromkeys((".py", ".pyi", ".pyw"), (_PYTHON,)),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), (_JAVASCRIPT,)),
    **dict.fromkeys((".ts", ".mts", ".cts"), (_TYPESCRIPT,)),
    ".tsx": (_TSX,),
    ".go": (_GO,),
    ".rs": (_RUST,),
    ".java": (_JAVA,),
    ".c": (_C,),
    ".h": (_C, _CPP),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx", ".cu", ".cuh"), (_CPP,)),
}

_OTHER_LANGUAGES = {
    ".bash": "bash", ".bat": "batch", ".clj": "clojure", ".cmake": "cmake", ".cs": "c#",
    ".css": "css", ".dart": "dart", ".ex": "elixir", ".exs": "elixir", ".f90": "fortran",
    ".graphql": "graphql", ".hs": "haskell", ".html": "html", ".ini": "ini", ".jl": "julia",
    ".json": "json", ".kt": "kotlin", ".lua": "lua", ".m": "matlab", ".ml": "ocaml",
    ".php": "php", ".pl": "perl", ".proto": "protobuf", ".ps1": "powershell", ".r": "r",
    ".rb": "ruby", ".s": "assembly", ".scala": "scala", ".scss": "scss", ".sh": "bash",
    ".sql": "sql", ".swift": "swift", ".tex": "latex", ".tf": "terraform", ".toml": "toml",
    ".vue": "vue", ".xml": "xml", ".yaml": "yaml", ".yml": "yaml", ".zig": "zig",
}  # fmt: skip
_BY_NAME = {
    "Makefile": "make", "GNUmakefile": "make", "makefile": "make", "Dockerfile": "dockerfile",
    "CMakeLists.txt": "cmake", "Rakefile": "ruby", "Gemfile": "ruby", "Jenkinsfile": "groovy",
}  # fmt: skip
_SHEBANG = re.compile(r"#!.*?\b(python|bash|sh|zsh|node|ruby|perl|php)[\d.]*(?:\s|$)")
_INTERPRETERS = {"sh": "bash", "zsh": "bash", "node": "javascript"}


@dataclass(frozen=True, slots=True)
class Language:
    """A language by name, with the grammars to try in order; none: it is cut by lines."""

    name: str
    grammars: tuple[Grammar, ...] = ()


def language_of(path: str, first_line: str) -> Language | None:
    """The language of a file by its name, else by its `#!` line; None for what is not code."""
    name = PurePath(path)
    suffix = name.suffix.lower()
    if grammars := _GRAMMARS.get(suffix):
        return Language(grammars[0].language, grammars)
    if other := _BY_NAME.get(name.name) or _OTHER_LANGUAGES.get(suffix):
        return Language(other)
    shebang = None if suffix else _SHEBANG.match(first_line)
    if shebang is None:
        return None
    known = {"python": (_PYTHON,), "node": (_JAVASCRIPT,)}.get(shebang[1], ())
    return Language(_INTERPRETERS.get(shebang[1], shebang[1]), known)


def is_function_value(node_type: str) -> bool:
    """Whether a JavaScript variable of this value is worth a definition of its own."""
    return node_type in _FUNCTION_VALUES
