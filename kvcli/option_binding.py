"""Shared options as parameters of a command.

Owns the way from a field of `RunOptions` to a parameter that Typer understands, and back. Knows no
option by name.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.models import OptionInfo

from kvcli.options import RunOptions, option_names


def takes_options(*panels: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the shared options of these panels.

    The command is called with its own arguments and `options: RunOptions`; options of other panels
    keep their defaults. The options are also left in `ctx.obj.options`, for the error handler.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        shared = _parameters(panels)
        own = inspect.signature(command, eval_str=True).parameters.values()
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

        @functools.wraps(command)
        def with_options(ctx: typer.Context, **values: Any) -> None:
            given: dict[str, Any] = {p.name: values.pop(p.name) for p in shared}
            lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
            typed = {name for name in given if _is_typed(ctx, name)}
            options = RunOptions(**given | lists, typed=frozenset(typed))
            ctx.obj.options = options
            command(options=options, **values)

        rest = [p.replace(kind=p.KEYWORD_ONLY) for p in own if p.name != "options"]
        parameters = [context, *rest, *shared]
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {p.name: p.annotation for p in parameters}
        return with_options

    return decorate


def _is_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _parameters(panels: tuple[str, ...]) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(RunOptions, include_extras=True)
    parameters = []
    for field in dataclasses.fields(RunOptions):
        if field.name not in option_names():
            continue
        kind, info = typing.get_args(hints[field.name])
        assert isinstance(info, OptionInfo)
        if info.rich_help_panel not in panels:
            continue
        if kind == tuple[str, ...]:
            kind = list[str]
        info.envvar = f"KVCLI_{field.name.upper()}"
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        parameters.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY,
                default=default, annotation=Annotated[kind, info],
            )
        )  # fmt: skip
    return parameters
