"""Finds the definitions in a syntax tree: their lines, qualified names and nesting.

Owns what counts as one definition: with the comments and decorators that lead it, cut at its
members when it is a large container. Knows no spans and no files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import tree_sitter

from .grammars import Grammar
from .names import Namer, holds_function

_BIG_CONTAINER_LINES = 40
_MIN_LINES_OF_SMALL = 3
_MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition to cut at."""

    first: int
    """First line, 0-based, with the comments and decorators that lead it."""
    end: int
    name: str
    body: tree_sitter.Node | None
    """The node to look for members in; None for what stays whole."""
    parent: int
    """Number of the definition around it, counting from 1 in order of appearance; 0: none."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A node whose children are looked at."""

    node: tree_sitter.Node
    prefix: str = ""
    """The name of what is around."""
    number: int = 0
    depth: int = 0
    lead: int | None = None
    """First line of comments above the node that belong to what it begins with."""


class DefinitionFinder:
    """Finds definitions in one tree, containers before their members, without recursion.

    Args:
        grammar: Of the tree.
        source: What was parsed.
        lines: The same as lines of text.
    """

    def __init__(self, grammar: Grammar, source: bytes, lines: Sequence[str]) -> None:
        self._grammar = grammar
        self._source = source
        self._lines = lines
        self._namer = Namer(grammar, source)

    def find(self, root: tree_sitter.Node) -> Iterator[Definition]:
        """Every definition to cut at; those inside one come after it."""
        grammar = self._grammar
        queue = deque([_Place(root)])
        count = 0
        while queue:
            place = queue.popleft()
            lead = place.lead
            previous_end = self._first_free_row(place.node)
            for child in place.node.named_children:
                first, end = child.start_point.row, _end_row(child)
                if lead is not None and first > previous_end:
                    lead = None  # a blank line parts a comment from what follows
                if child.type in grammar.leading:
                    # A comment behind code on the same line belongs to that code.
                    if lead is None and first >= previous_end:
                        lead = first
                    previous_end = end
                    continue
                if child.type in grammar.scopes and child.child_by_field_name("body") is None:
                    place = replace(place, prefix=self._namer.name(child) or "")
                elif found := self._definition(child, place):
                    count += 1
                    yield found if lead is None else replace(found, first=lead)
                    if found.body is not None:
                        queue.append(_Place(found.body, found.name, count, place.depth + 1))
                elif child.type in grammar.transparent:
                    queue.append(replace(place, node=child, lead=lead))
                lead = None
                previous_end = end

    def _first_free_row(self, parent: tree_sitter.Node) -> int:
        """The first row of a body on which a comment can lead a member."""
        opens_with_brace = self._source[parent.start_byte : parent.start_byte + 1] == b"{"
        return parent.start_point.row + (1 if opens_with_brace else 0)

    def _definition(self, outer: tree_sitter.Node, place: _Place) -> Definition | None:
        grammar = self._grammar
        node = self._unwrap(outer)
        is_container = node.type in grammar.containers
        if not is_container and node.type not in grammar.leaves:
            return None
        body = node.child_by_field_name("body")
        if node.type in grammar.needs_body and body is None:
            return None
        if node.type in grammar.needs_function and not holds_function(node):
            return None
        first, end = outer.start_point.row, _end_row(outer)
        if grammar.steals_comments:
            first, end = self._without_stolen(first, end, outer.start_point.column)
        if node.type in grammar.small and end - first < _MIN_LINES_OF_SMALL:
            return None
        name = self._namer.name(node)
        if name is None:
            return None
        is_big = is_container and end - first > _BIG_CONTAINER_LINES
        opened = (body or node) if is_big and place.depth < _MAX_DEPTH else None
        return Definition(first, end, self._qualified(name, node, place), opened, place.number)

    def _qualified(self, name: str, node: tree_sitter.Node, place: _Place) -> str:
        between = self._grammar.separators.get(node.type, self._grammar.separator)
        if between == "#" and _is_of_singleton(node):
            between = "."
        prefix = place.prefix + between if place.prefix else ""
        return name if name.startswith(prefix) else prefix + name

    def _without_stolen(self, first: int, end: int, column: int) -> tuple[int, int]:
        """The rows of a definition with the comments above it, without those of the next one."""
        while end > first + 1 and self._is_outside(end - 1, column):
            end -= 1
        while first and self._is_comment(first - 1, column):
            first -= 1
        return first, end

    def _is_comment(self, row: int, column: int) -> bool:
        return self._lines[row].find("#") == column and not self._lines[row][:column].strip()

    def _is_outside(self, row: int, column: int) -> bool:
        """Whether a row is blank, or a comment as far out as a definition or further."""
        text = self._lines[row].lstrip()
        return not text or (text[0] == "#" and len(self._lines[row]) - len(text) <= column)

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


def _is_of_singleton(node: tree_sitter.Node) -> bool:
    """Whether a method stands in Ruby's `class << self`, and so belongs to the class itself."""
    body = node.parent
    return body is not None and body.parent is not None and body.parent.type == "singleton_class"


def _end_row(node: tree_sitter.Node) -> int:
    """The line after a node's last one; some nodes end at the start of the next line."""
    return node.end_point.row + (
        1 if node.end_point.column or node.start_byte == node.end_byte else 0
    )
