"""Source code to spans of whole lines, cut at definitions with qualified names.

Owns parsing with tree-sitter and the decision when a parse is good enough to cut by. A line belongs
to the innermost definition around it; every line belongs to exactly one span, so nothing between
definitions is lost. Knows no files.
"""

from __future__ import annotations

import importlib
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import tree_sitter

from .languages import Grammar, Language, is_function_value
from .spans import Parsed, Span
from .text import PROSE, CutSize, cut_lines, split_lines

DEFINITION = CutSize(soft_lines=100, max_lines=120, max_chars=10_000)
_BIG_CONTAINER_LINES = 40
_MAX_DEPTH = 16
_MAX_ERROR_SHARE = 0.1
_PARSE_SECONDS = 5.0
_MAX_NAME_BYTES = 200
_CLOSERS = " \t\r\n\f})];,"
"""Lines of these alone close what stands above them, and stay with it."""


@dataclass(frozen=True, slots=True)
class CodeCut:
    """A file's spans, how they were cut, and with which grammar."""

    spans: tuple[Span, ...]
    parsed: Parsed
    language: str
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class _Definition:
    first: int
    """First line, 0-based, with the comments and decorators that lead it."""
    end: int
    name: str
    body: tree_sitter.Node | None
    """The node to look for members in; None for what stays whole."""
    parent: int
    """Number of the definition around it, counting from 1 in order of appearance; 0: none."""


class CodeCutter:
    """Cuts source files; loads each grammar once."""

    def __init__(self) -> None:
        self._loaded: dict[str, tree_sitter.Language | None] = {}

    def cut(self, text: str, language: Language) -> CodeCut:
        """Cut a file at its definitions, or by lines where its grammar cannot."""
        lines = split_lines(text)
        source = text.encode()
        best: tuple[float, Grammar, tree_sitter.Tree] | None = None
        missing = False
        for grammar in language.grammars if "\n" in text else ():
            loaded = self._load(grammar)
            missing = missing or loaded is None
            tree = _parse(source, loaded) if loaded is not None else None
            if tree is not None:
                share = _error_bytes(tree.root_node) / max(1, len(source))
                if best is None or share < best[0]:
                    best = (share, grammar, tree)
            if best is not None and best[0] == 0:
                break
        if best is None or best[0] > _MAX_ERROR_SHARE:
            spans = tuple(cut_lines(lines, 0, len(lines)))
            warning = f"no grammar for {language.name}; cut by lines" if missing else None
            return CodeCut(spans, Parsed.LINES, language.name, warning)
        _, grammar, tree = best
        spans = tuple(_cut_by_owner(lines, _Walk(grammar, source).definitions(tree.root_node)))
        return CodeCut(spans, Parsed.DEFINITIONS, grammar.language)

    def _load(self, grammar: Grammar) -> tree_sitter.Language | None:
        """The grammar's language, or None where its wheel is missing or of another ABI."""
        key = f"{grammar.module}.{grammar.factory}"
        if key not in self._loaded:
            try:
                factory = getattr(importlib.import_module(grammar.module), grammar.factory)
                self._loaded[key] = tree_sitter.Language(factory())
            except (ImportError, AttributeError, ValueError):
                self._loaded[key] = None
        return self._loaded[key]


def _parse(source: bytes, language: tree_sitter.Language) -> tree_sitter.Tree | None:
    """The syntax tree, or None when parsing took too long."""
    deadline = time.monotonic() + _PARSE_SECONDS
    try:
        return tree_sitter.Parser(language).parse(
            lambda at, _: source[at : at + 65_536],
            progress_callback=lambda _at, _error: time.monotonic() > deadline,
        )
    except ValueError:
        return None


def _error_bytes(root: tree_sitter.Node) -> int:
    """Bytes inside the outermost error nodes."""
    total = 0
    stack = [root] if root.has_error else []
    while stack:
        node = stack.pop()
        if node.is_error:
            total += node.end_byte - node.start_byte
        else:
            stack.extend(child for child in node.children if child.has_error)
    return total


class _Walk:
    """Finds definitions in one tree, containers before their members, without recursion."""

    def __init__(self, grammar: Grammar, source: bytes) -> None:
        self._grammar = grammar
        self._source = source

    def definitions(self, root: tree_sitter.Node) -> Iterator[_Definition]:
        """Every definition to cut at; those inside one come after it."""
        queue = deque([(root, "", 0)])
        count = 0
        while queue:
            parent, prefix, number = queue.popleft()
            lead: int | None = None
            previous_end = self._first_free_row(parent)
            for child in parent.named_children:
                first, end = child.start_point.row, _end_row(child)
                if lead is not None and first > previous_end:
                    lead = None  # a blank line parts a comment from what follows
                if child.type in self._grammar.leading:
                    # A comment behind code on the same line belongs to that code.
                    if lead is None and first >= previous_end:
                        lead = first
                    previous_end = end
                    continue
                if child.type in self._grammar.transparent:
                    queue.append((child, prefix, number))
                elif found := self._definition(child, prefix, number):
                    count += 1
                    yield found if lead is None else replace(found, first=lead)
                    if found.body is not None:
                        queue.append((found.body, found.name + self._grammar.separator, count))
                lead = None
                previous_end = end

    def _first_free_row(self, parent: tree_sitter.Node) -> int:
        """The first row of a body on which a comment can lead a member."""
        opens_with_brace = self._source[parent.start_byte : parent.start_byte + 1] == b"{"
        return parent.start_point.row + (1 if opens_with_brace else 0)

    def _definition(self, outer: tree_sitter.Node, prefix: str, parent: int) -> _Definition | None:
        grammar = self._grammar
        node = self._unwrap(outer)
        is_container = node.type in grammar.containers
        if not is_container and node.type not in grammar.leaves:
            return None
        body = node.child_by_field_name("body")
        if node.type in grammar.needs_body and body is None:
            return None
        if node.type in grammar.needs_function and not _holds_function(node):
            return None
        first, end = outer.start_point.row, _end_row(outer)
        is_big = is_container and end - first > _BIG_CONTAINER_LINES
        is_shallow = prefix.count(grammar.separator) < _MAX_DEPTH
        opened = (body or node) if is_big and is_shallow else None
        name = self._name(node)
        qualified = name if name.startswith(prefix) else prefix + name
        return _Definition(first, end, qualified, opened, parent)

    def _unwrap(self, node: tree_sitter.Node) -> tree_sitter.Node:
        """The definition inside decorators, `export` or `template<>`."""
        while node.type in self._grammar.wrappers:
            inner = node.child_by_field_name("definition")
            inner = inner or node.child_by_field_name("declaration")
            inner = inner or (node.named_children[-1] if node.named_children else None)
            if inner is None:
                break
            node = inner
        return node

    def _name(self, node: tree_sitter.Node) -> str:
        if node.type == "method_declaration" and (on := node.child_by_field_name("receiver")):
            receiver = re.search(r"(\w+)\s*(?:\[.*\])?\s*\)$", self._text(on))
            owner = f"{receiver[1]}." if receiver else ""
            return owner + self._text(node.child_by_field_name("name"))
        if node.type == "impl_item":
            return self._text(node.child_by_field_name("type")).split("<")[0]
        if node.type in self._grammar.needs_function or node.type == "type_declaration":
            node = next((kid for kid in node.named_children if _named(kid)), node)
        while (named := _named(node)) is not None:
            node = named
            if node.type == "qualified_identifier":
                break
        return re.sub(r"\s+", " ", self._text(node))[:120]

    def _text(self, node: tree_sitter.Node | None) -> str:
        if node is None:
            return "?"
        end = min(node.end_byte, node.start_byte + _MAX_NAME_BYTES)
        return self._source[node.start_byte : end].decode("utf-8", "ignore")


def _named(node: tree_sitter.Node) -> tree_sitter.Node | None:
    """One step towards a definition's name; declarators of C nest around it."""
    step = node.child_by_field_name("name") or node.child_by_field_name("declarator")
    if step is None and node.type in ("parenthesized_declarator", "reference_declarator"):
        step = node.named_children[-1] if node.named_children else None
    return step


def _holds_function(node: tree_sitter.Node) -> bool:
    values = (kid.child_by_field_name("value") for kid in node.named_children)
    return any(value is not None and is_function_value(value.type) for value in values)


def _end_row(node: tree_sitter.Node) -> int:
    """The line after a node's last one; some nodes end at the start of the next line."""
    return node.end_point.row + (
        1 if node.end_point.column or node.start_byte == node.end_byte else 0
    )


def _cut_by_owner(lines: Sequence[str], definitions: Iterator[_Definition]) -> Iterator[Span]:
    """Give each line its innermost definition, then cut where the owner changes."""
    owner = [0] * len(lines)
    names: list[str | None] = [None]
    for number, found in enumerate(definitions, start=1):
        names.append(found.name)
        for at in range(found.first, min(found.end, len(lines))):
            # Of two neighbours that share a line the first keeps it.
            if owner[at] == found.parent:
                owner[at] = number
    for at in range(1, len(lines)):
        if not lines[at].strip(_CLOSERS):
            owner[at] = owner[at - 1]
    for who, run in groupby(range(len(lines)), key=owner.__getitem__):
        rows = list(run)
        size = PROSE if names[who] is None else DEFINITION
        yield from cut_lines(lines, rows[0], rows[-1] + 1, size, names[who])
