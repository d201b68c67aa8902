"""The part of the command tree that looks at runs and at this machine, and changes nothing.

Owns what these commands are called with; `kvcli.app` makes them part of the tree. Each command's
module is imported when it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvcli.option_binding import takes_options
from kvcli.options import MODEL, OUTPUT, RunOptions

commands = typer.Typer()
bench = typer.Typer(help="Compare ways to do the same thing.")


@commands.command()
@takes_options(OUTPUT)
def report(
    run_file: Annotated[
        Path, typer.Argument(metavar="RUN.jsonl", help="What --metrics has written.")
    ],
    options: RunOptions,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="RUN.html", help="The page; else beside it."),
    ] = None,
) -> None:
    """Draw a run as a page for a browser."""
    from kvcli.commands import report

    report.run(options, run_file, page=output)


@commands.command()
@takes_options(OUTPUT)
def models(options: RunOptions) -> None:
    """List the models at hand."""
    from kvcli.commands import models

    models.run(options)


@commands.command()
@takes_options(MODEL, OUTPUT)
def doctor(options: RunOptions) -> None:
    """Check this machine and say what to do about what is missing."""
    from kvcli.commands import doctor

    doctor.run(options)


@bench.command()
@takes_options(OUTPUT)
def evict(
    run_files: Annotated[
        list[Path], typer.Argument(metavar="RUN.jsonl", help="What --metrics has written.")
    ],
    options: RunOptions,
    pages: Annotated[
        list[int], typer.Option(metavar="N", min=1, help="Pages of the tier. Repeatable.")
    ] = [],  # noqa: B006
    share: Annotated[
        list[float],
        typer.Option(
            metavar="SHARE", min=0.0, max=1.0,
            help="The same as a share of the pages that the run read. "
            "Repeatable. Default: 1/8, 1/4, 1/2.",
        ),
    ] = [],  # noqa: B006
) -> None:  # fmt: skip
    """Compare eviction policies, and the best there could be, on the page accesses of a run.

    Nothing is computed again: the accesses that --metrics has recorded are replayed through one
    tier. Of several runs in a file the last one counts.
    """
    from kvcli.commands import bench

    bench.run(options, tuple(run_files), pages=tuple(pages), shares=tuple(share))
