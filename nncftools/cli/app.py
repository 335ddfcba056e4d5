"""The command line: registers the subcommands and turns an error into one line and an exit status."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from nncftools.cli import screen
from nncftools.cli.parameters import Command, Group
from nncftools.errors import NncfToolsError, UsageError
from nncftools.text import printable
from nncftools.version import __version__

PROGRAM = "nncf-tools"
COMMANDS = (
    "monitor",
    "profile",
    "fit",
    "mark",
    "watch",
    "replay",
    "report",
    "compare",
    "metrics",
    "schema",
    "sweep",
    "viz_compression",
    "from_lm_eval",
)
"""The modules of the subcommands, in the order of the help; each has a function ``register``."""

app = typer.Typer(
    name=PROGRAM,
    cls=Group,
    rich_markup_mode=None,  # Rich help costs 100 ms more CPU for every --help and wrong option
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name in COMMANDS:
    importlib.import_module(f"nncftools.cli.{_name}").register(app)
for _command in app.registered_commands:
    _command.cls = Command


def _print_version(wanted: bool) -> None:  # noqa: FBT001 — the signature of an option's callback
    if wanted:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 — its callback acts on it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Record what compressing, quantizing or exporting a network really costs in memory, CPU and disk I/O."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(UsageError.exit_code)


def run() -> int:
    """Run the command line; return its exit status."""
    screen.prepare()
    try:
        status = app(prog_name=PROGRAM, standalone_mode=False)
    except NncfToolsError as error:
        _print_error(PROGRAM, str(error))
        return error.exit_code
    except Exception as error:
        if not hasattr(error, "format_message"):  # not an error of Click or Typer, whose classes moved between versions
            raise
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else PROGRAM
        _print_error(where, f"{error.format_message().rstrip('.')}; see `{where} --help`")
        return int(getattr(error, "exit_code", UsageError.exit_code))
    return status if isinstance(status, int) else 0


def _print_error(where: str, message: str) -> None:
    text = " ".join(message.split())
    screen.to_stderr(f"{where}: error: {printable(text)}\n")
