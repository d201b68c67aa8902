"""Errors become one message and an exit code, in one place."""

from __future__ import annotations

import errno
import json
import os

import pytest

from engine import errors
from kvcli.commands import models
from kvcli.output import Interrupted


@pytest.fixture
def failing(kvcli, monkeypatch: pytest.MonkeyPatch):
    """Run a command whose work raises the given error."""

    def run(error: BaseException, *arguments: str):
        def fail() -> None:
            raise error

        monkeypatch.setattr(models, "list_models", fail)
        return kvcli("models", *arguments)

    return run


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.ConfigError, 2),
        (errors.NothingReadable, 3),
        (errors.OverBudget, 4),
        (errors.IdentityMismatch, 5),
        (errors.ModelRefused, 1),
        (errors.StorageError, 1),
        (errors.PartialInput, 6),
        (Interrupted, 130),
    ],
)
def test_an_error_of_the_tree_keeps_its_message_advice_and_code(failing, kind, code: int) -> None:
    ran = failing(kind("it broke", "Mend it."))
    assert (ran.code, ran.out) == (code, "")
    assert ran.err == "kvcli: error: it broke\n  Mend it.\n"


def test_under_json_the_error_is_an_object_on_stdout(failing) -> None:
    ran = failing(errors.OverBudget("9 over 8", "Give more."), "--json")
    assert (ran.code, ran.err) == (4, "")
    assert json.loads(ran.out) == {
        "error": {"message": "9 over 8", "advice": "Give more.", "exit_code": 4}
    }


def test_a_usage_error_under_json_is_an_object_too(kvcli) -> None:
    ran = kvcli("models", "--json", "--bogus")
    assert (ran.code, ran.err) == (2, "")
    assert json.loads(ran.out)["error"]["exit_code"] == 2


def test_ctrl_c_before_anything_was_kept(failing) -> None:
    ran = failing(KeyboardInterrupt())
    assert (ran.code, ran.err) == (130, "kvcli: error: interrupted; nothing was kept\n")


@pytest.mark.parametrize(
    "error", [MemoryError(), type("OutOfMemoryError", (RuntimeError,), {})("x")]
)
def test_out_of_memory_is_one_line(failing, error: BaseException) -> None:
    ran = failing(error)
    assert ran.code == 1
    assert ran.err.startswith("kvcli: error: out of memory\n")


def test_a_full_disk_names_the_file(failing) -> None:
    ran = failing(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/big/s.kv"))
    assert ran.code == 1
    assert ran.err.splitlines()[0] == "kvcli: error: /big/s.kv: No space left on device"


def test_a_closed_pipe_is_silent(failing) -> None:
    ran = failing(BrokenPipeError())
    assert (ran.code, ran.err, ran.out) == (1, "", "")


def test_a_bug_is_one_line_without_traceback(failing) -> None:
    ran = failing(ValueError("odd\nthing"))
    assert ran.code == 1
    assert ran.err.splitlines() == [
        "kvcli: error: internal error: ValueError: odd thing",
        "  Run it again with --debug for the traceback.",
    ]


def test_debug_shows_the_traceback(failing) -> None:
    ran = failing(ValueError("odd"), "--debug")
    assert ran.code == 1
    assert "Traceback (most recent call last)" in ran.err
    assert "in fail" in ran.err


def test_markup_and_escapes_in_a_message_are_neither_obeyed_nor_lost(failing) -> None:
    """`src/[id]/page.tsx` would lose its middle, and `[/b]` would raise, if read as markup."""
    ran = failing(errors.ConfigError("no src/[id]/page.tsx or [/b]x.pdf \x1b[2J\u202e"))
    assert ran.err == "kvcli: error: no src/[id]/page.tsx or [/b]x.pdf [2J\n"


def test_no_arguments_print_help(kvcli) -> None:
    ran = kvcli()
    assert ran.code == 0
    assert "summarize" in ran.out


@pytest.mark.parametrize(
    "arguments", [["bogus"], ["ask"], ["summarize"], ["ingest", "x"], ["resume"], ["inspect"]]
)
def test_an_incomplete_command_is_a_usage_error(kvcli, arguments: list[str]) -> None:
    ran = kvcli(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("kvcli: error: ")
    assert "--help" in ran.err.splitlines()[1]


def test_the_version_is_printed(kvcli) -> None:
    assert kvcli("--version").out.startswith("kvcli ")
