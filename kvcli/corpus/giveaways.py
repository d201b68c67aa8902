"""What the text of a file found in a folder gives away: that a program wrote it, or a secret.

Owns the patterns for both and what is said about a hit, which is never the secret itself. Decides
nothing: the reader skips what is generated, warns about secrets, and skips what is little else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_HEAD_LINES = 30
_LINE_CHARS = 300
_COMMENT = re.compile(r"\s*(?:#|//|/?\*|--|;|<!--|%)")
_GENERATED = re.compile(
    r"(?<![\w@.`'\"])@generated(?![\w`'\"(])"
    r"|\b(?:auto)?generated\b.{0,200}?\bdo not (?:edit|modify|change)\b"
    r"|\bdo not (?:edit|modify|change)\b.{0,200}?\b(?:auto)?generated\b"
    r"|\b(?:generated|made) (?:automatically )?by (?:GNU )?"
    r"(?:autoconf|automake|aclocal|libtool|bison|cython|re2c)\b",
    re.IGNORECASE | re.DOTALL,
)
_MOSTLY = 0.5
"""Share of a file from which on it is its secret and nothing is lost without it."""


@dataclass(frozen=True, slots=True)
class Secret:
    """Something that looks like a secret."""

    rule: str
    line: int
    share: float
    """Of the file's text."""

    @property
    def is_all(self) -> bool:
        """Whether the file is little else."""
        return self.share >= _MOSTLY

    def told(self) -> str:
        """What is said about it."""
        return f"line {self.line} looks like {self.rule}"


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    literal: str
    """Stands in every hit, and is much quicker to look for than the pattern."""
    pattern: re.Pattern[str]


def _rule(name: str, literal: str, pattern: str) -> _Rule:
    return _Rule(name, literal, re.compile(pattern))


_WORD = r"(?<![A-Za-z0-9_-])"
_RULES = (
    _rule(
        "a private key",
        "PRIVATE KEY-----",
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY-----(?:\\n|\s){1,8}"
        r"(?:[A-Za-z-]{1,20}: [^\n]{1,80}\n\s{0,8}){0,4}[A-Za-z0-9+/=]{32}"
        r"(?:[A-Za-z0-9+/=\\]|\s)*(?:-----END [A-Z0-9 ]{1,50}-----)?",
    ),
    _rule("an AWS access key", "AKIA", _WORD + r"AKIA[A-Z2-7]{16}\b"),
    _rule("a temporary AWS access key", "ASIA", _WORD + r"ASIA[A-Z2-7]{16}\b"),
    _rule("a Google API key", "AIza", _WORD + r"AIza[\w-]{35}(?![\w-])"),
    _rule("an Azure storage key", "AccountKey=", r"AccountKey=[A-Za-z0-9+/]{86}=="),
    _rule("a GitHub token", "gh", _WORD + r"gh[pousr]_[A-Za-z0-9]{36,255}\b"),
    _rule("a GitHub token", "github_pat_", _WORD + r"github_pat_\w{60,255}\b"),
    _rule("a GitLab token", "glpat-", _WORD + r"glpat-[\w-]{20,}"),
    _rule("a Slack token", "xox", _WORD + r"xox[abprs]-\d{6,}-[\w-]{10,}"),
    _rule("a Stripe key", "k_live_", _WORD + r"[rs]k_live_[A-Za-z0-9]{20,}"),
    _rule("an npm token", "npm_", _WORD + r"npm_[A-Za-z0-9]{36}\b"),
    _rule("a PyPI token", "pypi-AgE", _WORD + r"pypi-AgE[\w-]{50,}"),
    _rule("a Hugging Face token", "hf_", _WORD + r"hf_[A-Za-z]{34}\b"),
    _rule("a SendGrid key", "SG.", _WORD + r"SG\.[\w-]{22}\.[\w-]{43}(?![\w-])"),
    _rule("an OpenAI or Anthropic key", "sk-", _WORD + r"sk-(?:proj|ant|svcacct)-[\w-]{40,}"),
)
_FEW_CHARACTERS = 8
_PLACEHOLDER = re.compile(r"EXAMPLE|X{6}|x{6}|0{8}|123456789")


def says_generated(lines: Sequence[str]) -> int | None:
    """The line, counted from 1, at which comments at a file's head say that a program wrote it."""
    comments: list[str] = []
    numbers: list[int] = []
    for number, line in enumerate(lines[:_HEAD_LINES], start=1):
        if _COMMENT.match(line):
            comments.append(line.rstrip("\r\n")[:_LINE_CHARS])
            numbers.append(number)
    found = _GENERATED.search("\n".join(comments))
    return numbers[found.string.count("\n", 0, found.start())] if found else None


def secrets_in(text: str) -> Iterator[Secret]:
    """What looks like a secret, at most one for each kind; placeholders of manuals do not."""
    for rule in _RULES:
        if rule.literal not in text:
            continue
        for found in rule.pattern.finditer(text):
            if len(set(found[0])) > _FEW_CHARACTERS and not _PLACEHOLDER.search(found[0]):
                line = text.count("\n", 0, found.start()) + 1
                yield Secret(rule.name, line, len(found[0]) / len(text))
                break
