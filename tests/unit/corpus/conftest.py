"""A repository to read, and no git settings but our own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from corpus_kit import MakeTree


@pytest.fixture
def tree(tmp_path: Path) -> MakeTree:
    """Writes files (path -> contents) into a folder and returns it."""

    def make(files: Mapping[str, str | bytes]) -> Path:
        root = tmp_path / "tree"
        root.mkdir(exist_ok=True)
        for name, contents in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return root

    return make


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs git in a folder, untouched by the settings of whoever runs the tests."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")

    def run(folder: Path, *arguments: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always")
        done = subprocess.run(
            ["git", *who, "-C", str(folder), *arguments],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    return run
