"""Every grammar in the table can be had, and knows the nodes that the table names."""

from __future__ import annotations

import importlib

import pytest
import tree_sitter

from kvcli.corpus.grammars import Grammar
from kvcli.corpus.languages import parsed_languages

GRAMMARS = [grammar for language in parsed_languages() for grammar in language.grammars]


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.language)
def test_the_installed_wheel_fits_the_parser_and_the_table(grammar: Grammar) -> None:
    """A new version that renames a node would cut its language by lines, and nobody would see."""
    factory = getattr(importlib.import_module(grammar.module), grammar.factory)
    language = tree_sitter.Language(factory())
    assert 13 <= language.abi_version <= 15
    definitions = grammar.leaves | grammar.containers
    others = grammar.wrappers | grammar.scopes | grammar.transparent | grammar.separators.keys()
    unknown = {
        node for node in definitions | others if language.id_for_node_kind(node, True) is None
    }
    assert not unknown
    assert grammar.needs_body | grammar.small | grammar.needs_function <= definitions
