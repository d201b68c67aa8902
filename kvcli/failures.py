"""What the user is told of an error: one line, what to do next, and the exit code.

Owns the words for errors that are not ours. Prints nothing.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

import typer

from engine.errors import KVError
from kvcli.output import Interrupted
from kvcli.settings import config_path


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as the user is told about it."""

    message: str
    advice: str
    exit_code: int


def explain(error: BaseException) -> Failure:
    """Say of any error what there is to say; ours have their own words and exit codes."""
    if isinstance(error, KVError):
        return Failure(_one_line(error.message), _one_line(error.advice), error.exit_code)
    if isinstance(error, typer.TyperException):
        return _explain_usage(error)
    if isinstance(error, KeyboardInterrupt):
        return Failure("interrupted; nothing was kept", "", Interrupted.exit_code)
    if isinstance(error, typer.Abort):
        return Failure("input ended", "", 1)
    # torch's own out-of-memory error, told by name so that torch need not be imported here
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return Failure("out of memory", "Give a smaller --ram or --vram, or a smaller model.", 1)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        advice = "Free some space and run it again." if error.errno == errno.ENOSPC else ""
        return Failure(_one_line(f"{where}{error.strerror}"), advice, 1)
    message = f"internal error: {type(error).__name__}: {error}".removesuffix(": ")
    return Failure(_one_line(message), "Run it again with --debug for the traceback.", 1)


def _explain_usage(error: typer.TyperException) -> Failure:
    """A usage error in one line, with where a bad value came from and where to read on."""
    context = getattr(error, "ctx", None)
    parameter = getattr(error, "param", None)
    message = _one_line(error.format_message()).rstrip(".")
    if context is not None and parameter is not None:
        source = context.get_parameter_source(parameter.name)
        if source is not None and source.name == "DEFAULT_MAP":
            message += f" (from {config_path()})"
        elif source is not None and source.name == "ENVIRONMENT":
            message += f" (from KVCLI_{parameter.name.upper()})"
    command = context.command_path if context is not None else "kvcli"
    return Failure(message, f"See `{command} --help`.", 2)


def _one_line(text: str) -> str:
    return " ".join(text.split())
