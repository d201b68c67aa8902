"""What each programming language's grammar calls its definitions.

Owns the table that `code.py` cuts by. Adding a language is adding a `Grammar` here, or to
`data_grammars.py` where its files are no programs, its file names to `languages.py`, and its wheel
to pyproject.toml. Knows no parsing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

FUNCTION_VALUES = frozenset(
    {"arrow_function", "function_expression", "generator_function", "class", "function"}
)
"""JavaScript values for which a variable is worth a definition of its own."""


class Naming(Enum):
    """Where the name of a definition stands."""

    DECLARED = "in a field of its node, or of the declarators in it"
    HEAD = "in all that stands before its opening brace"
    KEY = "in the key of a pair or table"
    ELEMENT = "in an element's id, or in its tag and heading"
    STATEMENT = "behind the words of a CREATE statement"


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
    """Nodes whose children are looked at as if they stood outside: `#ifdef`, a class body. One that
    is also a definition is one only where it has a name."""
    scopes: frozenset[str] = frozenset()
    """Nodes without a body that name everything behind them: `namespace A;`."""
    needs_body: frozenset[str] = frozenset()
    """Definitions only when they have a body, declarations otherwise."""
    small: frozenset[str] = frozenset()
    """Definitions only when they have several lines; short ones stay with their neighbours."""
    needs_function: frozenset[str] = frozenset()
    """Variable declarations, definitions only when their value is a function."""
    leading: frozenset[str] = frozenset({"comment", "line_comment", "block_comment"})
    """Nodes that belong to the definition directly below them."""
    steals_comments: bool = False
    """The grammar puts `#` comments above a definition into the definition before."""
    naming: Naming = Naming.DECLARED
    separator: str = "."
    """Between the name of a definition and that of one inside it."""
    separators: Mapping[str, str] = field(default_factory=dict)
    """Other separators, in front of some types of nodes."""
    factory: str = "language"
    """The function of the module that returns the language."""


def names(words: str) -> frozenset[str]:
    """The node types of a line of text."""
    return frozenset(words.split())


PYTHON = Grammar(
    "python",
    "tree_sitter_python",
    leaves=names("function_definition"),
    containers=names("class_definition"),
    wrappers=names("decorated_definition"),
    transparent=names("block if_statement else_clause elif_clause try_statement except_clause"),
)
_JS_LEAVES = "function_declaration generator_function_declaration method_definition"
JAVASCRIPT = Grammar(
    "javascript",
    "tree_sitter_javascript",
    leaves=names(f"{_JS_LEAVES} lexical_declaration variable_declaration"),
    containers=names("class_declaration"),
    wrappers=names("export_statement"),
    transparent=names("class_body"),
    needs_function=names("lexical_declaration variable_declaration"),
    leading=names("comment decorator"),
)
_TS_LEAVES = f"{_JS_LEAVES} interface_declaration enum_declaration type_alias_declaration"
TYPESCRIPT = Grammar(
    "typescript",
    "tree_sitter_typescript",
    leaves=names(f"{_TS_LEAVES} lexical_declaration variable_declaration"),
    containers=names("class_declaration abstract_class_declaration internal_module module"),
    wrappers=names("export_statement ambient_declaration expression_statement"),
    transparent=names("class_body statement_block"),
    needs_function=names("lexical_declaration variable_declaration"),
    leading=names("comment decorator"),
    factory="language_typescript",
)
TSX = replace(TYPESCRIPT, language="tsx", factory="language_tsx")
GO = Grammar(
    "go",
    "tree_sitter_go",
    leaves=names("function_declaration method_declaration type_declaration"),
    containers=frozenset(),
)
RUST = Grammar(
    "rust",
    "tree_sitter_rust",
    leaves=names(
        "function_item function_signature_item struct_item enum_item union_item type_item"
        " macro_definition"
    ),
    containers=names("impl_item trait_item mod_item"),
    transparent=names("declaration_list"),
    needs_body=names("mod_item"),
    leading=names("line_comment block_comment attribute_item"),
    separator="::",
)
JAVA = Grammar(
    "java",
    "tree_sitter_java",
    leaves=names("method_declaration constructor_declaration compact_constructor_declaration"),
    containers=names(
        "class_declaration interface_declaration enum_declaration record_declaration"
        " annotation_type_declaration"
    ),
    transparent=names("class_body interface_body enum_body enum_body_declarations"),
)
_C_TYPES = "struct_specifier union_specifier enum_specifier"
_C_BLOCKS = "preproc_ifdef preproc_if preproc_else preproc_elif linkage_specification"
C = Grammar(
    "c",
    "tree_sitter_c",
    leaves=names(f"function_definition type_definition preproc_function_def {_C_TYPES}"),
    containers=frozenset(),
    transparent=names(f"{_C_BLOCKS} declaration_list"),
    needs_body=names(_C_TYPES),
)
CPP = Grammar(
    "cpp",
    "tree_sitter_cpp",
    leaves=names(
        "function_definition type_definition preproc_function_def union_specifier enum_specifier"
        " alias_declaration concept_definition"
    ),
    containers=names("class_specifier struct_specifier namespace_definition"),
    wrappers=names("template_declaration"),
    transparent=names(f"{_C_BLOCKS} declaration_list field_declaration_list"),
    needs_body=names(f"{_C_TYPES} class_specifier"),
    separator="::",
)

C_SHARP = Grammar(
    "c#",
    "tree_sitter_c_sharp",
    leaves=names(
        "method_declaration constructor_declaration destructor_declaration operator_declaration"
        " conversion_operator_declaration property_declaration indexer_declaration"
        " event_declaration delegate_declaration local_function_statement"
    ),
    containers=names(
        "class_declaration struct_declaration interface_declaration record_declaration"
        " enum_declaration namespace_declaration"
    ),
    transparent=names(
        "declaration_list global_statement preproc_if preproc_else preproc_elif preproc_region"
    ),
    scopes=names("file_scoped_namespace_declaration"),
    small=names("property_declaration"),
)
RUBY = Grammar(
    "ruby",
    "tree_sitter_ruby",
    leaves=names("method singleton_method"),
    containers=names("class module"),
    transparent=names(
        "body_statement singleton_class call argument_list do_block block block_body begin if"
        " unless then else"
    ),
    separator="::",
    separators={"method": "#", "singleton_method": "."},
)
PHP = Grammar(
    "php",
    "tree_sitter_php",
    leaves=names("function_definition method_declaration"),
    containers=names(
        "class_declaration interface_declaration trait_declaration enum_declaration"
        " namespace_definition"
    ),
    transparent=names(
        "declaration_list enum_declaration_list namespace_definition compound_statement"
        " if_statement else_clause"
    ),
    scopes=names("namespace_definition"),
    separator="\\",
    separators={"method_declaration": "::"},
    factory="language_php",
)
BASH = Grammar(
    "bash",
    "tree_sitter_bash",
    leaves=names("function_definition"),
    containers=frozenset(),
    transparent=names("if_statement elif_clause else_clause compound_statement list"),
)
