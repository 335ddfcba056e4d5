"""The help of a command: examples first, options in named groups, as wide as the terminal, coloured on one.

Rich would draw it, but loading Rich takes 100 ms of CPU.
"""

from __future__ import annotations

import enum
import inspect
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from nncftools.cli import screen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RECORD = "What to record"
RUN = "How to run the command"
WRITE = "Where to write"
READ = "What to read"
SHOW = "How to show it"
OTHER = "Options"
_ORDER = (READ, RECORD, RUN, WRITE, SHOW, OTHER)
_WIDEST_NAME = 30


class Declared(NamedTuple):
    """A parameter as the function declares it."""

    kind: Any
    option: Any
    """What ``typer.Option`` or ``typer.Argument`` returned."""
    default: Any
    """``inspect.Parameter.empty`` if a value must be given."""


def write(command: Any, declared: Mapping[str, Declared], context: Any, formatter: Any) -> None:
    """Write the help of a command of Click's; ``declared`` has the parameters that are not typer's own."""
    examples, more = _examples(command.epilog)
    parameters = command.get_params(context)
    sections = getattr(command, "sections", {})
    words = ["[OPTIONS]", *filter(None, map(_usage_of, parameters)), *(["COMMAND [ARGS]..."] if sections else [])]
    formatter.write(_usage(context.command_path, " ".join(words), formatter.width))
    command.format_help_text(context, formatter)
    _write_text(formatter, examples)
    longest_name = max((len(name) for commands in sections.values() for name in commands), default=0)
    for title, commands in sections.items():
        _section(formatter, title, list(commands.items()), first_column=longest_name)
    _write_parameters(parameters, declared, formatter)
    _write_text(formatter, more)


def _usage(path: str, words: str, width: int) -> str:
    """Return the usage lines, coloured when they are filled: some releases of Click count the codes as letters."""
    heading = "Usage:"
    begin = f"{heading} {path} "
    lines = textwrap.fill(words, width, initial_indent=begin, subsequent_indent=" " * len(begin))
    return f"{screen.bold(heading, screen.OUT)}{lines.removeprefix(heading)}\n"


def _usage_of(parameter: Any) -> str:
    """Return an argument for the usage line; empty for an option."""
    if _is_option(parameter):
        return ""
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
    width = min(max(map(len, names)), _WIDEST_NAME)
    for title in sorted(groups, key=lambda title: _ORDER.index(title) if title in _ORDER else -1):
        _section(formatter, title, groups[title], first_column=width)


def _row(parameter: Any, own: Declared) -> tuple[str, str]:
    """Return the names of a parameter with what stands for its value, and its meaning with what it may be."""
    facts = [] if _default(own) is None else [f"default: {_default(own)}"]
    facts += [] if own.option.min is None else [f"x>={own.option.min}"]
    facts += ["required"] if parameter.required else []
    name = " ".join(filter(None, (_names(parameter), own.option.metavar)))
    return name, f"{own.option.help}  [{'; '.join(facts)}]" if facts else own.option.help


def _default(own: Declared) -> str | None:
    """Return a default as it would be typed; None if the help does not show it."""
    if own.kind is bool or own.default in (None, "", inspect.Parameter.empty) or not own.option.show_default:
        return None
    values = own.default if isinstance(own.default, list) else [own.default]
    return ", ".join(str(value.value if isinstance(value, enum.Enum) else value) for value in values)


def _names(parameter: Any) -> str:
    """Return the names of an option, the short ones first; nothing for an argument."""
    ways = (parameter.opts, parameter.secondary_opts) if _is_option(parameter) else ()
    return " / ".join(", ".join(sorted(names, key=lambda name: name.startswith("--"))) for names in ways if names)


def _section(formatter: Any, title: str, rows: Sequence[tuple[str, str]], *, first_column: int) -> None:
    """Write a heading and rows of names with their meaning."""
    with formatter.section(screen.bold(title, screen.OUT)):
        padded = [(f"{name:<{first_column}}", meaning) for name, meaning in rows]
        formatter.write_dl([(_coloured(name), meaning) for name, meaning in padded])


def _coloured(name: str) -> str:
    return screen.cyan(name.rstrip(), screen.OUT) + " " * (len(name) - len(name.rstrip()))


def _examples(epilog: str | None) -> tuple[str, str]:
    """Return the first paragraph of an epilog, which has the examples, and the rest."""
    first, _, rest = inspect.cleandoc(epilog or "").partition("\n\n")
    return (first, rest) if "Example" in first[:20] else ("", inspect.cleandoc(epilog or ""))


def _write_text(formatter: Any, text: str) -> None:
    if not text:
        return
    head, mark, after = text.partition("Examples:")
    formatter.write_paragraph()
    formatter.write_text(f"{head}{screen.bold(mark, screen.OUT)}{after}" if mark else text)
