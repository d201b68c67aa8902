"""What the tests of the whole command line share: tiny models, documents, runs in this process.

A run in this process takes a twentieth of a second. What must be interrupted or killed is run by
`child_kit`.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_tiny_model

from engine.session import SessionFile
from kvcli import app, recent_sessions

WINDOW = 2048


@dataclass(frozen=True)
class Ran:
    """What one command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    @property
    def error(self) -> list[str]:
        """The lines on stderr from the error on; the error is the last thing said."""
        lines = self.err.splitlines()
        first = next((i for i, line in enumerate(lines) if line.startswith("kvcli: error: ")), None)
        return [] if first is None else lines[first:]


Kvcli = Callable[..., Ran]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of three layers with a window of 2,048 tokens; about two letters are a token."""
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny", "llama")


@pytest.fixture(scope="session")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a window of 32,768."""
    folder = tmp_path_factory.mktemp("models") / "long"
    return make_tiny_model(folder, "llama", max_position_embeddings=1 << 15)


@pytest.fixture
def kvcli(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tiny_model: Path,
) -> Kvcli:
    """Run a command line in this process, in a folder of its own, with the tiny model."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, stdin: bytes | None = None, model: Path = tiny_model) -> Ran:
        words = [str(argument) for argument in arguments]
        source = io.TextIOWrapper(io.BytesIO(stdin or b""), "utf-8", errors="replace")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", source)
            code = app.run([words[0], "--model", str(model), *words[1:]])
        return Ran(code, *capfd.readouterr())

    return run


@pytest.fixture
def tool(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Kvcli:
    """Run a command line that takes no model; the list of recent sessions is this test's own."""
    monkeypatch.setattr(recent_sessions, "cache_dir", lambda: tmp_path / "cache")

    def run(*arguments: object, **_: object) -> Ran:
        code = app.run([str(argument) for argument in arguments])
        return Ran(code, *capfd.readouterr())

    return run


@pytest.fixture
def session(kvcli: Kvcli, tool: Kvcli, long_notes: Path) -> Path:
    """The session of `long_notes`, s.kv in the working folder."""
    assert kvcli("ingest", "--dashboard", "off", long_notes, "-o", "s.kv").code == 0
    return Path("s.kv")


def stored_ids(path: Path) -> list[int]:
    """The token ids of a session file."""
    with SessionFile.open(path, writable=False) as file:
        return [int(token) for token in file.token_ids]


def kv_tokens(path: Path) -> int:
    """How many of them have KV."""
    with SessionFile.open(path, writable=False) as file:
        return file.kv_tokens


def stored_kv(path: Path) -> bytes:
    """Every page of a session, the tail included, as it lies at rest."""
    with SessionFile.open(path, writable=False) as file:
        geometry = file.geometry
        parts = []
        for page in range(file.kv_tokens // geometry.page_tokens):
            segment, first = divmod(page, geometry.pages_per_segment)
            for half in (0, 1):
                for layer in range(geometry.num_layers):
                    buffer = bytearray(geometry.page_slice_bytes)
                    file.read_pages(segment, half, layer, first, 1, memoryview(buffer))  # type: ignore[arg-type]
                    parts.append(bytes(buffer))
        if file.tail_tokens:
            tail = bytearray(geometry.page_bytes)
            file.read_tail(memoryview(tail))
            parts.append(bytes(tail))
        return b"".join(parts)


def prose(num_lines: int, first: int = 1) -> str:
    """Lines that all differ."""
    return "".join(
        f"Line {i}: pier {i * 7 % 31} was painted in year {1900 + i * 13 % 97}.\n"
        for i in range(first, first + num_lines)
    )


BOOK_LINES = 80
"""Lines of `book`."""


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text of some 2,900 tokens: three sections of a window of 2,048."""
    monkeypatch.chdir(tmp_path)
    path = Path("book.txt")
    path.write_text(prose(BOOK_LINES))
    return path


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text of some 750 tokens. Its name stands in the prompt, so it is the same in every run."""
    monkeypatch.chdir(tmp_path)
    path = Path("notes.txt")
    path.write_text(prose(20))
    return path


@pytest.fixture
def long_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text of some 9,000 tokens: nine steps."""
    monkeypatch.chdir(tmp_path)
    path = Path("long.txt")
    path.write_text(prose(250))
    return path


def make_session(kvcli: Kvcli, documents: Path) -> int:
    """Ingest into s.kv; how many tokens it holds."""
    assert kvcli("ingest", documents, "-o", "s.kv").code == 0
    return len(stored_ids(Path("s.kv")))


def check_refused(ran: Ran, code: int, told: str, folder: Path) -> None:
    """The run failed as it should: said in one line and an advice, and with nothing left behind."""
    assert ran.code == code, (ran.out, ran.err)
    assert ran.out == ""
    assert 1 <= len(ran.error) <= 2, ran.err
    assert told in ran.error[0]
    assert "Traceback" not in ran.err
    assert all(line == line.rstrip() and line for line in ran.error)
    left = [path.name for path in folder.iterdir() if path.name.startswith((".", "s.kv"))]
    assert [name for name in left if not name.startswith(".child")] == []
