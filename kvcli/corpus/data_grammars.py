"""What the grammars of styles, pages and data call what is worth a name of its own.

Owns the part of the table of `grammars.py` whose files are no programs: CSS, HTML, JSON, YAML, TOML
and SQL. Knows no parsing.
"""

from __future__ import annotations

from .grammars import Grammar, Naming, names

_CSS_BLOCKS = "media_statement supports_statement at_rule rule_set"
CSS = Grammar(
    "css",
    "tree_sitter_css",
    leaves=names("keyframes_statement"),
    containers=names(_CSS_BLOCKS),
    transparent=names("block"),
    small=names(f"keyframes_statement {_CSS_BLOCKS}"),
    leading=names("comment js_comment"),
    naming=Naming.HEAD,
    separator=" / ",
)
_ELEMENTS = "element script_element style_element"
HTML = Grammar(
    "html",
    "tree_sitter_html",
    leaves=frozenset(),
    containers=names(_ELEMENTS),
    transparent=names("element"),
    small=names(_ELEMENTS),
    naming=Naming.ELEMENT,
    separator=" > ",
)
JSON = Grammar(
    "json",
    "tree_sitter_json",
    leaves=frozenset(),
    containers=names("pair"),
    transparent=names("object"),
    small=names("pair"),
    naming=Naming.KEY,
)
YAML = Grammar(
    "yaml",
    "tree_sitter_yaml",
    leaves=frozenset(),
    containers=names("block_mapping_pair"),
    transparent=names("document block_node block_mapping"),
    small=names("block_mapping_pair"),
    steals_comments=True,
    naming=Naming.KEY,
)
TOML = Grammar(
    "toml",
    "tree_sitter_toml",
    leaves=names("pair"),
    containers=names("table table_array_element"),
    small=names("pair"),
    steals_comments=True,
    naming=Naming.KEY,
)
SQL = Grammar(
    "sql",
    "tree_sitter_sql",
    leaves=names(
        "create_table create_view create_materialized_view create_function create_procedure"
        " create_trigger create_index create_type create_schema create_sequence create_policy"
        " create_role create_database create_extension"
    ),
    containers=frozenset(),
    wrappers=names("statement"),
    transparent=names("transaction block"),
    leading=names("comment marginalia"),
    naming=Naming.STATEMENT,
)
