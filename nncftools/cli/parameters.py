"""How the command line reads its parameters: the same with each release of typer, and of Click below older ones.

Some releases lose the help of arguments, order names by chance, convert defaults, or put errors into other words. From
0.29 on, typer also imports pydantic for each parameter that is not a flag, which takes 280 ms of CPU. So only their
parser is used: values are converted, and help and errors written, from what the function declares. The methods that are
replaced are public ones of Click.
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
from nncftools.cli.help_page import Declared
from nncftools.errors import UsageError
from nncftools.units import not_one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Parameter = TyperOption | TyperArgument
_ParserError: type[Exception] = typer.BadParameter.__bases__[0]
"""``UsageError`` of Click; from 0.26 on, typer contains a copy of Click."""


class _OurParameters:
    """Takes over the parameters, the help and the errors of a command of Typer's, which is the next base class."""

    callback: Callable[..., Any] | None

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with our conversion."""
        return _taken_over(super().get_params(ctx), self._declared)  # type: ignore[misc] # of the next base class

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed into the context, and return the words that are left. Raises UsageError."""
        try:
            left: list[str] = super().parse_args(ctx, args)  # type: ignore[misc] # of the next base class
        except _ParserError as error:
            from nncftools.cli import mistakes

            raise mistakes.explained(error, ctx) from None
        return left

    def get_help_option_names(self, ctx: Any) -> list[str]:
        """Return the names of the option that shows the help, in a fixed order: Click's is that of a set."""
        return list(ctx.help_option_names)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, purpose, examples, the options in their groups, and what else there is to know."""
        help_page.write(self, self._declared, ctx, formatter)

    @property
    def _declared(self) -> Mapping[str, Declared]:
        assert self.callback is not None  # Typer's commands have one
        return _declarations(inspect.unwrap(self.callback))


class Command(_OurParameters, TyperCommand):
    """A subcommand."""

    allow_extra_args = True
    """Click would refuse them in words that differ between its releases."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed into the context. Raises UsageError, also for words that nothing takes."""
        left = super().parse_args(ctx, args)
        if left and not ctx.resilient_parsing:
            from nncftools.cli import mistakes

            raise mistakes.unexpected(left, ctx)
        return left


class Group(_OurParameters, TyperGroup):
    """The command with the subcommands."""

    sections: Mapping[str, Mapping[str, str]]
    """What the subcommands do, by section of the help."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the subcommand that the words name; ``help COMMAND`` is ``COMMAND --help``. Raises UsageError."""
        word, *rest = args
        if word == "help" and rest:
            return self.resolve_command(ctx, [rest[0], "--help"])
        found = self.get_command(ctx, word)
        if found is None and not ctx.resilient_parsing:
            if word in {"help", *ctx.help_option_names}:
                typer.echo(ctx.get_help())
                raise typer.Exit
            from nncftools.cli import mistakes

            raise mistakes.unknown_command(word, str(ctx.command_path), self.list_commands(ctx), rest)
        return (word if found else None), found, rest


@functools.cache
def _declarations(function: Callable[..., Any]) -> Mapping[str, Declared]:
    """Return the parameters that a function declares with ``Annotated``, by name."""
    signature = inspect.signature(function, eval_str=True).parameters
    declared: dict[str, Declared] = {}
    for name, parameter in signature.items():
        if typing.get_origin(parameter.annotation) is typing.Annotated:
            kind, option = typing.get_args(parameter.annotation)
            declared[name] = Declared(kind, option, parameter.default)
    return declared


def _taken_over(parameters: list[Any], declared: Mapping[str, Declared]) -> list[Any]:
    for parameter in parameters:
        if "process_value" in vars(parameter):
            continue
        own = declared.get(parameter.name)  # typer adds options of its own
        vars(parameter)["process_value"] = functools.partial(_processed, own, parameter, parameter.process_value)
        if own is not None:
            vars(parameter)["type_cast_value"] = _unchanged
    return parameters


def _unchanged(_: typer.Context, value: Any) -> Any:
    """Return a value as it is: Click 8.0 gives defaults to the function that parses what was typed."""
    return value


def _processed(
    own: Declared | None,
    parameter: Parameter,
    otherwise: Callable[[typer.Context, Any], Any],
    context: typer.Context,
    value: Any,
) -> Any:
    """Convert what was typed; a default has its type already. Raises UsageError."""
    if not isinstance(value, bool | str | tuple | list):
        if parameter.required:
            raise UsageError(f"{_named(parameter)}: missing; see `{context.command_path} --help`")
        return value
    if own is None or isinstance(value, bool):
        return otherwise(context, value)  # an option of typer's, or a flag, which may have a callback
    convert = own.option.parser or functools.partial(_converted, kind=_innermost(own.kind), smallest=own.option.min)
    try:
        return convert(value) if isinstance(value, str) else [convert(text) for text in value]
    except ValueError as error:
        raise UsageError(f"{_named(parameter)}: {error}") from None


def _named(parameter: Parameter) -> str:
    """Return how errors name a parameter: by the longest name of an option, or the metavar of an argument."""
    is_argument = isinstance(parameter, TyperArgument)
    return f"argument {parameter.metavar}" if is_argument else f"option {max(parameter.opts, key=len)}"


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
