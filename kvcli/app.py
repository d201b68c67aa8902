"""The command tree, and the one place that turns errors into a message and an exit code.

Owns which commands exist and what they are called with. Each command's module is imported when it
runs, so that help and lists never wait for torch. Knows neither documents nor the engine.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from kvcli import housekeeping, insight
from kvcli.failures import Failure, explain
from kvcli.option_binding import takes_options
from kvcli.options import ANSWER, MEMORY, MODEL, OUTPUT, READING, SESSION, RunOptions
from kvcli.output import Interrupted, Output
from kvcli.settings import config_path, load_settings

app = typer.Typer(
    name="kvcli",
    help="Ask and summarise documents and repositories longer than a model's memory.",
    epilog="Every option has a variable KVCLI_<NAME>, and a key in kvcli/config.toml in your "
    "config folder. A path of - is standard input.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

Paths = Annotated[list[str], typer.Argument(metavar="PATH", help="Files and folders; - is stdin.")]

Thorough = Annotated[
    bool,
    typer.Option("--thorough", help="Ask every section: slower, for lists, counts and where else."),
]


@dataclass(slots=True)
class Invocation:
    """What the error handler learns about the run it watches."""

    options: RunOptions | None = None
    """None until the command line has been understood."""


@app.callback()
def _root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    ctx.ensure_object(Invocation)
    if version:
        typer.echo(f"kvcli {_installed_version()}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit
    settings = load_settings(config_path())
    commands = app.registered_commands
    names = [info.name or info.callback.__name__ for info in commands if info.callback]
    ctx.default_map = {**dict.fromkeys(names, settings), "bench": {"evict": settings}}


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 40 ms that nobody else waits for

    try:
        return version("kvcli")
    except PackageNotFoundError:
        return "(running from its sources, not installed)"


@app.command()
@takes_options(MODEL, MEMORY, READING, ANSWER, SESSION, OUTPUT)
def summarize(
    paths: Paths,
    options: RunOptions,
    sections: Annotated[
        bool, typer.Option("--sections", help="Print the note on each section as well.")
    ] = False,
) -> None:
    """Summarise files and folders, or a session, of any length.

    Beyond the model's window a note is made on each section, and the notes are summarised. With
    --session, or on a session, the notes are kept: what was interrupted goes on where it was.
    """
    from kvcli.commands import summarize

    summarize.run(options, tuple(paths), shows_sections=sections)


@app.command()
@takes_options(MODEL, MEMORY, READING, ANSWER, SESSION, OUTPUT)
def ask(
    question: Annotated[list[str], typer.Argument(metavar="QUESTION", help="What to ask.")],
    options: RunOptions,
    repo: Annotated[list[str], typer.Option(metavar="DIR", help="A repository. Repeatable.")] = [],  # noqa: B006
    doc: Annotated[list[str], typer.Option(metavar="FILE", help="A document. Repeatable.")] = [],  # noqa: B006
    thorough: Thorough = False,
) -> None:
    """Ask documents, repositories or a saved session one question."""
    from kvcli.commands import ask

    words = " ".join(question)
    ask.run(options, repos=tuple(repo), docs=tuple(doc), question=words, is_thorough=thorough)


@app.command()
@takes_options(MODEL, MEMORY, READING, OUTPUT)
def ingest(
    paths: Paths,
    options: RunOptions,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="S.kv", help="The session file.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing session.")] = False,
) -> None:
    """Read files and folders once and keep them as a session."""
    from kvcli.commands import ingest

    ingest.run(options, tuple(paths), output=output, force=force)


@app.command()
@takes_options(MODEL, MEMORY, ANSWER, OUTPUT)
def resume(
    session_file: Annotated[Path, typer.Argument(metavar="S.kv", help="A session file.")],
    options: RunOptions,
    question: Annotated[
        list[str], typer.Argument(metavar="QUESTION", help="Without one: chat.")
    ] = [],  # noqa: B006
    thorough: Thorough = False,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Compute all of it again, for another model, dtype or page size."
        ),
    ] = False,
) -> None:
    """Go on with a session: finish its ingest, then answer or chat."""
    from kvcli.commands import resume

    words = " ".join(question) if question else None
    resume.run(options, session_file, question=words, is_thorough=thorough, rebuilds=rebuild)


@app.command()
@takes_options(MODEL, MEMORY, READING, OUTPUT)
def inspect(paths: Paths, options: RunOptions) -> None:
    """Dry run over files and folders, or what a session file holds."""
    from kvcli.commands import inspect

    inspect.run(options, tuple(paths))


@app.command()
@takes_options(MODEL, MEMORY, READING, OUTPUT)
def update(
    session_file: Annotated[Path, typer.Argument(metavar="S.kv", help="A session file.")],
    options: RunOptions,
) -> None:
    """Read a session's documents again; only what has changed is computed."""
    from kvcli.commands import update

    update.run(options, session_file)


app.registered_commands += housekeeping.commands.registered_commands


app.registered_commands += insight.commands.registered_commands
app.add_typer(insight.bench, name="bench")


# -- errors to exit codes --------------------------------------------------------------------------


def main() -> None:
    """Serve the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line.

    Returns:
        The exit code; everything there is to say has been said.
    """
    invocation = Invocation()
    try:
        code = _invoke(arguments, invocation)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BaseException as error:
        code = _report(error, invocation.options or _guess_options(arguments))
    _settle_stdout()
    return code


def _invoke(arguments: list[str], invocation: Invocation) -> int:
    command = get_command(app)
    result = command.main(arguments, prog_name="kvcli", standalone_mode=False, obj=invocation)
    if result == Interrupted.exit_code:  # what Typer makes of a KeyboardInterrupt
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _report(error: BaseException, options: RunOptions) -> int:
    """Say what went wrong, once, and return the exit code."""
    if isinstance(error, SystemExit):  # Typer's answer to a closed pipe
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, BrokenPipeError):
        return 1
    failure = explain(error)
    if options.debug:
        traceback.print_exception(error, file=sys.stderr)
    _tell(failure, options)
    return failure.exit_code


def _tell(failure: Failure, options: RunOptions) -> None:
    try:
        Output(options).error(failure.message, failure.advice, failure.exit_code)
    except OSError:  # stdout cannot even take the error's JSON
        speaking = Output(replace(options, json=False))
        speaking.error(failure.message, failure.advice, failure.exit_code)


def _guess_options(arguments: list[str]) -> RunOptions:
    """What a command line that was not understood says about how to report it."""
    wants_json = "--json" in arguments or os.environ.get("KVCLI_JSON", "0").lower() in ("1", "true")
    return RunOptions(json=wants_json, debug="--debug" in arguments)


def _settle_stdout() -> None:
    """Leave nothing for the interpreter's last flush to fail on."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
