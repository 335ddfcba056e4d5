"""The command line: loads the subcommand that is asked for, and turns an error into one line and an exit status."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import shutil
import signal
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nncftools.cli import screen
from nncftools.cli.parameters import Command, read_values, write_options, write_section
from nncftools.errors import NncfToolsError, UsageError, __version__
from nncftools.units import guess

PROGRAM = "nncf-tools"
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Record": {
        "profile": "Record a command and what each of its operations costs.",
        "monitor": "Record a command and all its descendants.",
        "fit": "Find the least memory that a command needs.",
        "forecast": "Forecast what a model needs, from a few of its layers.",
        "mark": "Name the operation that starts now.",
    },
    "Look at a recording": {
        "report": "Show and draw a recorded run.",
        "compare": "Compare recorded runs, with gates.",
        "watch": "Follow a recording while it runs.",
        "replay": "Show a recorded run in the live view.",
        "list": "List the recordings, the newest first.",
        "prune": "Remove old recordings.",
    },
    "Reference": {
        "metrics": "List the metrics that can be recorded.",
        "schema": "Print the JSON Schema of a session file.",
    },
    "Results of weight compression": {
        "sweep": "Compress a model in many ways, and measure each.",
        "viz-compression": "Compare weight-compression results: table and picture.",
        "from-lm-eval": "Build rows for viz-compression from evaluation results.",
    },
}
"""The subcommands with what they do, by section of the help. Each is a function of its module."""
_FILE_OF = {"replay": "watch", "fit": "fit.command", "forecast": "forecast.command", "sweep": "sweep.command"}
_FILE_OF |= dict.fromkeys(("monitor", "profile"), "record") | dict.fromkeys(("mark", "metrics", "schema"), "short")
_FILE_OF |= dict.fromkeys(("list", "prune"), "runs") | dict.fromkeys(("viz-compression", "from-lm-eval"), "compression")
"""The module of a subcommand, where it has another name."""
_RUN_A_COMMAND = {"monitor", "profile", "fit", "forecast"}
"""Options after the first word of the command belong to the command."""
_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
COMMANDS = {name: meaning for section in SECTIONS.values() for name, meaning in section.items()}
_NOT_GIVEN = dict.fromkeys(("help", "install_completion", "show_completion"), False)
"""Without these defaults of typer's own options, it would import pydantic for each command."""
_ParserError: type[Exception] = typer.BadParameter.__bases__[0]
"""``UsageError`` of Click; from 0.26 on, typer contains a copy of Click."""


class _Commands(TyperGroup):
    """All subcommands; only the module of the one that is asked for is imported, and its parameters parsed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 — Click's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 — the same
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = command_named(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the subcommand that the words name; ``help COMMAND`` is ``COMMAND --help``. Raises UsageError."""
        word, *rest = args
        if word == "help":
            return self.resolve_command(ctx, [*rest[:1], "--help"])
        if word not in (*COMMANDS, *ctx.help_option_names) and not ctx.resilient_parsing:
            raise _unknown_command(word, PROGRAM, COMMANDS, rest)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, commands in SECTIONS.items():
            write_section(formatter, title, commands.items())
        write_options(self, ctx, formatter)


def command_named(name: str) -> Any:
    """Return a subcommand as a command of Click: the docstring of its function is its help."""
    attribute = name.replace("-", "_")
    function = getattr(importlib.import_module(f"nncftools.cli.{_FILE_OF.get(name, attribute)}"), attribute)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    settings = {"allow_interspersed_args": name not in _RUN_A_COMMAND, "default_map": _NOT_GIVEN}
    alone.command(name, cls=Command, short_help=COMMANDS[name], context_settings=settings)(function)
    command = typer.main.get_command(alone)
    read_values(command, function)
    return command


app = typer.Typer(
    name=PROGRAM,
    cls=_Commands,
    rich_markup_mode=None,  # Rich help costs 100 ms more CPU for every --help and wrong option
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "default_map": _NOT_GIVEN},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 — the signature of an option's callback
    if wanted:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 — its callback acts on it
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Record what compressing, quantizing or exporting a network really costs in memory, CPU and disk I/O."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(UsageError.exit_code)


_OTHER_WORDS = {"version": "--version", "record": "monitor", "run": "profile", "diff": "compare", "ls": "list"}
_OTHER_WORDS |= dict.fromkeys(("view", "show", "open", "plot"), "report") | dict.fromkeys(("rm", "clean"), "prune")
"""Words of other programs for what we call differently."""
_REMOVED = {
    "--source": "the platform decides: /proc on Linux, psutil on macOS",
    "--pss-budget": "PSS and USS take at most 1% of the time",
    "--max-samples": "beyond 1,000,000 samples, neighbours are merged, and peaks stay exact",
    "--max-size": "files up to 2 GiB are read",
    "--swap": "runs have no swap",
    "--give-up": "a run ends after five times the time without a limit",
    "--tolerance": "limits are found to 3%",
    "--slower": "full speed is up to 1.1 times the time without a limit",
}
"""By option that is gone, what to do or what happens instead."""
_INSTEAD = {f"--{name}": f"`nncf-tools report --format {name}` writes it" for name in ("html", "json", "csv", "text")}
_INSTEAD |= {f"--{name}": "what this machine offers is recorded: `nncf-tools metrics`" for name in ("gpu", "cpu", "io")}
_INSTEAD |= {"--pid": "`nncf-tools monitor --pid` records a running process"}
"""By option that a command does not have, what to use."""
_ALIKE = 0.6
"""How similar an option must be to a mistyped one, without the dashes."""


def _explain(error: Any) -> UsageError:
    """Return our error for one of Click's: an unknown option, or too few or too many words."""
    option = getattr(error, "option_name", "")
    if option in _REMOVED:
        return UsageError(f"option {option}: removed; {_REMOVED[option]}")
    hint = f"see `{error.ctx.command_path if error.ctx else 'nncf-tools COMMAND'} --help`"
    if hasattr(error, "possibilities"):  # Click's own are too far-fetched: --repeat for --depth
        names = [name.lstrip("-") for parameter in error.ctx.command.params for name in parameter.opts]
        near = guess(option.lstrip("-"), names, _ALIKE)
        hint = _INSTEAD.get(option) or (f"did you mean --{near}?" if near else hint)
    return UsageError(f"{error.message.rstrip('.')}; {hint}")


def _unknown_command(word: str, program: str, commands: Iterable[str], rest: Iterable[str]) -> UsageError:
    """Return the error for a first word that is no subcommand."""
    if word in _OTHER_WORDS:
        instead = " ".join((_OTHER_WORDS[word], *rest))
    elif shutil.which(word) or os.path.isfile(word):  # noqa: PTH113 — a name may be too long
        instead = " ".join(("profile", word, *rest))
    else:
        instead = guess(word, commands)
    hint = f"did you mean `{program} {instead}`?" if instead else f"see `{program} --help`"
    return UsageError(f"there is no command {word!r}; {hint}")


@contextlib.contextmanager
def _ended_by_exceptions() -> Iterator[list[int]]:
    """Let a signal that asks for the end end this process by an exception: temporary files are removed.

    Yield the signals that came. Python ignores an exception that is raised in a finalizer.
    """
    received: list[int] = []

    def end(number: int, _frame: object) -> None:
        received.append(number)
        screen.drop_unread()
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler in {signal.SIG_DFL, signal.default_int_handler}:
            signal.signal(number, end)
    try:
        yield received
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is end:  # a recording has set others
                signal.signal(number, handler)


def run() -> int:
    """Run the command line; return its exit status."""
    screen.prepare()
    try:
        try:
            with _ended_by_exceptions() as received:
                width = min(shutil.get_terminal_size().columns, screen.WIDEST_HELP) - 2
                status = app(prog_name=PROGRAM, standalone_mode=False, terminal_width=width)
                if received:
                    return 128 + received[0]
        except _ParserError as error:
            raise _explain(error) from None
        except OSError as error:
            if error.errno == errno.EMFILE:
                raise NncfToolsError("too many open files; allow more (ulimit -n)") from error
            screen.to_stdout("")  # raises our error if it is that of help, which Click prints
            if error.errno in {errno.ENOSPC, errno.EBADF} and error.filename is None:  # in the middle of a long help
                raise screen.lost_output(error) from error
            raise
    except NncfToolsError as error:
        screen.error(str(error), error.lines)
        return error.exit_code
    return status if isinstance(status, int) else 0
