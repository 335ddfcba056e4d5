"""The help of a command: examples first, options in named groups, as wide as the terminal, coloured on one.

Rich would draw it, but loading Rich takes 100 ms of CPU.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from nncftools.cli import screen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RECORD = "What to record"
RUN = "How to run the command"
WRITE = "Where to write"
READ = "What to read"
SHOW = "How to show it"
OTHER = "Options"
_ORDER = (READ, RECORD, RUN, WRITE, SHOW, OTHER)
_WIDEST_NAME = 30


def write(command: Any, context: Any, formatter: Any) -> None:
    """Write the help of a command of Click's."""
    examples, more = _examples(command.epilog)
    formatter.write_usage(context.command_path, " ".join(command.collect_usage_pieces(context)), prefix=_usage())
    command.format_help_text(context, formatter)
    _write_text(formatter, examples)
    if hasattr(command, "format_commands"):
        command.format_commands(context, formatter)
    command.format_options(context, formatter)
    _write_text(formatter, more)


def write_parameters(parameters: Iterable[Any], context: Any, formatter: Any) -> None:
    """Write the arguments, and the options by group; every group has the same width of the first column."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for parameter in parameters:
        record = parameter.get_help_record(context)
        if record is not None:
            is_option = parameter.param_type_name == "option"
            group = getattr(parameter, "rich_help_panel", None) or OTHER
            groups.setdefault(group if is_option else "Arguments", []).append(record)
    names = [name for rows in groups.values() for name, _ in rows]
    width = min(max(map(len, names), default=0), _WIDEST_NAME)
    for title in sorted(groups, key=lambda title: _ORDER.index(title) if title in _ORDER else -1):
        section(formatter, title, groups[title], first_column=width)


def section(formatter: Any, title: str, rows: Sequence[tuple[str, str]], *, first_column: int) -> None:
    """Write a heading and rows of names with their meaning."""
    with formatter.section(screen.bold(title, screen.OUT)):
        padded = [(f"{name:<{first_column}}", meaning) for name, meaning in rows]
        formatter.write_dl([(_coloured(name), meaning) for name, meaning in padded])


def _coloured(name: str) -> str:
    return screen.cyan(name.rstrip(), screen.OUT) + " " * (len(name) - len(name.rstrip()))


def _usage() -> str:
    return f"{screen.bold('Usage:', screen.OUT)} "


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
