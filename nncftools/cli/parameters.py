"""Additions to typer: groups of options in the help, and parsers for the values of parameters.

Typer 0.29 imports pydantic to convert a value, at a cost of 280 ms of CPU, so this module converts values. Rich could
draw the groups, but the import of Rich takes 100 ms of CPU.
"""

from __future__ import annotations

import enum
import functools
import inspect
import typing
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from nncftools.cli import screen
from nncftools.errors import UsageError
from nncftools.units import not_one_of

ARGUMENTS = "Arguments"
RECORD = "What to record"
RUN = "How to run the command"
WRITE = "Where to write"
READ = "What to read"
SHOW = "How to show it"
OTHER = "Options"
_ORDER = (ARGUMENTS, READ, RECORD, RUN, WRITE, SHOW, OTHER)
_WIDEST_NAME = 30
_NARROWEST_NAME = 8
_ROOM_FOR_MEANING = 48
_EXPECTED = {int: "a whole number", float: "a number"}


File = Path | None
Files = list[Path] | None
Texts = list[str] | None
"""Types of options that the user may leave out."""


def option(names: str, group: str, meaning: str, **settings: Any) -> Any:
    """Return an option; ``names`` ends with the placeholder of the value, if any: ``--output -o FILE``."""
    words = names.split()
    metavar = None if words[-1].startswith("-") else words.pop()
    return typer.Option(*words, metavar=metavar, help=meaning, rich_help_panel=group, **settings)


def argument(metavar: str, meaning: str, **settings: Any) -> Any:
    """Return a positional argument, named ``metavar`` in the help."""
    return typer.Argument(metavar=metavar, help=meaning, rich_help_panel=ARGUMENTS, **settings)


def with_options(kind: type, *, without: Collection[str] = ()) -> Callable[[Callable[[Any], int]], Callable[..., int]]:
    """Return a decorator for a function of a dataclass ``kind``: each field becomes an option."""
    fields = inspect.signature(kind, eval_str=True).parameters.values()
    signature = inspect.Signature([field for field in fields if field.name not in without])

    def decorate(function: Callable[[Any], int]) -> Callable[..., int]:
        def command(**values: Any) -> int:
            return function(kind(**values))

        command.__doc__ = function.__doc__
        command.__signature__ = signature  # type: ignore[attr-defined]
        return command

    return decorate


class Command(TyperCommand):
    """A subcommand; the help shows the options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the groups of options."""
        write_options(self, ctx, formatter)


def write_options(command: Any, context: Any, formatter: Any) -> None:
    """Write the arguments of a command and the groups of options."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        if getattr(parameter, "hidden", False):
            continue
        group = getattr(parameter, "rich_help_panel", None) or OTHER
        names, meaning = parameter.get_help_record(context)
        if group == ARGUMENTS:
            names = parameter.metavar
        groups.setdefault(group, []).append((names, meaning))
    for group in sorted(groups, key=_ORDER.index):
        write_section(formatter, group, groups[group])


def write_section(formatter: Any, title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Write a section of a help text; on a narrow terminal, each name stands above the meaning."""
    widest = min(_WIDEST_NAME, max(_NARROWEST_NAME, formatter.width - _ROOM_FOR_MEANING))
    with formatter.section(screen.styled(title, screen.OUT)):
        formatter.write_dl([*rows], col_max=widest)


def set_parsers(command: Any, function: Callable[..., Any]) -> None:
    """Make the parameters of a command parse values by the types that ``function`` declares."""
    signature = inspect.signature(function, eval_str=True).parameters
    for parameter in command.params:
        kind, declared = typing.get_args(signature[parameter.name].annotation)
        while inner := typing.get_args(kind):
            kind = inner[0]
        parse = declared.parser or functools.partial(_parse, kind, declared.min)
        parameter.process_value = functools.partial(_process, parameter, parse)


def _process(parameter: Any, parse: Callable[[str], Any], context: typer.Context, value: Any) -> Any:
    """Parse the value of a parameter, or each value of a list. Raises UsageError."""
    kind = parameter.param_type_name
    name = f"{kind} {parameter.metavar if kind == 'argument' else parameter.opts[0]}"
    if not isinstance(value, str | tuple | list):  # a flag, a default, or nothing
        if parameter.required:
            raise UsageError(f"{name}: missing; see `{context.command_path} --help`")
        return value
    try:
        return parse(value) if isinstance(value, str) else [parse(text) for text in value]
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _parse(kind: Any, least: float | None, text: str) -> Any:
    """Parse a text as a value of type ``kind``. Raises ValueError."""
    if issubclass(kind, enum.Enum):
        text = text.lower()
        if text not in list(kind):
            raise ValueError(not_one_of(text, map(str, kind)))
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(f"{_EXPECTED[kind]} expected, found {text!r}") from None
    if least is not None and value < least:
        raise ValueError(f"at least {least:g} expected, found {text}")
    return value
