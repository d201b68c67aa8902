"""What the walk lists is what git lists, whatever the names and the rules."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvcli.corpus.listing import list_folder

NAMES = [
    "a",
    "b",
    "ab",
    "aa",
    "a.o",
    "b.txt",
    ".a",
    "a b",
    "a ",
    "#a",
    "!a",
    "[a]",
    "ä",
    "a\nb",
    "a*",
]
"""Few, so that rules hit them."""

PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)
TREES = st.lists(PATHS, min_size=1, max_size=8)
GLOBS = st.lists(
    st.sampled_from([*NAMES, "*", "?", "[ab]", "[!a]", "[a-c]", "\\#", "\\!", "\\*", "*.o", "ab*"]),
    min_size=1,
    max_size=2,
).map("".join)
SEGMENTS = st.lists(GLOBS | st.just("**"), min_size=1, max_size=3).map("/".join)
RULES = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/", "**/"]),
    SEGMENTS.map(lambda rule: rule.replace("\n", "?")),
    st.sampled_from(["", "", "/", "/**", "/*", " "]),
)
RULE_FILES = st.dictionaries(
    st.sampled_from(["", "a", "b", "a/b", "ab"]), st.lists(RULES, max_size=4), max_size=3
)
GIT = ["git", "-c", "core.excludesFile=/dev/null", "-c", "core.ignoreCase=false"]


def write(root: Path, paths: list[list[str]], rule_files: dict[str, list[str]]) -> None:
    for folder, rules in rule_files.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / ".gitignore").write_bytes("\n".join([*rules, ""]).encode())
    for parts in paths:
        path = root.joinpath(*parts)
        if not any(above.is_file() for above in path.parents) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")


def as_git_lists(root: Path) -> set[str]:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    subprocess.run([*GIT, "init", "-q", str(root)], check=True, env=env)
    words = ["-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run([*GIT, *words], check=True, capture_output=True, env=env).stdout
    return {os.fsdecode(name) for name in listed.split(b"\0") if name}


@given(TREES, RULE_FILES)
@settings(deadline=None, max_examples=60)
@example([["a\nb", "a"], ["a\nb", "b"]], {"": ["a"]})
@example([["a\n"], ["a"]], {"": ["a"]})
def test_the_walk_lists_what_git_lists(
    paths: list[list[str]], rule_files: dict[str, list[str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, paths, rule_files)
        walked = set(list_folder(root).entries)
        assert walked == as_git_lists(root)
        assert walked == set(list_folder(root).entries)
