"""How the command line reads its parameters: the same with each release of typer, and of Click below older ones.

Some releases lose the help of arguments, order names by chance, convert defaults, or put errors into other words. From
0.29 on, typer also imports pydantic for each parameter that is not a flag, which takes 280 ms of CPU. So only their
parser is used: values are converted, and help and errors written, from what the function declares. The methods that are
replaced are public ones of Click.

The help has examples first and options in named groups; it is as wide as the terminal, and coloured on one. Rich would
draw it, but loading Rich takes 100 ms of CPU.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import pathlib
import shutil
import textwrap
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from nncftools.cli import screen
from nncftools.errors import UsageError
from nncftools.units import not_one_of

RECORD = "What to record"
RUN = "How to run the command"
WRITE = "Where to write"
READ = "What to read"
SHOW = "How to show it"
OTHER = "Options"
_ORDER = (READ, RECORD, RUN, WRITE, SHOW, OTHER)
_WIDEST_NAME, _SHORT_NAME, _ROOM_FOR_MEANING = 30, 8, 48


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
    return typer.Argument(metavar=metavar, help=meaning, **settings)


def with_options(kind: type, *, without: Collection[str] = ()) -> Callable[[Callable[[Any], int]], Callable[..., int]]:
    """Return a decorator: it gives a function of one object of the dataclass ``kind`` an option for each field."""
    hints = typing.get_type_hints(kind, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(
            field.name,
            keyword,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(kind)
        if field.name not in without
    ]

    def decorated(function: Callable[[Any], int]) -> Callable[..., int]:
        def command(**values: Any) -> int:
            return function(kind(**values))

        command.__doc__ = function.__doc__
        vars(command)["__signature__"] = inspect.Signature(parameters)
        return command

    return decorated


class Declared(NamedTuple):
    """A parameter as the function declares it."""

    kind: Any
    option: Any
    """What ``typer.Option`` or ``typer.Argument`` returned."""
    default: Any
    """``inspect.Parameter.empty`` if a value must be given."""


def _usage_of(parameter: Any) -> str:
    metavar = str(parameter.metavar)
    return f"{{{metavar}}}" if parameter.required else metavar if metavar.startswith("[") else f"[{metavar}]"


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _write_parameters(parameters: Iterable[Any], declared: Mapping[str, Declared], formatter: Any) -> None:
    """Write the arguments, and the options by group; every group has the same width of the first column."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for parameter in parameters:
        title = getattr(parameter, "rich_help_panel", None) or OTHER if _is_option(parameter) else "Arguments"
        own = declared.get(parameter.name)
        row = (_names(parameter), parameter.help) if own is None else _row(parameter, own)
        groups.setdefault(title, []).append(row)
    names = [name for rows in groups.values() for name, _ in rows]
    width = min(max(map(len, names)), _WIDEST_NAME, max(_SHORT_NAME, formatter.width - _ROOM_FOR_MEANING))
    for title in sorted(groups, key=lambda title: _ORDER.index(title) if title in _ORDER else -1):
        _section(formatter, title, groups[title], first_column=width)


def _row(parameter: Any, own: Declared) -> tuple[str, str]:
    """Return two columns of the help: names with what stands for the value; meaning with default and bounds."""
    facts = []
    if own.kind is not bool and own.default not in (None, "", inspect.Parameter.empty):
        values = own.default if isinstance(own.default, list) else [own.default]
        typed = ", ".join(str(value.value if isinstance(value, enum.Enum) else value) for value in values)
        facts.append(f"default: {typed}")
    facts += [] if own.option.min is None else [f"x>={own.option.min}"]
    facts += ["required"] if parameter.required else []
    name = " ".join(filter(None, (_names(parameter), own.option.metavar)))
    return name, f"{own.option.help}  [{'; '.join(facts)}]" if facts else own.option.help


def _names(parameter: Any) -> str:
    """Return the names of an option, the short ones first; nothing for an argument."""
    ways = (parameter.opts, parameter.secondary_opts) if _is_option(parameter) else ()
    return " / ".join(", ".join(sorted(names, key=lambda name: name.startswith("--"))) for names in ways if names)


def _section(formatter: Any, title: str, rows: Sequence[tuple[str, str]], *, first_column: int) -> None:
    shown = [(screen.cyan(name, screen.OUT) + " " * (first_column - len(name)), meaning) for name, meaning in rows]
    with formatter.section(screen.bold(title, screen.OUT)):
        formatter.write_dl(shown, col_max=first_column)


def _write_text(formatter: Any, text: str) -> None:
    if not text:
        return
    head, mark, after = text.partition("Examples:")
    formatter.write_paragraph()
    formatter.write_text(f"{head}{screen.bold(mark, screen.OUT)}{after}" if mark else text)


_ParserError: type[Exception] = typer.BadParameter.__bases__[0]
"""``UsageError`` of Click; from 0.26 on, typer contains a copy of Click."""


class _OurParameters:
    """Takes over the parameters, the help and the errors of a command of Typer's, which is the next base class."""

    callback: Callable[..., Any] | None
    epilog: str | None
    format_help_text: Callable[[Any, Any], None]

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with our conversion."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc] # of the next base class
        for parameter in parameters:
            ours = vars(parameter)
            if "process_value" not in ours:
                own = self._declared.get(parameter.name)  # typer adds options of its own
                ours["process_value"] = functools.partial(_processed, own, parameter, parameter.process_value)
                if own is not None:  # Click 8.0 gives defaults to the function that parses what was typed
                    ours["type_cast_value"] = lambda _, value: value
        return parameters

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
        formatter.width = min(formatter.width, shutil.get_terminal_size().columns - 2)  # Click's are 50 at least
        examples, _, more = (self.epilog or "").partition("\n\n")
        parameters = self.get_params(ctx)
        sections = getattr(self, "sections", {})
        arguments = [_usage_of(parameter) for parameter in parameters if not _is_option(parameter)]
        words = ["[OPTIONS]", *arguments, *(["COMMAND [ARGS]..."] if sections else [])]
        heading = "Usage:"  # coloured when the lines are filled: some releases of Click count the codes as letters
        begin = f"{heading} {ctx.command_path} "
        lines = textwrap.fill(
            " ".join(words), formatter.width, initial_indent=begin, subsequent_indent=" " * len(begin)
        )
        formatter.write(f"{screen.bold(heading, screen.OUT)}{lines.removeprefix(heading)}\n")
        self.format_help_text(ctx, formatter)
        _write_text(formatter, examples)
        longest_name = max((len(name) for commands in sections.values() for name in commands), default=0)
        for title, commands in sections.items():
            _section(formatter, title, list(commands.items()), first_column=longest_name)
        _write_parameters(parameters, self._declared, formatter)
        _write_text(formatter, more)

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
        command = self.get_command(ctx, word)
        if command is None and not ctx.resilient_parsing:
            if word in {"help", *ctx.help_option_names}:
                typer.echo(ctx.get_help())
                raise typer.Exit
            from nncftools.cli import mistakes

            raise mistakes.unknown_command(word, str(ctx.command_path), self.list_commands(ctx), rest)
        return (word if command else None), command, rest


@functools.cache
def _declarations(function: Callable[..., Any]) -> Mapping[str, Declared]:
    signature = inspect.signature(function, eval_str=True).parameters
    declared: dict[str, Declared] = {}
    for name, parameter in signature.items():
        if typing.get_origin(parameter.annotation) is typing.Annotated:
            kind, option = typing.get_args(parameter.annotation)
            declared[name] = Declared(kind, option, parameter.default)
    return declared


def _processed(
    own: Declared | None,
    parameter: Any,
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


def _named(parameter: Any) -> str:
    """Return how errors name a parameter: by the longest name of an option, or the metavar of an argument."""
    return f"option {max(parameter.opts, key=len)}" if _is_option(parameter) else f"argument {parameter.metavar}"


def _innermost(kind: Any) -> Any:
    while inner := typing.get_args(kind):
        kind = inner[0]
    return kind


def _converted(value: str, kind: Any, smallest: float | None) -> Any:
    """Return a text as its type. Raises ValueError, which says what is wrong."""
    if issubclass(kind, enum.Enum):
        members = [str(member.value) for member in kind]
        meant = [name for name in members if name.casefold() == value.casefold()]
        if not meant:
            raise ValueError(not_one_of(value, members))
        value = meant[0]
    try:
        converted = kind(value)
    except ValueError:
        expected = {int: "a whole number", float: "a number"}.get(kind, kind.__name__)
        raise ValueError(f"{expected} expected, found {value!r}") from None
    if smallest is not None and converted < smallest:
        raise ValueError(f"at least {smallest:g} expected, found {converted}")
    return converted
