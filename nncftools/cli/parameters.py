"""Additions to typer: groups of options in the help, parsers for values, and defaults of a project.

Typer 0.29 imports pydantic to convert a value, at a cost of 280 ms of CPU, so this module converts values itself. Rich
could draw the groups, but the import of Rich takes 100 ms of CPU.
"""

from __future__ import annotations

import enum
import functools
import inspect
import os
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand

from nncftools.cli import screen
from nncftools.errors import SessionFileError, UsageError
from nncftools.files import other_writer
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
"""``File``, ``Files`` and ``Texts`` are types of options. None means that the option is not given."""


def option(names: str, group: str, meaning: str, **settings: Any) -> Any:
    """Return an option; ``names`` ends with a placeholder if the option has a value: ``--output -o FILE``."""
    words = names.split()
    metavar = None if words[-1].startswith("-") else words.pop()
    return typer.Option(*words, metavar=metavar, help=meaning, rich_help_panel=group, **settings)


def argument(metavar: str, meaning: str, **settings: Any) -> Any:
    """Return a positional argument, called ``metavar`` in the help."""
    return typer.Argument(metavar=metavar, help=meaning, rich_help_panel=ARGUMENTS, **settings)


def with_options(kind: type, *, without: Collection[str] = ()) -> Callable[[Callable[[Any], int]], Callable[..., int]]:
    """Return a decorator.

    The decorator turns a function, whose argument is an object of the dataclass ``kind``, into a command. Each field
    of the dataclass is an option, except for the fields in ``without``.
    """
    fields = inspect.signature(kind, eval_str=True).parameters.values()
    signature = inspect.Signature([field for field in fields if field.name not in without])

    def decorate(function: Callable[[Any], int]) -> Callable[..., int]:
        def command(**values: Any) -> int:
            return function(kind(**values))

        command.__doc__ = function.__doc__
        command.__signature__ = signature  # type: ignore[attr-defined]
        return command

    return decorate


_METRICS = "metrics"
"""The key in pyproject.toml that sets the default of --type."""
_KEYS = ("interval", _METRICS, "unit", "depth", "mark-calls")
"""Keys of the table [tool.nncf-tools] in pyproject.toml: defaults of options, and functions to mark."""
_RECORDING = ("monitor", "profile")
"""The subcommands whose default of --type comes from pyproject.toml. Other subcommands read a recorded session, which
may lack a metric.
"""
_DEFAULTS = "nncftools.defaults"
"""Key in ``Context.meta``. The value is ``{option: key in pyproject.toml}``, for options whose value comes from
pyproject.toml.
"""


class Project(NamedTuple):
    """The settings in the table [tool.nncf-tools] of a pyproject.toml."""

    path: Path = Path()
    """The path of the pyproject.toml."""
    texts: Mapping[str, list[str]] = {}
    """The values by key, as texts: ``{"unit": ["GiB"], "metrics": ["rss", "anon"]}``."""


def find_project() -> Project:
    """Return the settings in the nearest pyproject.toml with a table [tool.nncf-tools]; else empty settings.

    Raises UsageError if a key is unknown, or if the file is not TOML.
    """
    with suppress(OSError):  # the working folder may be gone
        folder = Path.cwd()
        for parent in (folder, *folder.parents):
            path = parent / "pyproject.toml"
            project = _read_project(path) if path.is_file() else None
            if project is not None:
                return project
    return Project()


@functools.cache
def _read_project(path: Path) -> Project | None:
    """Return the settings in a file; None if there are none.

    If the file cannot be read, or if another user may change the file, print a warning and return None.
    """
    from nncftools import intake
    from nncftools.backports import toml_of

    try:
        with intake.open_file(path, may_wait=False) as file:
            why = other_writer(os.fstat(file.fileno()))
            content = intake.content(file, path, intake.LIMITS.table_bytes)
    except SessionFileError as error:
        screen.message(f"note: ignored: {error}")
        return None
    table_name = b"[tool.nncf-tools]" if why else b"nncf-tools"
    if table_name not in content:  # avoids parsing, because parsing takes longer
        return None
    if why:
        screen.message(f"note: ignored: {path} {why}")
        return None
    try:
        table = toml_of(content.decode()).get("tool", {}).get("nncf-tools")
        items = [] if table is None else table.items()
    except AttributeError as error:
        raise UsageError(f"{path}: a table [tool.nncf-tools] expected") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {error}") from error
    texts = {}
    for key, value in items:
        if key not in _KEYS:
            raise UsageError(f"{path}: [tool.nncf-tools]: {not_one_of(key, _KEYS)}")
        texts[key] = list(map(str, value if isinstance(value, list) else [value]))
    return None if table is None else Project(path, texts)


class Command(TyperCommand):
    """A subcommand; the help shows the options in groups."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand. If a default in pyproject.toml is wrong, the error names this file."""
        defaults = ctx.meta.get(_DEFAULTS, {})
        if defaults and ctx.params.get("details"):
            screen.message(f"defaults from {find_project().path}: {', '.join(defaults.values())}")
        try:
            return super().invoke(ctx)
        except UsageError as error:
            subject, colon, reason = str(error).partition(": ")
            error.args = (f"{_name_source(ctx, subject)}{colon}{reason}",)
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the groups of options to the help."""
        write_options(self, ctx, formatter)


def write_options(command: Any, context: Any, formatter: Any) -> None:
    """Write a command's arguments and groups of options to the help."""
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
    """Write a section of the help; on a narrow terminal, each name is above the meaning."""
    widest = min(_WIDEST_NAME, max(_NARROWEST_NAME, formatter.width - _ROOM_FOR_MEANING))
    with formatter.section(screen.styled(title, screen.OUT)):
        formatter.write_dl([*rows], col_max=widest)


def set_parsers(command: Any, function: Callable[..., Any]) -> None:
    """Make a command's parameters parse values by the types that ``function`` declares."""
    signature = inspect.signature(function, eval_str=True).parameters
    for parameter in command.params:
        kind, declared = typing.get_args(signature[parameter.name].annotation)
        while inner := typing.get_args(kind):
            kind = inner[0]
        parse = declared.parser or functools.partial(_parse, kind, declared.min)
        parameter.process_value = functools.partial(_process, parameter, parse)


def _process(parameter: Any, parse: Callable[[str], Any], context: typer.Context, value: Any) -> Any:
    """Return the parsed value of a parameter, or each parsed value of a list. Raises UsageError."""
    kind = parameter.param_type_name
    name = f"{kind} {parameter.metavar if kind == 'argument' else parameter.opts[0]}"
    source = context.get_parameter_source(parameter.name)
    if source is not None and source.name == "DEFAULT" and not context.resilient_parsing:
        value = _use_project(parameter, name, context, value)
    if not isinstance(value, str | tuple | list):  # a flag, a default, or nothing
        if parameter.required:
            raise UsageError(f"{name}: missing; see `{context.command_path} --help`")
        return value
    try:
        return parse(value) if isinstance(value, str) else [parse(text) for text in value]
    except ValueError as error:
        raise UsageError(f"{_name_source(context, name)}: {error}") from None


def _use_project(parameter: Any, name: str, context: typer.Context, value: Any) -> Any:
    """Return the default from pyproject.toml for a parameter; without such a default, return ``value``."""
    option_name = parameter.opts[0].removeprefix("--")
    key = _METRICS if option_name == "type" else option_name
    if key not in _KEYS or (key == _METRICS and context.info_name not in _RECORDING):
        return value
    texts = find_project().texts.get(key)
    if texts is None:
        return value
    context.meta.setdefault(_DEFAULTS, {})[name] = key
    return texts if parameter.multiple else ",".join(texts)


def _name_source(context: typer.Context, name: str) -> str:
    """Return a text for messages that says where a parameter's value comes from.

    If the value comes from pyproject.toml, the text is the path of the file and the key. Otherwise, it is ``name``.
    """
    key = context.meta.get(_DEFAULTS, {}).get(name)
    return f"{find_project().path}: {key}" if key else name


def _parse(kind: Any, least: float | None, text: str) -> Any:
    """Return a text as a value of type ``kind``. Raises ValueError, also for a number below ``least``."""
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
