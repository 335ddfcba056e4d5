"""How the command line reads and shows its parameters: the same with each release of typer.

Releases say different things of a wrong value, and write arguments differently into the help. From 0.29 on, typer also
imports pydantic for each parameter that is not a flag, which takes 280 ms of CPU. So the values are converted here, by
the types of the function; ``process_value`` and the other methods that are replaced are public ones of Click.
"""

from __future__ import annotations

import enum
import functools
import inspect
import typing
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from nncftools.cli import help_page
from nncftools.errors import UsageError
from nncftools.text import not_one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Parameter = TyperOption | TyperArgument


class _OurParameters:
    """Takes over the parameters and the help of a command of Typer's, which is the next base class."""

    callback: Callable[..., Any] | None
    epilog: str | None

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with our conversion."""
        return _taken_over(super().get_params(ctx), self.callback)  # type: ignore[misc] # of the next base class

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, purpose, examples, the options in their groups, and what else there is to know."""
        help_page.write(self, ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options by group."""
        help_page.write_parameters(self.get_params(ctx), ctx, formatter)


class Command(_OurParameters, TyperCommand):
    """A subcommand."""


class Group(_OurParameters, TyperGroup):
    """The command with the subcommands."""

    sections: Mapping[str, Mapping[str, str]]
    """What the subcommands do, by section of the help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 — Click's signature
        """Write the subcommands, section by section."""
        for title, commands in self.sections.items():
            help_page.section(formatter, title, list(commands.items()), first_column=self._longest_name)

    @property
    def _longest_name(self) -> int:
        return max(len(name) for commands in self.sections.values() for name in commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the subcommand that the words name; ``help COMMAND`` is ``COMMAND --help``. Raises UsageError."""
        word, *rest = args
        if word == "help":
            if not rest:
                typer.echo(ctx.get_help())
                raise typer.Exit
            return self.resolve_command(ctx, [rest[0], "--help"])
        found = self.get_command(ctx, word)
        if found is None and not ctx.resilient_parsing and not word.startswith("-"):
            from nncftools.cli import mistakes

            raise mistakes.unknown_command(word, str(ctx.command_path), self.list_commands(ctx), rest)
        return super().resolve_command(ctx, args)


def _taken_over(parameters: list[Any], callback: Callable[..., Any] | None) -> list[Any]:
    assert callback is not None  # Typer's commands have one
    function = inspect.unwrap(callback)
    for parameter in parameters:
        if not isinstance(parameter, Parameter) or "process_value" in vars(parameter):
            continue
        process = functools.partial(_processed, function, parameter, parameter.process_value)
        vars(parameter).update(process_value=process)
        if isinstance(parameter, TyperArgument):
            describe = functools.partial(_described, parameter, parameter.get_help_record)
            usage = functools.partial(_usage, parameter)
            vars(parameter).update(get_help_record=describe, get_usage_pieces=usage)
    return parameters


def _processed(
    function: Callable[..., Any],
    parameter: Parameter,
    otherwise: Callable[[typer.Context, Any], Any],
    context: typer.Context,
    value: Any,
) -> Any:
    """Convert what was typed; a default has its type already. The rest is typer's: flags, and what is missing."""
    if not isinstance(value, str | tuple | list):
        return otherwise(context, value) if parameter.required or isinstance(value, bool) else value
    own = _signature(function).get(str(parameter.name))
    if own is None:  # an option of typer's
        return otherwise(context, value)
    kind, option = typing.get_args(own.annotation)
    convert = option.parser or functools.partial(_converted, kind=_innermost(kind), smallest=option.min)
    try:
        return convert(value) if isinstance(value, str) else [convert(text) for text in value]
    except ValueError as error:
        raise UsageError(f"{_named(parameter)}: {error}") from None


def _named(parameter: Parameter) -> str:
    """Return how errors name a parameter: by the longest name of an option, or the metavar of an argument."""
    return f"argument {parameter.metavar}" if isinstance(parameter, TyperArgument) else option_name(parameter)


def option_name(option: TyperOption) -> str:
    """Return the longest of an option's names, after the word."""
    return f"option {max(option.opts, key=len)}"


@functools.cache
def _signature(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function, eval_str=True).parameters


def _innermost(kind: Any) -> Any:
    """Return a type without ``list`` and ``None``."""
    while inner := typing.get_args(kind):
        kind = inner[0]
    return kind


def _converted(value: Any, kind: Any, smallest: float | None) -> Any:
    """Return a text as its type; a default is returned as it is. Raises ValueError, which says what is wrong."""
    if not isinstance(value, str):
        return value
    if issubclass(kind, enum.Enum):
        members = [str(member.value) for member in kind]
        found = [name for name in members if name.casefold() == value.casefold()]
        if not found:
            raise ValueError(not_one_of(value, members))
        value = found[0]
    try:
        converted = kind(value)
    except ValueError:
        expected = {int: "a whole number", float: "a number"}.get(kind, kind.__name__)
        raise ValueError(f"{expected} expected, found {value!r}") from None
    if smallest is not None and converted < smallest:
        raise ValueError(f"at least {smallest:g} expected, found {converted}")
    return converted


def _usage(argument: TyperArgument, _: typer.Context) -> list[str]:
    metavar = str(argument.metavar)
    return [f"{{{metavar}}}" if argument.required else metavar if metavar.startswith("[") else f"[{metavar}]"]


def _described(
    argument: TyperArgument, describe: Callable[[typer.Context], tuple[str, str] | None], context: typer.Context
) -> tuple[str, str] | None:
    """Return the metavar and the meaning, without the type that some releases add."""
    described = describe(context)
    return described and (str(argument.metavar), described[1])
