"""The part of the command tree that keeps house over session files.

Owns what these commands are called with; `kvcli.app` makes them part of the tree. Each command's
module is imported when it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvcli.option_binding import takes_options
from kvcli.options import MEMORY, MODEL, OUTPUT, RunOptions

commands = typer.Typer()

SessionPath = Annotated[Path, typer.Argument(metavar="S.kv", help="A session file.")]


@commands.command()
@takes_options(MODEL, MEMORY, OUTPUT)
def verify(
    session_file: SessionPath,
    options: RunOptions,
    repair: Annotated[
        bool, typer.Option("--repair", help="Compute damaged pages again from their tokens.")
    ] = False,
) -> None:
    """Read a whole session file and name what is damaged."""
    from kvcli.commands import verify

    verify.run(options, session_file, repairs=repair)


@commands.command()
@takes_options(OUTPUT)
def sessions(
    options: RunOptions,
    folder: Annotated[
        list[Path], typer.Argument(metavar="FOLDER", help="Where to look besides.")
    ] = [Path()],  # noqa: B006
) -> None:
    """List the sessions that were used lately, and those in a folder."""
    from kvcli.commands import sessions

    sessions.run(options, tuple(folder))


@commands.command()
@takes_options(OUTPUT)
def compact(
    session_file: SessionPath,
    options: RunOptions,
    kv_dtype: Annotated[
        str | None,
        typer.Option("--kv-dtype", metavar="CODEC", help="Code the pages of a raw session, too."),
    ] = None,
) -> None:
    """Write a session anew without what it no longer needs."""
    from kvcli.commands import compact

    compact.run(options, session_file, kv_dtype)


@commands.command()
@takes_options(OUTPUT)
def fork(
    session_file: SessionPath,
    target: Annotated[Path, typer.Argument(metavar="NEW.kv", help="The session to make.")],
    options: RunOptions,
) -> None:
    """Start another session on the same documents; it shares their pages and costs kilobytes."""
    from kvcli.commands import fork

    fork.run(options, session_file, target=target)


@commands.command()
@takes_options(OUTPUT)
def export(
    session_file: SessionPath,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The file to make.")],
    options: RunOptions,
) -> None:
    """Copy a session into one file that needs no other; every page is checked."""
    from kvcli.commands import export

    export.run(options, session_file, target=target)


@commands.command("import")
@takes_options(OUTPUT)
def bring_in(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What kvcli export has made.")],
    options: RunOptions,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="S.kv", help="The session file.")
    ],
) -> None:
    """Take in an exported session; every page is checked."""
    from kvcli.commands import export

    export.bring_in(options, file, target=output)


@commands.command("rm")
@takes_options(OUTPUT)
def remove(
    session_files: Annotated[list[Path], typer.Argument(metavar="S.kv", help="Session files.")],
    options: RunOptions,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove sessions."""
    from kvcli.commands import remove

    remove.run(options, tuple(session_files), is_agreed=yes)
