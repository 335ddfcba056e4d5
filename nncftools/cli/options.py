"""Options that several subcommands share, what a shell offers for them at Tab, and checks of their values.

``Request`` holds the options of a recording. How a shell asks is in completions/.
"""

import contextlib
import math
import os
import pathlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from nncftools.cli import destination
from nncftools.cli.parameters import RECORD, RUN, SHOW, WRITE, File, Texts, argument, option
from nncftools.errors import NncfToolsError, SessionFileError, UsageError
from nncftools.files import ending_in
from nncftools.metrics import DEVICE, DEVICE_MEMORY, MEMORY, METRICS, columns_of
from nncftools.render.view import ENDINGS, PICTURE, PICTURES, REMOVED, TEXT
from nncftools.units import MemoryUnit, bytes_from, not_one_of, seconds_from, unit_from


def memory_type_candidates(incomplete: str) -> list[tuple[str, str]]:
    """Return the memory metrics with their meanings."""
    offered = {name: METRICS[name].meaning for name in MEMORY}
    offered |= {DEVICE: "all memory of GPUs and NPUs", ALL: "all metrics that are available here"}
    begun = incomplete[: incomplete.rfind(",") + 1]
    return [(begun + name, meaning) for name, meaning in offered.items()]


def session_candidates(incomplete: str) -> list[str | tuple[str, str]]:
    """Return ``latest``, ``latest~1`` … and the files here; nothing if no such word fits, as shells offer files."""
    latest = destination.LATEST
    if not latest.startswith(incomplete.partition("~")[0]):
        return []
    paths = destination.in_order(DEFAULT_LOG_DIR)[:10]
    words = [(f"{latest}~{number}".removesuffix("~0"), path.parent.name) for number, path in enumerate(paths)]
    return [*words, *sorted(path.name for path in pathlib.Path().iterdir())] if words else []


def candidates(names: Iterable[str]) -> Callable[[], list[str]]:
    """Return a completion: the names, of which typer offers those that begin with the typed letters."""
    return lambda: [*map(str, names)]


def program_candidates(context: typer.Context, incomplete: str) -> list[str]:
    """Return programs on PATH for the first word of a command; for later words and paths the shell offers files."""
    if context.params.get("words") or not incomplete or os.sep in incomplete:
        return []
    return sorted({file.name for file in on_path(incomplete) if os.access(file, os.X_OK) and file.is_file()})


def on_path(beginning: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files in the folders of PATH whose names begin so; a folder may be missing or unreadable."""
    for folder in os.get_exec_path():
        with contextlib.suppress(OSError), os.scandir(folder or os.curdir) as files:
            yield from (file for file in files if file.name.startswith(beginning))


ALL = "all"
DEFAULT_TYPES = ("rss", DEVICE_MEMORY)
PROFILE_TYPES = ("rss", *(name for name, metric in METRICS.items() if metric.part_of == "rss"), DEVICE_MEMORY)
DEFAULT_LOG_DIR = destination.DEFAULT_LOG_DIR
ACTIONS = ("warn", "kill")
_OTHER_NAMES = {
    **dict.fromkeys(("ram", "mem", "memory", "res"), "rss"),
    **dict.fromkeys(("virtual", "virt"), "vms"),
    **dict.fromkeys(("heap", "anonymous"), "anon"),
    **dict.fromkeys(("gpu", "vram", "cuda", "npu"), DEVICE),
}
"""What other programs call our metrics."""


def command_words(meaning: str) -> Any:  # noqa: ANN401 — as typer has it
    """Return the argument for a command and its arguments; ``meaning`` says what it keeps."""
    text = f"The command and its arguments; {meaning}"
    return argument("COMMAND", text, autocompletion=program_candidates)


def _types(default: str, group: str) -> Any:  # noqa: ANN401 — as typer has it
    text = f"Memory to show: {', '.join(MEMORY)}, device (all of GPUs and NPUs), or all. Default: {default}."
    return option("--type -t METRIC[,METRIC]", group, text, autocompletion=memory_type_candidates)


Types = Annotated[Texts, _types(", ".join(DEFAULT_TYPES), RECORD)]
ProfileTypes = Annotated[Texts, _types(", ".join(PROFILE_TYPES), RECORD)]
RecordedTypes = Annotated[Texts, _types("what was recorded", SHOW)]
Interval = Annotated[
    float, option("--interval -i TIME", RECORD, "Time between samples: 0.05, 50ms.", parser=seconds_from)
]
_UNITS = f"Unit of memory: {', '.join(MemoryUnit)}."
Unit = Annotated[
    MemoryUnit,
    option("--unit -u UNIT", SHOW, _UNITS, parser=unit_from, autocompletion=candidates(MemoryUnit)),
]
Depth = Annotated[int, option("--depth N", SHOW, "Levels of operations to show.", min=1)]
FromZero = Annotated[bool, option("--from-zero", SHOW, "Show memory relative to the first sample.")]
Details = Annotated[bool, option("--details", SHOW, "Show all figures; by default, the main ones.")]
Open = Annotated[bool, option("--open", SHOW, "Write the page, and open it in a browser at the end.")]
Name = Annotated[str, option("--name TEXT", WRITE, "A name for the run.")]
Shell = Annotated[bool, option("--shell", RUN, "Run one quoted string through the shell.")]
Force = Annotated[bool, option("--force", WRITE, "Overwrite existing files.")]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Request:
    """What to record, how, and where to: the options of `monitor`; other commands set some of them."""

    words: Annotated[Texts, command_words("it runs in this terminal, folder and environment.")] = None
    no_auto: Annotated[bool, option("--no-auto", RECORD, "Mark no calls automatically.")] = False
    mark_call: Annotated[
        Texts,
        option(
            "--mark-call MODULE:FUNCTION[=NAME]",
            RECORD,
            "Also mark calls of this function; __main__:FUNCTION is one of the script. "
            "Repeatable; mark-calls in [tool.nncf-tools] of pyproject.toml adds more.",
        ),
    ] = None
    mark_on: Annotated[
        Texts,
        option(
            "--mark-on REGEX",
            RECORD,
            "A matching line of output begins an operation, named by the match or its group (?P<name>…). Repeatable.",
        ),
    ] = None
    depth: Depth = 1
    types: Types = None
    interval: Interval = 0.1
    unit: Unit = MemoryUnit.MiB
    output: Annotated[
        File,
        option("--output -o FILE", WRITE, "Write only the session, as .json or .json.gz; --plot adds files beside it."),
    ] = None
    log_dir: Annotated[
        pathlib.Path,
        option("--log-dir DIR", WRITE, "Make a new folder in DIR with session, operations, picture and page."),
    ] = DEFAULT_LOG_DIR
    from_zero: FromZero = False
    plot: Annotated[
        bool | None,
        option("--plot/--no-plot", WRITE, "Write the picture and, with plotly, the page. Default: unless --output."),
    ] = None
    opens: Open = False
    quiet: Annotated[bool, option("--quiet -q", SHOW, "Print no summary.")] = False
    details: Details = False
    live: Annotated[bool, option("--live", SHOW, "Show memory, CPU and operations while the command runs.")] = False
    capture: Annotated[
        File, option("--capture FILE", WRITE, "Also write the command's output to this file; with --live, only there.")
    ] = None
    name: Name = ""
    pid: Annotated[int | None, option("--pid PID", RECORD, "Attach to a running process instead.", min=1)] = None
    duration: Annotated[
        float | None,
        option("--duration TIME", RECORD, "Record only so long (30s, 2min); the command goes on.", parser=seconds_from),
    ] = None
    max_memory: Annotated[
        int | None,
        option("--max-memory SIZE", RUN, "Limit of the sum of RSS of all processes: 8GiB, 500M.", parser=bytes_from),
    ] = None
    on_limit: Annotated[
        str,
        option(
            f"--on-limit {'|'.join(ACTIONS)}",
            RUN,
            "If a sample exceeds it: warn once, or end all processes (SIGTERM, after 5 s SIGKILL).",
        ),
    ] = ACTIONS[0]
    require: Annotated[
        str | None,
        option(
            "--require SIZE|SESSION",
            RUN,
            "Start only if so much memory is available, or the memory and disk that an earlier SESSION needed.",
        ),
    ] = None
    repeat: Annotated[
        int, option("--repeat N", RUN, "Run the command N times and write N sessions (-1, -2, …) to compare.", min=1)
    ] = 1
    no_children: Annotated[bool, option("--no-children", RECORD, "Leave out descendants.")] = False
    wait_all: Annotated[bool, option("--wait-all", RECORD, "Record until the last descendant has ended.")] = False
    per_process: Annotated[bool, option("--per-process", RECORD, "Keep each process's RSS over time.")] = False
    stacks: Annotated[
        bool | None,
        option(
            "--stacks/--no-stacks",
            RECORD,
            "Find the code and the files that hold the memory, from outside. Default: "
            "`profile` does if it can, `monitor` does not.",
        ),
    ] = None
    stacks_budget: Annotated[
        str,
        option(
            "--stacks-budget PERCENT", RECORD, "Share of a core that stacks may use; half a CPU second in any case."
        ),
    ] = "1%"
    no_source: Annotated[
        bool, option("--no-source", RECORD, "Keep no text of the lines of code that hold the memory.")
    ] = False
    shell: Shell = False
    force: Force = False
    redact: Annotated[
        Texts,
        option("--redact REGEX", WRITE, "Besides likely secrets, hide matches of REGEX in command lines and code."),
    ] = None
    no_redact: Annotated[bool, option("--no-redact", WRITE, "Keep command lines and code unchanged.")] = False


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProfileRequest(Request):
    """The options of `profile`."""

    types: ProfileTypes = None
    interval: Interval = 0.05


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SeriesRequest:
    """The options of commands that run another one several times, and keep all of that in a folder."""

    words: Annotated[Texts, command_words("it keeps folder and environment. Its output goes to files.")] = None
    output: Annotated[File, option("--output -o DIR", WRITE, "Where to write all files. Default: in memory_logs.")] = (
        None
    )
    resume: Annotated[bool, option("--resume", WRITE, "Go on with what is in --output.")] = False
    force: Force = False
    unit: Unit = MemoryUnit.MiB
    as_json: Annotated[bool, option("--json", SHOW, "Print the result as JSON, as in --output.")] = False

    def check_resume(self) -> None:
        """Raise UsageError for nothing to go on with."""
        if self.resume and self.output is None:
            raise UsageError("option --resume: only with --output, the folder to go on with")


@contextlib.contextmanager
def naming_option(option: str) -> Iterator[None]:
    """Put the option's name before the message of an error, unless it names a file."""
    try:
        yield
    except NncfToolsError as error:
        if not isinstance(error, SessionFileError):
            error.args = (f"option {option}: {error}",)
        raise


@contextlib.contextmanager
def naming_remedy(**by: str) -> Iterator[None]:
    """Append to an error's message which option helps: ``by`` has the text for each ``NncfToolsError.remedy``."""
    try:
        yield
    except NncfToolsError as error:
        error.args = (f"{error}{by.get(error.remedy, '')}",)
        raise


def memory_types(
    asked: Sequence[str] | None, available: Iterable[str], default: Sequence[str] = DEFAULT_TYPES
) -> list[str]:
    """Return the memory metrics to show, without duplicates. Raises UsageError for one that is not available."""
    here = list(available)
    if asked is None:
        return [name for name in default if name in here] or here
    names = listed(asked)
    for name in names:
        if name != ALL and not columns_of([name], here):
            meant = _OTHER_NAMES.get(name, "")
            hint = f"; did you mean {meant}?" if columns_of([meant], here) else ""
            raise UsageError(f"option --type: {not_one_of(name, (*here, ALL))}{hint}")
    return here if ALL in names else columns_of(names, here)


FORMAT = "Default: by the ending of --output, else text."


def format_of(asked: str | None, output: pathlib.Path | None, known: Collection[str]) -> str:
    """Return the format to write: the one that was asked for, else the one that the output's ending says, else text.

    Raises UsageError for an unknown format, for an ending that the format never has, and, if no format was asked for,
    for an ending that says none.
    """
    path = output or pathlib.Path()
    is_other = os.path.exists(path) and not os.path.isfile(path)  # noqa: PTH110, PTH113 — a name may be too long
    ending = "" if is_other else ending_in(path.name)  # the name of a folder, a device or a FIFO says nothing
    if asked is not None:
        name = asked.lower()
        if f".{name}" in PICTURES:
            raise UsageError(f"option --format: {name} is a picture; write it with --output FILE.{name}")
        if name in REMOVED:
            raise UsageError(f"option --format: {name} was removed; use --format {REMOVED[name]}")
        if name not in known:
            raise UsageError(f"option --format: {not_one_of(name, known)}")
        if name not in ENDINGS.get(ending, [name]):
            raise UsageError(f"option --output: no {ending} file holds the format {name}; choose another ending")
        return name
    if not ending:
        return TEXT
    by_ending = {ending: formats[0] for ending, formats in ENDINGS.items() if formats[0] in (*known, PICTURE)}
    if ending not in by_ending:
        expected = f"does not end in one of {', '.join(by_ending)}"
        raise UsageError(f"option --output: {path.name!r} {expected}; choose such a name, or a format with --format")
    return by_ending[ending]


def check_outputs(
    named: Mapping[str, pathlib.Path | None], read: Iterable[pathlib.Path], *, force: bool
) -> dict[str, pathlib.Path]:
    """Check all files that a command writes, before it writes any: return the file that each option means.

    All options but ``--output`` are for pictures. Raises UsageError like ``destination.check_output``, for a picture
    with another ending, for a link to a file with another ending, and for a file that the command also reads or writes.
    """
    taken = {path.resolve() for path in read if os.path.isfile(path)}  # noqa: PTH113 — a name may be too long
    files: dict[str, pathlib.Path] = {}
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


def listed(types: Iterable[str]) -> list[str]:
    """Return the metrics that were asked for: ``-t rss -t uss`` and ``-t RSS,uss`` are the same."""
    return [name.strip().lower() for text in types for name in text.split(",") if name.strip()]


def compiled(option: str, expressions: Texts) -> list[re.Pattern[str]]:
    """Return regular expressions. Raises UsageError, which names ``option``."""
    patterns = []
    for expression in expressions or ():
        try:
            patterns.append(re.compile(expression))
        except re.error as error:
            raise UsageError(f"option {option}: {expression!r} is not a regular expression: {error}") from error
    return patterns


def share(option: str, text: str, largest: float = 50.0) -> float:
    """Return a percentage, with or without %, as a share. Raises UsageError, which names ``option``."""
    with contextlib.suppress(ValueError):
        percent = float(text.strip().removesuffix("%"))
        if 0 < percent <= largest and math.isfinite(percent):
            return percent / 100
    expected = f"a percentage above 0{f' and up to {largest:g}' if math.isfinite(largest) else ''} expected, such as 5%"
    raise UsageError(f"option {option}: {expected}, found {text!r}")
