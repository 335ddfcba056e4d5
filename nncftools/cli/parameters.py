"""What the command line adds to typer: groups of options in the help, and how the values of parameters are read.

Typer 0.29 imports pydantic to convert a value, which takes 280 ms of CPU: so values are converted here. Rich would draw
the groups, but loading it takes 100 ms of CPU.
"""

from __future__ import annotations

import enum
import functools
import inspect
import pathlib
import typing
from collections.abc import Callable, Collection, Iterable
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
_WIDEST_NAME, _SHORT_NAME, _ROOM_FOR_MEANING = 30, 8, 48
_EXPECTED = {int: "a whole number", float: "a number"}


File = pathlib.Path | None
Files = list[pathlib.Path] | None
Texts = list[str] | None
"""The types of options that may be missing, by what they hold."""


def option(names: str, group: str, meaning: str, **settings: Any) -> Any:
    """Return an option by its names and what stands for its value: ``--output -o FILE``."""
    words = names.split()
    metavar = None if words[-1].startswith("-") else words.pop()
    return typer.Option(*words, metavar=metavar, help=meaning, rich_help_panel=group, **settings)


def argument(metavar: str, meaning: str, **settings: Any) -> Any:
    """Return the argument that the help calls ``metavar``."""
    return typer.Argument(metavar=metavar, help=meaning, rich_help_panel=ARGUMENTS, **settings)


def with_options(kind: type, *, without: Collection[str] = ()) -> Callable[[Callable[[Any], int]], Callable[..., int]]:
    """Return a decorator: it gives a function of one object of the dataclass ``kind`` an option for each field."""
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
    """A subcommand, whose help shows the options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options by group."""
        write_options(self, ctx, formatter)


def write_options(command: Any, context: Any, formatter: Any) -> None:
    """Write the arguments of a command, and its options by group."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        group = getattr(parameter, "rich_help_panel", None) or OTHER
        names, meaning = parameter.get_help_record(context)
        groups.setdefault(group, []).append((parameter.metavar if group == ARGUMENTS else names, meaning))
    for group in sorted(groups, key=_ORDER.index):
        write_section(formatter, group, groups[group])


def write_section(formatter: Any, title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Write a part of a help; on a narrow terminal, names stand above what they mean."""
    widest = min(_WIDEST_NAME, max(_SHORT_NAME, formatter.width - _ROOM_FOR_MEANING))
    with formatter.section(screen.styled(title, screen.OUT)):
        formatter.write_dl([*rows], col_max=widest)


def read_values(command: Any, function: Callable[..., Any]) -> None:
    """Let the parameters of a command be read as ``function`` declares them."""
    signature = inspect.signature(function, eval_str=True).parameters
    for parameter in command.params:
        kind, declared = typing.get_args(signature[parameter.name].annotation)
        while inner := typing.get_args(kind):
            kind = inner[0]
        read = declared.parser or functools.partial(_read, kind, declared.min)
        parameter.process_value = functools.partial(_process, parameter, read)


def _process(parameter: Any, read: Callable[[str], Any], context: typer.Context, value: Any) -> Any:
    """Return the value of a parameter as its type. Raises UsageError."""
    kind = parameter.param_type_name
    name = f"{kind} {parameter.metavar if kind == 'argument' else parameter.opts[0]}"
    if not isinstance(value, str | tuple | list):  # a flag, a default, or nothing
        if parameter.required:
            raise UsageError(f"{name}: missing; see `{context.command_path} --help`")
        return value
    try:
        return read(value) if isinstance(value, str) else [read(text) for text in value]
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _read(kind: Any, least: float | None, text: str) -> Any:
    """Return a text as its type. Raises ValueError."""
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
