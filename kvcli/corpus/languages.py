"""Which files are in which language, by name or by first line.

Owns the file names of languages. Knows neither grammars from inside nor parsing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from . import data_grammars as data
from . import grammars as programs
from .grammars import Grammar

_GRAMMARS: dict[str, tuple[Grammar, ...]] = {
    **dict.fromkeys((".py", ".pyi", ".pyw"), (programs.PYTHON,)),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), (programs.JAVASCRIPT,)),
    **dict.fromkeys((".ts", ".mts", ".cts"), (programs.TYPESCRIPT,)),
    ".tsx": (programs.TSX,),
    ".go": (programs.GO,),
    ".rs": (programs.RUST,),
    ".java": (programs.JAVA,),
    ".c": (programs.C,),
    ".h": (programs.C, programs.CPP),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx", ".cu", ".cuh"), (programs.CPP,)),
    **dict.fromkeys((".cs", ".csx"), (programs.C_SHARP,)),
    **dict.fromkeys((".rb", ".rake", ".gemspec", ".ru"), (programs.RUBY,)),
    **dict.fromkeys((".php", ".phtml"), (programs.PHP,)),
    **dict.fromkeys((".sh", ".bash", ".bats", ".ksh", ".zsh"), (programs.BASH,)),
    ".css": (data.CSS,),
    **dict.fromkeys((".html", ".htm", ".xhtml"), (data.HTML,)),
    **dict.fromkeys((".json", ".jsonc", ".geojson", ".webmanifest"), (data.JSON,)),
    **dict.fromkeys((".yaml", ".yml"), (data.YAML,)),
    ".toml": (data.TOML,),
    **dict.fromkeys((".sql", ".ddl", ".psql"), (data.SQL,)),
}

_BY_NAME: dict[str, Grammar] = {
    **dict.fromkeys(("Rakefile", "Gemfile", "Vagrantfile", "Podfile"), programs.RUBY),
    **dict.fromkeys((".bashrc", ".bash_profile", ".profile", "PKGBUILD"), programs.BASH),
    "Pipfile": data.TOML,
}

_OTHER_LANGUAGES = {
    ".bat": "batch", ".clj": "clojure", ".cmake": "cmake", ".dart": "dart", ".ex": "elixir",
    ".exs": "elixir", ".f90": "fortran", ".graphql": "graphql", ".hs": "haskell", ".ini": "ini",
    ".jl": "julia", ".kt": "kotlin", ".less": "less", ".lua": "lua", ".m": "matlab", ".ml": "ocaml",
    ".pl": "perl", ".proto": "protobuf", ".ps1": "powershell", ".r": "r", ".s": "assembly",
    ".scala": "scala", ".scss": "scss", ".swift": "swift", ".tex": "latex", ".tf": "terraform",
    ".vue": "vue", ".xml": "xml", ".zig": "zig",
}  # fmt: skip
_OTHER_BY_NAME = {
    "Makefile": "make", "GNUmakefile": "make", "makefile": "make", "Dockerfile": "dockerfile",
    "CMakeLists.txt": "cmake", "Jenkinsfile": "groovy",
}  # fmt: skip
_SHEBANG = re.compile(r"#!.*?\b(python|bash|sh|zsh|node|ruby|perl|php)[\d.]*(?:\s|$)")
_INTERPRETERS = {
    "python": programs.PYTHON,
    "bash": programs.BASH,
    "sh": programs.BASH,
    "zsh": programs.BASH,
    "node": programs.JAVASCRIPT,
    "ruby": programs.RUBY,
    "php": programs.PHP,
}


@dataclass(frozen=True, slots=True)
class Language:
    """A language by name, with the grammars to try in order; none: it is cut by lines."""

    name: str
    grammars: tuple[Grammar, ...] = ()

    @classmethod
    def of(cls, *grammars: Grammar) -> Language:
        """The language of some grammars, named by the first."""
        return cls(grammars[0].language, grammars)


def language_of(path: str, first_line: str) -> Language | None:
    """The language of a file by its name, else by its `#!` line; None for what is not code."""
    name = PurePath(path)
    suffix = name.suffix.lower()
    if grammars := _GRAMMARS.get(suffix):
        return Language.of(*grammars)
    if grammar := _BY_NAME.get(name.name):
        return Language.of(grammar)
    if other := _OTHER_BY_NAME.get(name.name) or _OTHER_LANGUAGES.get(suffix):
        return Language(other)
    shebang = None if suffix else _SHEBANG.match(first_line)
    if shebang is None:
        return None
    known = _INTERPRETERS.get(shebang[1])
    return Language(shebang[1]) if known is None else Language.of(known)


def parsed_languages() -> list[Language]:
    """Every language that has a grammar, once, by name."""
    grammars = {one.language: one for some in _GRAMMARS.values() for one in some}
    return [Language.of(grammars[name]) for name in sorted(grammars)]
