"""What a definition is called, read from its node of the syntax tree.

Owns the ways in which grammars tell names. Knows neither where definitions end nor what is around
them: whoever walks the tree puts the name of the definition around it in front.
"""

from __future__ import annotations

import re

import tree_sitter

from .grammars import FUNCTION_VALUES, Grammar, Naming

_MAX_CHARS = 120
_HEAD_BYTES = 500
"""A name ends within this much of its node's text."""

_QUALIFIED = frozenset({"qualified_identifier", "qualified_name", "scope_resolution"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6", "title", "legend", "caption"})
_SECTIONS = frozenset({
    "article", "aside", "details", "dialog", "fieldset", "footer", "form", "head", "header", "main",
    "nav", "script", "section", "style", "svg", "table", "template",
})  # fmt: skip
"""Elements that have a name even without an id."""

_RECEIVER = re.compile(r"(\w+)\s*(?:\[.*\])?\s*\)$")
_OPERATOR = re.compile(r"\boperator\s+[^\s(]+")
_TAG = re.compile(r"<([\w-]+)[^>]*>\s*([^<]*)")
_CREATED = re.compile(
    r"create\s+(?:(?:or\s+replace|unique|temp|temporary|materialized|unlogged|recursive)\s+)*"
    r"[a-z]+\s+(?:concurrently\s+)?(?:if\s+not\s+exists\s+)?"
    r"((?:\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|[^\s(;.])+(?:\.(?:\"[^\"]*\"|`[^`]*`|[^\s(;.])+)*)",
    re.IGNORECASE,
)


class Namer:
    """Reads the names of one file's definitions."""

    def __init__(self, grammar: Grammar, source: bytes) -> None:
        self._grammar = grammar
        self._source = source
        self._way = {
            Naming.DECLARED: self._declared,
            Naming.HEAD: self._head,
            Naming.KEY: self._key,
            Naming.ELEMENT: self._element,
            Naming.STATEMENT: self._statement,
        }[grammar.naming]

    def name(self, node: tree_sitter.Node) -> str | None:
        """A definition's name without that of what is around it; None: it has none."""
        found = self._way(node)
        return None if found is None else re.sub(r"\s+", " ", found).strip()[:_MAX_CHARS] or None

    def _text(self, node: tree_sitter.Node | None, max_bytes: int = _HEAD_BYTES) -> str:
        if node is None:
            return "?"
        end = min(node.end_byte, node.start_byte + max_bytes)
        return self._source[node.start_byte : end].decode("utf-8", "replace")

    def _declared(self, node: tree_sitter.Node) -> str | None:
        if node.type == "method_declaration" and (on := node.child_by_field_name("receiver")):
            receiver = _RECEIVER.search(self._text(on))
            owner = f"{receiver[1]}." if receiver else ""
            return owner + self._text(node.child_by_field_name("name"))
        if node.type == "impl_item":
            return self._text(node.child_by_field_name("type")).split("<")[0]
        if node.type in self._grammar.needs_function or node.type == "type_declaration":
            node = next((kid for kid in node.named_children if _step(kid)), node)
        if _step(node) is None:
            return self._undeclared(node)
        sign = "~" if node.type == "destructor_declaration" else ""
        while (step := _step(node)) is not None:
            node = step
            if node.type in _QUALIFIED:
                break
        return sign + self._text(node)

    def _undeclared(self, node: tree_sitter.Node) -> str | None:
        if node.type == "namespace_definition" and node.child_by_field_name("body"):
            return None
        if node.type == "indexer_declaration":
            return "this[]"
        head = self._text(node)
        operator = _OPERATOR.search(head) if "operator" in node.type else None
        return operator[0] if operator else head

    def _head(self, node: tree_sitter.Node) -> str:
        return self._text(node).split("{")[0].rstrip("; \t\r\n")

    def _key(self, node: tree_sitter.Node) -> str:
        key = node.child_by_field_name("key") or next(iter(node.named_children), None)
        text = self._text(key)
        is_quoted = len(text) > 1 and text[0] in "\"'" and text[-1] == text[0]
        return text[1:-1] if is_quoted else text

    def _element(self, node: tree_sitter.Node) -> str | None:
        start = next(iter(node.named_children), None)
        tag = ""
        for part in start.named_children if start is not None else ():
            if part.type == "tag_name":
                tag = self._text(part).lower()
            elif part.type == "attribute":
                key, _, value = self._text(part).partition("=")
                if key.strip().lower() == "id" and (bare := value.strip(" \t\r\n\"'")):
                    return f"#{bare}"
        if tag not in _SECTIONS:
            return None
        heading = self._heading(node)
        return f"{tag} {heading}" if heading else tag

    def _heading(self, node: tree_sitter.Node) -> str | None:
        """The text of the first element inside, or of the first in that, if it is a heading."""
        for _ in range(2):
            inner = next((kid for kid in node.named_children if kid.type == "element"), None)
            if inner is None:
                break
            found = _TAG.match(self._text(inner))
            if found and found[1].lower() in _HEADINGS:
                return found[2].strip()
            node = inner
        return None

    def _statement(self, node: tree_sitter.Node) -> str | None:
        # A grammar of many dialects guesses on after an error and would name the wrong thing.
        found = None if node.has_error else _CREATED.match(self._text(node))
        return found[1] if found else None


def holds_function(node: tree_sitter.Node) -> bool:
    """Whether a JavaScript variable's value is worth a definition of its own."""
    values = (kid.child_by_field_name("value") for kid in node.named_children)
    return any(value is not None and value.type in FUNCTION_VALUES for value in values)


def _step(node: tree_sitter.Node) -> tree_sitter.Node | None:
    """One step towards a definition's name; declarators of C nest around it."""
    step = node.child_by_field_name("name") or node.child_by_field_name("declarator")
    if step is None and node.type in ("parenthesized_declarator", "reference_declarator"):
        step = node.named_children[-1] if node.named_children else None
    return step
