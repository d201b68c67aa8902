"""Source code to spans of whole lines, cut at definitions with qualified names.

Owns parsing with tree-sitter and the decision when a parse is good enough to cut by. A line belongs
to the innermost definition around it; every line belongs to exactly one span, so nothing between
definitions is lost. Knows no files.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import tree_sitter

from .definitions import Definition, DefinitionFinder
from .grammars import Grammar
from .languages import Language
from .spans import Parsed, Span
from .text import PROSE, CutSize, cut_lines, split_lines

DEFINITION = CutSize(soft_lines=100, max_lines=120, max_chars=10_000)
_MAX_ERROR_SHARE = 0.1
_PARSE_SECONDS = 5.0
_NO_GRAMMAR = "no grammar for this language"
_MISSING = "its grammar is not installed, or of another version"
_TOO_SLOW = f"parsing took longer than {_PARSE_SECONDS:.0f} s"
_MANY_ERRORS = f"its grammar cannot explain more than {_MAX_ERROR_SHARE:.0%} of it"
_CLOSERS = " \t\r\n\f})];,"
"""Lines of these alone close what stands above them, and stay with it."""


@dataclass(frozen=True, slots=True)
class CodeCut:
    """A file's spans, how they were cut, and with which grammar."""

    spans: tuple[Span, ...]
    parsed: Parsed
    language: str
    warning: str | None = None
    by_lines: str | None = None
    """Why the file was cut by lines; None where it was not, and of a single line."""


@dataclass(frozen=True, slots=True)
class _Parse:
    """A syntax tree and how much of the source it could not explain."""

    grammar: Grammar
    tree: tree_sitter.Tree
    error_share: float


class CodeCutter:
    """Cuts source files; loads each grammar once."""

    def __init__(self) -> None:
        self._loaded: dict[str, tree_sitter.Language | None] = {}

    def cut(self, text: str, language: Language) -> CodeCut:
        """Cut a file at its definitions, or by lines where its grammar cannot."""
        lines = split_lines(text)
        source = text.encode()
        parse, why = self._best_parse(source, language)
        if parse is None:
            spans = tuple(cut_lines(lines, 0, len(lines)))
            is_missing = why == _MISSING
            warning = f"no grammar for {language.name}; cut by lines" if is_missing else None
            return CodeCut(spans, Parsed.LINES, language.name, warning, why)
        finder = DefinitionFinder(parse.grammar, source, lines)
        spans = tuple(_cut_by_owner(lines, finder.find(parse.tree.root_node)))
        return CodeCut(spans, Parsed.DEFINITIONS, parse.grammar.language)

    def _best_parse(self, source: bytes, language: Language) -> tuple[_Parse | None, str | None]:
        """The parse of the grammar that explains most, or None and why there is none to use."""
        if b"\n" not in source:
            return None, None
        best: _Parse | None = None
        why = _MISSING if language.grammars else _NO_GRAMMAR
        for grammar in language.grammars:
            loaded = self._load(grammar)
            if loaded is None:
                continue
            tree = _parse(source, loaded)
            if tree is None:
                why = _TOO_SLOW
                continue
            share = _error_bytes(tree.root_node) / max(1, len(source))
            if best is None or share < best.error_share:
                best = _Parse(grammar, tree, share)
            if best.error_share == 0:
                break
        if best is not None and best.error_share > _MAX_ERROR_SHARE:
            return None, _MANY_ERRORS
        return best, why

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


def _cut_by_owner(lines: Sequence[str], definitions: Iterator[Definition]) -> Iterator[Span]:
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
