"""Options of several subcommands: definitions, completions for shells, and checks of values.

``Request`` has the options of a recording. The scripts for shells are in the folder ``completions``.
"""

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from nncftools.cli import destination
from nncftools.cli.parameters import RECORD, RUN, SHOW, WRITE, File, Texts, argument, option
from nncftools.errors import NncfToolsError, SessionFileError, UsageError
from nncftools.files import ending_in
from nncftools.metrics import DEVICE, DEVICE_MEMORY, MEMORY, METRICS, OTHER_NAMES, columns_of
from nncftools.render.view import ENDINGS, PICTURE, PICTURES, REMOVED, TEXT
from nncftools.units import MemoryUnit, bytes_from, not_one_of, seconds_from, unit_from


def complete_metric(incomplete: str) -> list[tuple[str, str]]:
    """Return the memory metrics and their meanings, for completion."""
    meanings = {name: METRICS[name].meaning for name in MEMORY}
    meanings |= {DEVICE: "all memory of GPUs and NPUs", ALL: "all metrics that are available here"}
    beginning = incomplete[: incomplete.rfind(",") + 1]
    return [(beginning + name, meaning) for name, meaning in meanings.items()]


def complete_session(incomplete: str) -> list[str | tuple[str, str]]:
    """Return ``latest``, ``latest~1`` … and the files in the current folder, for completion.

    If the word is not the beginning of ``latest``, or if there are no recordings, return nothing. Then the shell offers
    files.
    """
    latest = destination.LATEST
    if not latest.startswith(incomplete.partition("~")[0]):
        return []
    paths = destination.list_recordings(DEFAULT_LOG_DIR)[:10]
    if not paths:
        return []
    words = [(f"{latest}~{number}", path.parent.name) for number, path in enumerate(paths)]
    words[0] = latest, paths[0].parent.name
    return [*words, *sorted(path.name for path in Path().iterdir())]


def complete_from(names: Iterable[str]) -> Callable[[], list[str]]:
    """Return a completion function for these names; typer keeps the names that match the typed letters."""
    return lambda: [*map(str, names)]


def complete_program(context: typer.Context, incomplete: str) -> list[str]:
    """Return the programs on PATH that begin with the typed letters, for the first word of a command.

    For later words and for paths, return nothing: then the shell offers files.
    """
    if context.params.get("words") or not incomplete or os.sep in incomplete:
        return []
    files = [file for file in find_on_path(incomplete) if file.is_file()]
    return sorted({file.name for file in files if os.access(file, os.X_OK)})


def find_on_path(beginning: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files on PATH whose names start with ``beginning``; skip missing and unreadable folders."""
    for folder in os.get_exec_path():
        with suppress(OSError), os.scandir(folder or os.curdir) as files:
            yield from (file for file in files if file.name.startswith(beginning))


ALL = "all"
DEFAULT_TYPES = ("rss", DEVICE_MEMORY)
_PARTS_OF_RSS = [name for name, metric in METRICS.items() if metric.part_of == "rss"]
PROFILE_TYPES = ("rss", *_PARTS_OF_RSS, DEVICE_MEMORY)
DEFAULT_LOG_DIR = destination.DEFAULT_LOG_DIR
ACTIONS = ("warn", "kill")


def command_words(meaning: str) -> Any:  # noqa: ANN401 — as typer has it
    """Return the positional argument COMMAND; ``meaning`` is the second half of the help text."""
    text = f"The command and its arguments; {meaning}"
    return argument("COMMAND", text, autocompletion=complete_program)


def _make_type_option(default: str, group: str) -> Any:  # noqa: ANN401 — as typer has it
    text = f"Memory to show: {', '.join(MEMORY)}, device (all of GPUs and NPUs), or all. Default: {default}."
    return option("--type -t METRIC[,METRIC]", group, text, autocompletion=complete_metric)


Types = Annotated[Texts, _make_type_option(", ".join(DEFAULT_TYPES), RECORD)]
ProfileTypes = Annotated[Texts, _make_type_option(", ".join(PROFILE_TYPES), RECORD)]
RecordedTypes = Annotated[Texts, _make_type_option("all recorded memory", SHOW)]
Interval = Annotated[
    float, option("--interval -i TIME", RECORD, "Time between samples: 0.05, 50ms.", parser=seconds_from)
]
_UNITS = f"Unit of memory: {', '.join(MemoryUnit)}."
Unit = Annotated[
    MemoryUnit,
    option("--unit -u UNIT", SHOW, _UNITS, parser=unit_from, autocompletion=complete_from(MemoryUnit)),
]
Depth = Annotated[int, option("--depth N", SHOW, "Levels of operations to show.", min=1)]
FromZero = Annotated[bool, option("--from-zero", SHOW, "Show memory relative to the first sample.")]
Details = Annotated[bool, option("--details", SHOW, "Show all figures; by default, the main ones.")]
Open = Annotated[bool, option("--open", SHOW, "Write a page and open the page in a browser at the end.")]
Name = Annotated[str, option("--name TEXT", WRITE, "A name for the run.")]
Shell = Annotated[bool, option("--shell", RUN, "Run one quoted string through the shell.")]
Force = Annotated[bool, option("--force", WRITE, "Overwrite existing files.")]


def _read_script(text: str) -> str:
    """Return the text of a shell command. Raises ValueError if the text is empty."""
    if not text.strip():
        raise ValueError(f"a shell command expected, found {text!r}")
    return text


Prepare = Annotated[
    str | None,
    option(
        "--prepare COMMAND",
        RUN,
        "Shell command before each run, such as 'rm -rf OUT'. The output is shown only after a failure, which ends all "
        "runs.",
        parser=_read_script,
    ),
]
Cleanup = Annotated[
    str | None,
    option(
        "--cleanup COMMAND",
        RUN,
        "Shell command after each run, even if the run failed or was interrupted. For output and failures see "
        "--prepare.",
        parser=_read_script,
    ),
]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Request:
    """The options of `monitor`. Other subcommands that record use some of these options."""

    words: Annotated[Texts, command_words("the command runs in this terminal, folder and environment.")] = None
    no_auto: Annotated[bool, option("--no-auto", RECORD, "Mark no calls automatically.")] = False
    mark_call: Annotated[
        Texts,
        option(
            "--mark-call MODULE:FUNCTION[=NAME]",
            RECORD,
            "Also mark calls of this function; __main__:FUNCTION is a function of the script itself. "
            "Repeatable; mark-calls in [tool.nncf-tools] of pyproject.toml adds more.",
        ),
    ] = None
    mark_on: Annotated[
        Texts,
        option(
            "--mark-on REGEX",
            RECORD,
            "Each output line that matches starts an operation, named by the match or by the group (?P<name>…). Lines "
            "in a row with the same name are one operation. Repeatable.",
        ),
    ] = None
    depth: Depth = 1
    types: Types = None
    interval: Interval = 0.1
    unit: Unit = MemoryUnit.MiB
    output: Annotated[
        File,
        option(
            "--output -o FILE", WRITE, "Write only the session (.json or .json.gz); --plot adds files in its folder."
        ),
    ] = None
    log_dir: Annotated[
        Path,
        option("--log-dir DIR", WRITE, "Make a new folder in DIR for session, operations, picture and page."),
    ] = DEFAULT_LOG_DIR
    from_zero: FromZero = False
    plot: Annotated[
        bool | None,
        option("--plot/--no-plot", WRITE, "Write a picture and, with plotly, a page. Default: only without --output."),
    ] = None
    opens: Open = False
    quiet: Annotated[bool, option("--quiet -q", SHOW, "Print no summary.")] = False
    details: Details = False
    live: Annotated[bool, option("--live", SHOW, "Show memory, CPU and operations while the command runs.")] = False
    capture: Annotated[
        File, option("--capture FILE", WRITE, "Copy the command's output to this file; with --live, write only there.")
    ] = None
    name: Name = ""
    pid: Annotated[
        int | None, option("--pid PID", RECORD, "Record this running process instead of a command.", min=1)
    ] = None
    duration: Annotated[
        float | None,
        option(
            "--duration TIME", RECORD, "Record only this long (30s, 2min); the command goes on.", parser=seconds_from
        ),
    ] = None
    max_memory: Annotated[
        int | None,
        option("--max-memory SIZE", RUN, "Limit the sum of RSS of all processes: 8GiB, 500M.", parser=bytes_from),
    ] = None
    on_limit: Annotated[
        str,
        option(
            f"--on-limit {'|'.join(ACTIONS)}",
            RUN,
            "Above --max-memory: warn once, or end all processes (SIGTERM, after 5 s SIGKILL).",
        ),
    ] = ACTIONS[0]
    require: Annotated[
        str | None,
        option(
            "--require SIZE|SESSION",
            RUN,
            "Start only if this much memory is available, or the memory and disk space that an earlier SESSION needed.",
        ),
    ] = None
    repeat: Annotated[
        int, option("--repeat N", RUN, "Run the command N times and write N sessions (-1, -2, …) to compare.", min=1)
    ] = 1
    warmup: Annotated[
        int,
        option(
            "--warmup N",
            RUN,
            "First run the command N times, with --prepare and --cleanup; these recordings are thrown away.",
            min=0,
        ),
    ] = 0
    prepare: Prepare = None
    cleanup: Cleanup = None
    no_children: Annotated[bool, option("--no-children", RECORD, "Do not record descendants.")] = False
    wait_all: Annotated[bool, option("--wait-all", RECORD, "Record until the last descendant has ended.")] = False
    per_process: Annotated[bool, option("--per-process", RECORD, "Keep each process's RSS over time.")] = False
    stacks: Annotated[
        bool | None,
        option(
            "--stacks/--no-stacks",
            RECORD,
            "Find the code and the files that hold the memory, from outside the process. Default: "
            "yes for `profile` where allowed, no for `monitor`.",
        ),
    ] = None
    stacks_budget: Annotated[
        str,
        option(
            "--stacks-budget PERCENT",
            RECORD,
            "Largest share of a CPU core for stacks; 0.5 CPU seconds are always allowed.",
        ),
    ] = "1%"
    no_source: Annotated[
        bool, option("--no-source", RECORD, "Save no source text of the lines of code that hold the memory.")
    ] = False
    shell: Shell = False
    force: Force = False
    redact: Annotated[
        Texts,
        option("--redact REGEX", WRITE, "Hide likely secrets and matches of REGEX in command lines and code."),
    ] = None
    no_redact: Annotated[bool, option("--no-redact", WRITE, "Keep command lines and code unchanged.")] = False


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProfileRequest(Request):
    """The options of `profile`."""

    types: ProfileTypes = None
    interval: Interval = 0.05


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SeriesRequest:
    """The options of subcommands that run a command several times, and keep the recordings in a folder."""

    words: Annotated[
        Texts, command_words("the command runs in this folder and environment; the output goes to files.")
    ] = None
    output: Annotated[File, option("--output -o DIR", WRITE, "Folder for all files. Default: in memory_logs.")] = None
    resume: Annotated[bool, option("--resume", WRITE, "Continue the interrupted work in --output.")] = False
    force: Force = False
    prepare: Prepare = None
    cleanup: Cleanup = None
    unit: Unit = MemoryUnit.MiB
    as_json: Annotated[bool, option("--json", SHOW, "Print the result as JSON.")] = False

    def check_resume(self) -> None:
        """Raise UsageError if --resume is given without --output."""
        if self.resume and self.output is None:
            raise UsageError("option --resume: only with --output, the folder of the interrupted work")


@contextmanager
def naming_option(option: str) -> Iterator[None]:
    """Put the option's name before the message of an error, unless the message begins with a file."""
    try:
        yield
    except NncfToolsError as error:
        if not isinstance(error, SessionFileError):
            error.args = (f"option {option}: {error}",)
        raise


@contextmanager
def naming_remedy(**by: str) -> Iterator[None]:
    """Append advice to the message of an NncfToolsError that the block raises.

    The error's ``remedy`` is a key of ``by``; the value of this key is the advice.
    """
    try:
        yield
    except NncfToolsError as error:
        error.args = (f"{error}{by.get(error.remedy, '')}",)
        raise


def memory_types(
    asked: Sequence[str] | None, available: Iterable[str], default: Sequence[str] = DEFAULT_TYPES
) -> list[str]:
    """Return the memory metrics to show, without duplicates. Raises UsageError if a metric is not available."""
    available = list(available)
    if asked is None:
        return [name for name in default if name in available] or available
    names = split_types(asked)
    for name in names:
        if name != ALL and not columns_of([name], available):
            raise UsageError(f"option --type: {not_one_of(name, (*available, ALL), meant=OTHER_NAMES.get(name, ''))}")
    return available if ALL in names else columns_of(names, available)


FORMAT = "Default: by the ending of --output, else text."


def choose_format(asked: str | None, output: Path | None, formats: Collection[str]) -> str:
    """Return the format: ``asked`` if given, else the format for the ending of the output file, else text.

    Raises UsageError if the format is unknown, or if the ending is unknown or belongs to another format.
    """
    path = output or Path()
    is_special = os.path.exists(path) and not os.path.isfile(path)  # noqa: PTH110, PTH113 — a name may be too long
    ending = "" if is_special else ending_in(path.name)  # the names of folders, devices and FIFOs do not count
    if asked is not None:
        name = asked.lower()
        if f".{name}" in PICTURES:
            raise UsageError(f"option --format: {name} is a picture format; use --output FILE.{name}")
        if name in REMOVED:
            raise UsageError(f"option --format: {name} was removed; use --format {REMOVED[name]}")
        if name not in formats:
            raise UsageError(f"option --format: {not_one_of(name, formats)}")
        if name not in ENDINGS.get(ending, [name]):
            raise UsageError(f"option --output: no {ending} file holds the format {name}; choose another ending")
        return name
    if not ending:
        return TEXT
    main = {ending: names[0] for ending, names in ENDINGS.items()}
    by_ending = {ending: name for ending, name in main.items() if name == PICTURE or name in formats}
    if ending not in by_ending:
        expected = f"does not end in one of {', '.join(by_ending)}"
        raise UsageError(f"option --output: {path.name!r} {expected}; change the name, or add --format")
    return by_ending[ending]


def check_outputs(named: Mapping[str, Path | None], inputs: Iterable[Path], *, force: bool) -> dict[str, Path]:
    """Check all files that a command will write; return ``{option: file}``, with links resolved.

    Files of options other than ``--output`` must be pictures. Raises UsageError in these cases: a file cannot be
    written; a file exists and ``force`` is false; a picture has the wrong ending; a link and its target have different
    endings; the command would write a file twice, or write a file that it reads.
    """
    taken = {path.resolve() for path in inputs if os.path.isfile(path)}  # noqa: PTH113 — a name may be too long
    files: dict[str, Path] = {}
    for name, path in named.items():
        if path is None:
            continue
        if name != "--output" and path.suffix.lower() not in PICTURES:
            raise UsageError(f"option {name}: {str(path)!r} does not end in one of {', '.join(PICTURES)}")
        file = destination.check_output(name, path, force=force)
        if ending_in(file.name) != ending_in(path.name):
            raise UsageError(f"option {name}: {str(path)!r} is a link to {str(file)!r}; name that file")
        if file.resolve() in taken:
            raise UsageError(f"option {name}: this command also reads or writes {str(path)!r}; choose another name")
        taken.add(file.resolve())
        files[name] = file
    return files


def split_types(types: Iterable[str]) -> list[str]:
    """Return the metrics of all ``--type`` options: ``-t rss -t uss`` and ``-t RSS,uss`` mean the same."""
    names = ",".join(types).lower().split(",")
    return [name.strip() for name in names if name.strip()]


def compile_patterns(option: str, expressions: Texts) -> list[re.Pattern[str]]:
    """Return the compiled regular expressions. Raises UsageError with the name of ``option``."""
    patterns = []
    for expression in expressions or ():
        try:
            patterns.append(re.compile(expression))
        except re.error as error:
            raise UsageError(f"option {option}: {expression!r} is not a regular expression: {error}") from error
    return patterns


def share(option: str, text: str, largest: float = 50.0) -> float:
    """Return a percentage as a fraction: both ``5`` and ``5%`` give 0.05.

    Raises UsageError with the name of ``option`` if ``text`` is not a percentage above 0 and up to ``largest``.
    """
    with suppress(ValueError):
        percent = float(text.strip().removesuffix("%"))
        if 0 < percent <= largest and math.isfinite(percent):
            return percent / 100
    limit = f" and up to {largest:g}" if math.isfinite(largest) else ""
    raise UsageError(f"option {option}: a percentage above 0{limit} expected, such as 5%, found {text!r}")
