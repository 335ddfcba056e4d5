"""The command line: import and run the subcommand that the user names; turn errors into messages and exit statuses."""

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
from nncftools.cli.parameters import Command, set_parsers, write_options, write_section
from nncftools.errors import NncfToolsError, UsageError, __version__
from nncftools.units import guess, nearest

PROGRAM = "nncf-tools"
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Record": {
        "profile": "Record a command and the cost of each operation.",
        "monitor": "Record a command and all its descendants.",
        "fit": "Find the smallest memory limit for a command.",
        "forecast": "Forecast the needs of a model from a few layers.",
        "mark": "Name the operation that starts now.",
    },
    "Look at a recording": {
        "report": "Show and draw a recorded run.",
        "compare": "Compare recorded runs; fail on regressions.",
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
        "sweep": "Compress a model in many ways and measure each result.",
        "viz-compression": "Compare weight-compression results: table and picture.",
        "from-lm-eval": "Build rows for viz-compression from evaluation results.",
    },
}
"""``{section of the help: {subcommand: summary}}``. The function of a subcommand has the same name."""
_MODULES = {
    "monitor": "record",
    "profile": "record",
    "sweep": "sweep.command",
    "mark": "short",
    "metrics": "short",
    "schema": "short",
    "watch": "report",
    "replay": "report",
    "fit": "fit_runs",
    "list": "runs",
    "prune": "runs",
    "viz-compression": "compression",
    "from-lm-eval": "compression",
}
"""Modules of subcommands; a subcommand that is not listed here has a module with the subcommand's name."""
_RUN_A_COMMAND = {"monitor", "profile", "fit", "forecast"}
"""Subcommands that run another program: all words after the program's name belong to the program."""
_END_SIGNALS = [number for number in signal.Signals if number.name in {"SIGINT", "SIGTERM", "SIGHUP"}]
COMMANDS: dict[str, str] = {}
for _section in SECTIONS.values():
    COMMANDS.update(_section)
_NOT_GIVEN = dict.fromkeys(("help", "install_completion", "show_completion"), False)
"""Defaults for the options that typer adds. Without these defaults, typer imports pydantic for each command."""
_ParserError: type[Exception] = typer.BadParameter.__bases__[0]
"""Click's class ``UsageError``. Since version 0.26, typer contains a copy of Click, so the class is found by
inheritance."""


class _Commands(TyperGroup):
    """All subcommands; a subcommand's module is imported only when the user names the subcommand."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 — Click's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 — Click's signature
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = load_command(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the subcommand for the typed words; ``help COMMAND`` means ``COMMAND --help``. Raises UsageError."""
        word, *rest = args
        if word == "help":
            return self.resolve_command(ctx, [*rest[:1], "--help"])
        if word not in (*COMMANDS, *ctx.help_option_names) and not ctx.resilient_parsing:
            raise _unknown_command(word, rest)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, commands in SECTIONS.items():
            write_section(formatter, title, commands.items())
        write_options(self, ctx, formatter)


def load_command(name: str) -> Any:
    """Import a subcommand, and return it as a Click command; the function's docstring is the help text."""
    attribute = name.replace("-", "_")
    module = importlib.import_module(f"nncftools.cli.{_MODULES.get(name, attribute)}")
    function = getattr(module, attribute)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    settings = {"allow_interspersed_args": name not in _RUN_A_COMMAND, "default_map": _NOT_GIVEN}
    alone.command(name, cls=Command, short_help=COMMANDS[name], context_settings=settings)(function)
    command = typer.main.get_command(alone)
    set_parsers(command, function)
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


_OTHER_NAMES = {
    "version": "--version",
    "record": "monitor",
    "run": "profile",
    "diff": "compare",
    "ls": "list",
    "view": "report",
    "show": "report",
    "open": "report",
    "plot": "report",
    "rm": "prune",
    "clean": "prune",
}
"""Other names that users type for our subcommands: ``{"record": "monitor"}``."""
_REMOVED = {
    "--source": "the platform decides: /proc on Linux, psutil on macOS",
    "--pss-budget": "measuring PSS and USS takes at most 1% of the time",
    "--max-samples": "more than 1,000,000 samples are merged, and peaks stay exact",
    "--max-size": "files up to 2 GiB are read",
    "--swap": "runs have no swap",
    "--give-up": "a run is ended after five times the duration of the run without a limit",
    "--tolerance": "the accepted error of a limit is 3%",
    "--slower": "full speed means at most 1.1 times the duration of the run without a limit",
}
"""Removed options, each with the replacement or the new behaviour."""
_WRITTEN_BY_REPORT = "`nncf-tools report --format {}` writes that format"
_ALWAYS_RECORDED = "every metric that this machine offers is recorded: `nncf-tools metrics`"
_SUGGESTIONS = {
    **{f"--{name}": _WRITTEN_BY_REPORT.format(name) for name in ("html", "json", "csv", "text")},
    **dict.fromkeys(("--gpu", "--cpu", "--io"), _ALWAYS_RECORDED),
    "--pid": "`nncf-tools monitor --pid` records a running process",
}
"""Options that users try, but that the subcommand does not have, each with the replacement."""
_BEGINNING = 3
_ALIKE_AFTER_BEGINNING = 0.5
"""Smallest similarity of an option and a name with the same first letters, such as ``--baseline`` and ``--base``."""


def _explain(error: Any) -> UsageError:
    """Return our error with a hint, in place of Click's error about an unknown option or a wrong number of words."""
    option = getattr(error, "option_name", "")
    if option in _REMOVED:
        return UsageError(f"option {option}: removed; {_REMOVED[option]}")
    command = error.ctx.command_path if error.ctx else "nncf-tools COMMAND"
    hint = f"see `{command} --help`"
    if option in _SUGGESTIONS:
        hint = _SUGGESTIONS[option]
    elif hasattr(error, "possibilities"):  # Click would suggest --repeat for --depth
        hint = _suggest_option(option, error.ctx.command) or hint
    return UsageError(f"{error.message.rstrip('.')}; {hint}")


def _suggest_option(option: str, command: Any) -> str:
    """Return a hint for an option that a subcommand does not have; empty if no option is near."""
    word = option.lstrip("-")
    names = [name[2:] for name in _list_options(command) if name.startswith("--")]
    near = guess(word, names)
    if not near:
        owners = [name for name in COMMANDS if option in _list_options(load_command(name))]
        if owners:
            return f"this is an option of {', '.join(owners)}"
        if not word.startswith("no-"):  # these letters say nothing about the effect
            alike = [name for name in names if name.startswith(word[:_BEGINNING])]
            near = nearest(word, alike, _ALIKE_AFTER_BEGINNING)
    return f"did you mean --{near}?" if near else ""


def _list_options(command: Any) -> list[str]:
    """Return the names of all options of a subcommand, with dashes."""
    names: list[str] = []
    for parameter in command.params:
        names += parameter.opts + parameter.secondary_opts
    return names


def _unknown_command(word: str, rest: Iterable[str]) -> UsageError:
    """Return the error for a first word that is not a subcommand, with a suggestion."""
    if word in _OTHER_NAMES:
        instead = " ".join((_OTHER_NAMES[word], *rest))
    elif shutil.which(word) or os.path.isfile(word):  # noqa: PTH113 — a name may be too long
        instead = " ".join(("profile", word, *rest))
    else:
        instead = guess(word, COMMANDS)
    hint = f"did you mean `{PROGRAM} {instead}`?" if instead else f"see `{PROGRAM} --help`"
    return UsageError(f"there is no command {word!r}; {hint}")


@contextlib.contextmanager
def _ended_by_exceptions() -> Iterator[list[int]]:
    """Raise SystemExit on SIGINT, SIGTERM and SIGHUP, so that temporary files are removed.

    Yield a list of the signals that have been received. The caller must check the list, because Python ignores an
    exception that is raised in a finalizer.
    """
    received: list[int] = []

    def end(number: int, _frame: object) -> None:
        received.append(number)
        screen.drop_unread()
        raise SystemExit(128 + number)

    handlers = {number: signal.getsignal(number) for number in _END_SIGNALS}
    for number, handler in handlers.items():
        if handler in {signal.SIG_DFL, signal.default_int_handler}:
            signal.signal(number, end)
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is end:  # a recording may have set other handlers
                signal.signal(number, handler)


def run() -> int:
    """Run the command line; return the exit status."""
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
            if error.errno == errno.ENOENT and error.filename is None:  # from tempfile.gettempdir
                raise NncfToolsError(f"{error.strerror}; set TMPDIR to a folder that you can write") from error
            screen.to_stdout("")  # raises our error if Click failed to print a help text
            if error.errno in {errno.ENOSPC, errno.EBADF} and error.filename is None:  # the end of a long help text
                raise screen.lost_output(error) from error
            raise
    except NncfToolsError as error:
        screen.error(str(error), error.lines)
        return error.exit_code
    return status if isinstance(status, int) else 0
