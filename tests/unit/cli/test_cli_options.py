"""Where an option's value comes from, and what is refused."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import typing
from pathlib import Path

import pytest
import typer

from engine.policies import POLICIES
from kvcli import app
from kvcli.app import Invocation
from kvcli.commands import models
from kvcli.options import RunOptions


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[RunOptions]:
    """The options that `kvcli inspect` was run with."""
    from kvcli.commands import inspect as command

    calls: list[RunOptions] = []
    monkeypatch.setattr(command, "run", lambda options, paths: calls.append(options))
    return calls


def write_config(home: Path, text: str) -> Path:
    path = home / ".config" / "kvcli" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_a_flag_beats_the_variable_beats_the_file_beats_the_default(
    seen: list[RunOptions], private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.run(["inspect", "x"])
    write_config(private_home, 'ram = "3GB"\npage-tokens = 32\ninclude = ["*.py"]\nquiet = true\n')
    app.run(["inspect", "x"])
    monkeypatch.setenv("KVCLI_RAM", "2GB")
    app.run(["inspect", "x"])
    app.run(["inspect", "x", "--ram", "1GB"])
    assert [options.ram for options in seen] == [None, 3 * 10**9, 2 * 10**9, 10**9]
    assert (seen[1].page_tokens, seen[1].include, seen[1].quiet) == (32, ("*.py",), True)


def test_every_option_has_a_variable(
    seen: list[RunOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"KVCLI_WINDOW": "77", "KVCLI_STRICT": "1", "KVCLI_KV_DTYPE": "raw",
              "KVCLI_METRICS": "m.jsonl", "KVCLI_EXCLUDE": "a b"}  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    app.run(["inspect", "x"])
    (options,) = seen
    assert (options.window, options.strict, options.kv_dtype) == (77, True, "raw")
    assert (options.metrics, options.exclude) == (Path("m.jsonl"), ("a", "b"))


def test_an_unknown_key_is_named_with_its_file(kvcli, private_home: Path) -> None:
    path = write_config(private_home, "pagetokens = 32\n")
    ran = kvcli("models")
    assert ran.code == 2
    assert f'{path} has an unknown key "pagetokens"' in ran.err
    assert 'Did you mean "page_tokens"?' in ran.err


def test_a_config_that_is_not_toml_is_named(kvcli, private_home: Path) -> None:
    path = write_config(private_home, "ram = 2GB")
    ran = kvcli("models")
    assert ran.code == 2
    assert f"{path} is not valid TOML" in ran.err


def test_a_bad_value_says_where_it_came_from(
    kvcli, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_config(private_home, 'ram = "much"\n')
    assert f"(from {path})" in kvcli("inspect", "x").err
    monkeypatch.setenv("KVCLI_RAM", "12 potatoes")
    assert "(from KVCLI_RAM)" in kvcli("inspect", "x").err


def test_no_config_is_read_from_the_working_directory(
    kvcli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kvcli").mkdir()
    for name in ("config.toml", "kvcli.toml", "kvcli/config.toml"):
        (tmp_path / name).write_text("nonsense = 1")
    monkeypatch.chdir(tmp_path)
    assert kvcli("models").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--page-tokens", "48"],
        ["--page-tokens", "1024"],
        ["--ram", "12potatoes"],
        ["--ram", "0"],
        ["--window", "0"],
        ["--attention", "magic"],
        ["--kv-dtype", "int5"],
        ["--kv-dtype", "disk=int4,disk=int8"],
        ["--kv-dtype", "ram=int8"],
        ["--kv-dtype", "tape=int8"],
        ["--evict", "random"],
        ["--pager", "magic"],
        ["--prefetch", "everything"],
        ["--device", "tpu"],
        ["--dashboard", "big"],
        ["--color", "red"],
        ["--no-such-option"],
    ],
)
def test_nonsense_is_one_line_and_exit_2(kvcli, arguments: list[str]) -> None:
    ran = kvcli("inspect", "x", *arguments)
    assert (ran.code, ran.out) == (2, "")
    message, advice = ran.err.splitlines()
    assert message.startswith("kvcli: error: ")
    assert arguments[0] in message
    assert advice.startswith("  ")


@pytest.mark.parametrize("arguments", [["--top-p", "0"], ["--temperature", "-1"], ["--seed", "x"]])
def test_nonsense_about_the_answer_is_refused(kvcli, arguments: list[str]) -> None:
    assert kvcli("ask", "why?", *arguments).code == 2


def test_the_choices_of_evict_are_the_policies_that_exist() -> None:
    assert set(typing.get_args(typing.get_type_hints(RunOptions)["evict"])) == set(POLICIES)


def test_every_option_has_a_docstring() -> None:
    body = ast.parse(inspect.getsource(RunOptions)).body[0].body
    documented = {
        field.target.id
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }
    assert documented == {field.name for field in dataclasses.fields(RunOptions)}


def test_a_command_takes_only_the_options_of_its_panels(kvcli) -> None:
    ran = kvcli("models", "--temperature", "1")
    assert ran.code == 2


def test_the_tree_also_runs_under_typers_own_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    monkeypatch.setattr(models, "list_models", list)
    result = CliRunner().invoke(app.app, ["models", "--json"], obj=Invocation())
    assert json.loads(result.stdout) == {"models": []}
    assert isinstance(app.app, typer.Typer)
