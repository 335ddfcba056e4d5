"""Compares two runs, or two groups of repeated runs: measured values, operations and settings.

Operations of several runs are matched by name, function and arguments. If there is no match, name and function are
enough, and then the name alone. Settings are the command, arguments, machine, sampling, and the compression of saved
models.
"""

from __future__ import annotations

import shlex
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import count
from operator import attrgetter
from pathlib import PurePath

from msgspec.structs import replace

from nncftools.analysis import build_up, figures
from nncftools.analysis.figures import (
    CPU_TIME,
    DURATION,
    HELD_AT_END,
    MODEL_SIZE,
    PEAK,
    Difference,
    Figure,
    GrownStack,
    Sizes,
    Value,
    Values,
    find_differences,
    find_grown,
    known_figure,
    list_recorded,
    places,
)
from nncftools.analysis.operation import Operation, combine_calls
from nncftools.analysis.session import Session
from nncftools.analysis.summary import cpu_s
from nncftools.errors import NncfToolsError
from nncftools.metrics import memory_of
from nncftools.session.nesting import kind_of

COMMAND = "command"
_MOST_WORDS = 500
_NNCF_PARTS = 3
"""The number of parts in the key of a setting: ``nncf/ALGORITHM/SETTING``."""


@dataclass(frozen=True)
class Setting:
    """A setting that may differ between the two sides of a comparison, ``base`` and ``new``.

    If the runs of a side have different values, the values are joined by ``or``. An empty value means that the setting
    is not set.
    """

    name: str
    base: str
    new: str


def _model_settings(session: Session) -> dict[str, str]:
    """Return the compression settings of the saved models: ``{name of the setting: value}``.

    A name is, for example, ``mode`` or ``group_size``. If several models have different values, the values are joined
    by ``or``.
    """
    by_name: dict[str, list[str]] = {}
    for model in session.models:
        for path, value in model.facts.items():
            parts = path.split("/")
            if parts[0] == "nncf" and len(parts) == _NNCF_PARTS:
                by_name.setdefault(parts[-1], []).append(value)
    return {name: _join(values) for name, values in by_name.items()}


def _find_settings(
    base: Sequence[Run], new: Sequence[Run], operations: Iterable[ComparedOperation]
) -> Iterator[Setting]:
    """Yield the settings that differ, first the settings that the user chose."""
    base_commands = list(dict.fromkeys(run.command for run in base))
    new_commands = list(dict.fromkeys(run.command for run in new))
    if base_commands != new_commands:
        yield from _compare_commands(base_commands, new_commands)
    for operation in operations:
        is_in_both = operation.base_runs and operation.new_runs
        if is_in_both and kind_of(operation.name) != _SAVING:
            yield from _compare_texts(operation.title, operation.base_signatures, operation.new_signatures)
    models = dict[str, str]()
    if any(run.models for run in base) and any(run.models for run in new):
        for run in (*base, *new):
            models |= run.models
    for name in models:
        base_values = [run.models.get(name, "") for run in base]
        yield from _compare_texts(name, base_values, [run.models.get(name, "") for run in new])
    for fact in base[0].facts:
        base_values = [run.facts[fact] for run in base]
        yield from _compare_texts(fact, base_values, [run.facts[fact] for run in new])


def _compare_texts(name: str, base: Sequence[str], new: Sequence[str]) -> Iterator[Setting]:
    setting = Setting(name, _join(base), _join(new))
    if setting.base != setting.new:
        yield setting


def _compare_commands(base: Sequence[str], new: Sequence[str]) -> Iterator[Setting]:
    """Yield the words in which two commands differ.

    If the value of an option differs, the name of the option is included. If a side has several commands, yield the
    whole commands.
    """
    if len(base) > 1 or len(new) > 1:
        yield Setting(COMMAND, _join(base), _join(new))
        return
    base_words = _split_words(base[0])
    new_words = _split_words(new[0])
    matcher = SequenceMatcher(None, base_words, new_words, autojunk=False)
    for kind, base_from, base_to, new_from, new_to in matcher.get_opcodes():
        if kind == "equal":
            continue
        has_option = new_to > new_from and base_to > base_from > 0 and base_words[base_from - 1].startswith("-")
        base_part = shlex.join(base_words[base_from - has_option : base_to])
        new_part = shlex.join(new_words[new_from - has_option : new_to])
        yield Setting(COMMAND, base_part, new_part)


def _split_words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:  # not a command line, but the name of a run
        words = command.split()
    return words[:_MOST_WORDS]


def _join(texts: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(texts))


_KEYS: tuple[Callable[[Operation], Hashable], ...] = (
    attrgetter("name", "call", "arguments"),
    attrgetter("name", "call"),
    attrgetter("name"),
)
"""Operations are the same if these attributes are equal. The strictest set of attributes is tried first."""
Match = dict[int, str]
"""An operation that several runs have: ``{index of the run: name of the operation in this run}``."""


def match_operations(runs: Sequence[Mapping[str, Operation]]) -> list[Match]:
    """Find the same operations in several runs.

    ``runs`` has the operations of each run in the order of their starts: ``{unique name: operation}``. Operations are
    the same if name, function and arguments are equal, or else name and function, or else the name. If several
    operations of a run are the same, the first is matched to the first of another run, the second to the second. The
    result has the operations of the first run in order, and then the operations that only later runs have.
    """
    matches: list[Match] = []
    for run, operations in enumerate(runs):
        waiting = list(operations)
        free = matches
        for key in _KEYS:
            alike = _index_matches(free, runs, key)
            names = waiting
            waiting = []
            for name in names:
                candidates = alike.get(key(operations[name]), deque())
                while candidates and run in candidates[0]:
                    candidates.popleft()
                if candidates:
                    candidates.popleft()[run] = name
                else:
                    waiting.append(name)
            free = [match for match in free if run not in match]
        matches += ({run: name} for name in waiting)
    return matches


def _index_matches(
    matches: Iterable[Match], runs: Sequence[Mapping[str, Operation]], key: Callable[[Operation], Hashable]
) -> dict[Hashable, deque[Match]]:
    """Group matches by the value of ``key`` for their operations: ``{key(operation): matches}``.

    The operations of a match may have different values of ``key``. The match is then in several groups.
    """
    alike: dict[Hashable, deque[Match]] = {}
    for match in matches:
        keys = {key(runs[run][name]) for run, name in match.items()}
        for value in keys:
            alike.setdefault(value, deque()).append(match)
    return alike


_SAVING = "Saving"
"""The kind of operations that save models. The arguments are names of files, not settings."""
_MOST_STACKS = 6


@dataclass(frozen=True, kw_only=True)
class Run:
    """The facts and measured values of a session that a comparison needs."""

    title: str
    """The path of the session."""
    name: str = ""
    command: str
    facts: Mapping[str, str]
    """Facts such as host and interval: ``{name: text}``. Measured values of runs are only comparable if these facts are
    equal.
    """
    models: Mapping[str, str] = field(default_factory=dict)
    """The compression settings of the saved models: ``{name of the setting: value}``."""
    peak: str
    """The moment of the RSS peak and the operation at this moment, as a text; empty if unknown."""
    remarks: Sequence[str]
    """Problems of this run."""
    figures: Values
    operations: Mapping[str, Values]
    """The measured values of operations, in the order of their starts: ``{name: values}``. A second operation of the
    same name is ``NAME (2)``.
    """
    calls: Mapping[str, Operation] = field(default_factory=dict)
    """Operations with the names of ``operations``, but without the measured values."""
    every: Mapping[str, Operation] = field(default_factory=dict)
    """All operations, also inner operations, with their measured values, in the order of their starts: ``{name:
    operation}``. Empty if not needed. Gates (limits that the user sets) on operations need the values.
    """
    stacks: Sizes | None = None
    """The bytes that each place in the code held at the RSS peak; None if there are no stacks."""
    why_no_stacks: str = ""
    """The reason why no stacks were read; empty if unknown, or if the user asked for no stacks."""

    def together(self, calls: Sequence[Operation]) -> Values:
        """Return the values of several operations together: the highest peak, and the sums of durations and counters.

        An operation inside another of these operations is not counted again.
        """
        every = set(calls)
        outer = [call for call in calls if every.isdisjoint(call.ancestors)]
        return _operation_values(combine_calls(outer)) if outer else {}


def measure_run(session: Session, title: str, depth: int = 1, *, peak: str = "", with_inner: bool = False) -> Run:
    """Return the facts and measured values of a session, as needed for a comparison.

    Only operations inside fewer than ``depth`` other operations are included: with 1, the outermost operations.
    ``title`` names the session in messages. ``peak`` is a text for display that describes the moment of the RSS peak.
    With ``with_inner``, the result also has the values of all inner operations, for gates (limits) on operations.
    Raises NncfToolsError if the session has no samples.
    """
    if not len(session.samples):
        raise NncfToolsError(f"{title}: has no samples, so there is nothing to compare")
    return figures_of_run(session, title, depth, peak=peak, with_inner=with_inner)


def figures_of_run(session: Session, title: str, depth: int = 1, *, peak: str = "", with_inner: bool = False) -> Run:
    """Return the facts and measured values of a session, even if the session has no samples.

    The parameters and the result are the same as for ``measure_run``.
    """
    shown = [operation for operation in session.operations if operation.depth < depth]
    names = unique_names(shown)
    calls = {}
    operations = {}
    for name, operation in zip(names, shown, strict=True):
        calls[name] = replace(operation, parent=None, figures={}, rates={})
        operations[name] = _operation_values(operation)
    every: list[tuple[str, Operation]] = []
    if with_inner:
        outer_first = sorted(session.operations, key=lambda operation: operation.depth >= depth)
        every = list(zip(unique_names(outer_first), outer_first, strict=True))
        every.sort(key=lambda item: item[1].start_s)
        for _, operation in every:
            # computed now: a later computation would keep the samples in memory
            operation.figures = dict(operation.figures)
    stacks = build_up.of_peak(session)
    return Run(
        title=title,
        name=session.name,
        command=shlex.join(session.command) or session.name,
        facts=_list_facts(session),
        models=_model_settings(session),
        peak=peak,
        remarks=list(_list_remarks(session)),
        figures=_run_values(session),
        operations=operations,
        calls=calls,
        every=dict(every),
        stacks=None if stacks is None else places(stacks),
        why_no_stacks="" if session.snapshots is None else session.snapshots.missing or "",
    )


def _run_values(session: Session) -> Values:
    values: Values = {}
    for name, peak in session.peaks.items():
        if peak.low is not None and not session.from_zero:
            values[PEAK + name] = Value(peak.low, peak.high)
    run = {DURATION: session.duration_s, CPU_TIME: cpu_s(session), MODEL_SIZE: _model_size(session)}
    run[HELD_AT_END] = build_up.held_at_end(session)
    _add_known(values, session.totals | run)
    return {name: values[name] for name in figures.in_order(values) if figures.figure_of(name)}


def _model_size(session: Session) -> float | None:
    """Return the sum of the sizes in bytes of all files and folders that the run saved; None if there are none.

    Only files and folders that existed at the end of the run count. If a folder was saved, files in this folder are not
    counted again.
    """
    sizes = {}
    for mark in session.marks:
        if mark.saved and mark.saved_size is not None:
            sizes[mark.saved] = mark.saved_size
    outer = []
    for path, size in sizes.items():
        if sizes.keys().isdisjoint(map(str, PurePath(path).parents)):
            outer.append(size)
    return sum(outer) if outer else None


def _operation_values(operation: Operation) -> Values:
    columns = operation.figures
    gauges, counters = _compared_columns(tuple(columns))
    values: Values = {}
    for name in gauges:
        peak = columns[name].peak
        if peak is not None:
            values[PEAK + name] = Value(peak.low, peak.high)
    duration_s = None if operation.known_duration_s is None else operation.in_calls_s
    _add_known(values, {DURATION: duration_s, CPU_TIME: operation.cpu_s})
    _add_known(values, {name: columns[name].spent for name in counters})
    return values


@lru_cache
def _compared_columns(columns: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the names of the columns to compare, as two lists: memory metrics, and counters."""
    counters = [column for column in columns if column != CPU_TIME and figures.figure_of(column)]
    return memory_of(columns), counters


def _add_known(values: Values, sizes: Mapping[str, float | None]) -> None:
    for name, size in sizes.items():
        if size is not None:
            values[name] = Value(size)


def unique_names(operations: Iterable[Operation]) -> list[str]:
    """Return a different name for each operation: ``NAME``, ``NAME (2)``."""
    numbers: dict[str, count[int]] = defaultdict(lambda: count(2))
    names: dict[str, None] = {}
    for operation in operations:
        name = operation.name
        while name in names:
            name = f"{operation.name} ({next(numbers[operation.name])})"
        names[name] = None
    return list(names)


def _list_facts(session: Session) -> dict[str, str]:
    host = session.host
    sampler = session.sampler
    cores = "" if host.cpus is None else f" ({host.cpus} cores)"
    return {
        "host": f"{host.name or 'unknown'}{cores}",
        "interval": "unknown" if sampler.interval_s is None else f"{sampler.interval_s:g} s",
        "tool version": session.tool_version or "unknown",
        "source of figures": sampler.source or "unknown",
        "number of ranks": f"{len(session.ranks) or 1}",
    }


def _list_remarks(session: Session) -> Iterator[str]:
    if session.finished is False:
        yield "is unfinished: its figures end where the recording broke off"
    if session.exit is not None and session.exit.signal is not None:
        yield f"was killed by signal {session.exit.signal}"
    elif session.exit is not None and session.exit.code:
        yield f"ended with exit status {session.exit.code}"
    if len(session.samples) == 1:
        yield "has one sample: its memory at other moments is unknown"


@dataclass(frozen=True, kw_only=True)
class ComparedOperation:
    """An operation in the compared runs.

    If only ``base`` or only ``new`` has the operation, ``differences`` is empty.
    """

    name: str
    title: str
    """The name of the operation. If a run has several operations of this name, a number follows: ``NAME (2)`` is the
    second operation of the name. ``NAME (1 → 2)``: the first operation in some runs is compared with the second
    operation in other runs."""
    base_runs: int
    new_runs: int
    differences: Mapping[str, Difference]
    base_signatures: Sequence[str] = ()
    """The functions that the operation called in the runs of ``base``, with their arguments."""
    new_signatures: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The comparison of two runs, or of two groups of runs: ``base`` and ``new``."""

    base: Sequence[Run]
    new: Sequence[Run]
    figures: Mapping[str, Difference]
    """The differences between the measured values of whole runs: ``{name: difference}``. Values of operations are
    separate.
    """
    operations: Sequence[ComparedOperation]
    """Operations in the order of ``base``, and then operations that only ``new`` has."""
    only_base: Sequence[Figure] = ()
    only_new: Sequence[Figure] = ()
    settings: Sequence[Setting] = ()
    """Settings that differ between ``base`` and ``new``."""
    remarks: Sequence[str] = ()
    """Problems of single runs."""
    stacks: Sequence[GrownStack] | None = None
    """The places in the code whose memory at the RSS peak changed most; None unless both sides have stacks."""

    @property
    def warnings(self) -> list[str]:
        """Sentences that say why the measured values of ``base`` and ``new`` are hard to compare."""
        warnings = []
        for setting in self.settings:
            if setting.name in self.base[0].facts:
                noun, joint, rest = setting.name.partition(" of ")  # "hosts", "numbers of ranks"
                warnings.append(f"different {noun}s{joint}{rest}: base {setting.base}; new {setting.new}")
        if any(setting.name == COMMAND for setting in self.settings):
            warnings.append("different commands")
        return [*warnings, *self.remarks]

    @property
    def is_of_groups(self) -> bool:
        """Whether a side has several runs."""
        return len(self.base) > 1 or len(self.new) > 1


def compare_runs(base: Sequence[Run], new: Sequence[Run]) -> Comparison:
    """Return the comparison of two runs or groups.

    Raises NncfToolsError if the sides have no memory metric in common. If no run has memory metrics, any common value
    except the duration is enough.
    """
    base_values = [run.figures for run in base]
    new_values = [run.figures for run in new]
    base_names = list_recorded(base_values)
    new_names = list_recorded(new_values)
    memory = {name for name in (*base_names, *new_names) if name.startswith(PEAK)}
    common = set(base_names) & set(new_names)
    if not (common & memory if memory else common - {DURATION}):
        recorded = f"{base[0].title} has {', '.join(base_names)}, {new[0].title} has {', '.join(new_names)}"
        raise NncfToolsError(f"no {'memory ' if memory else ''}metric in common, nothing to compare: {recorded}")
    operations = list(_compare_operations(base, new))
    base_stacks = [run.stacks for run in base if run.stacks is not None]
    new_stacks = [run.stacks for run in new if run.stacks is not None]
    remarks = []
    for run in (*base, *new):
        remarks += [f"{run.title} {remark}" for remark in run.remarks]
    return Comparison(
        base=base,
        new=new,
        figures=find_differences(base_values, new_values),
        operations=operations,
        only_base=[known_figure(name) for name in base_names if name not in new_names],
        only_new=[known_figure(name) for name in new_names if name not in base_names],
        settings=list(_find_settings(base, new, operations)),
        remarks=remarks,
        stacks=find_grown(base_stacks, new_stacks, _MOST_STACKS) if base_stacks and new_stacks else None,
    )


def _compare_operations(base: Sequence[Run], new: Sequence[Run]) -> Iterator[ComparedOperation]:
    runs = [*base, *new]
    matches = match_operations([run.calls for run in runs])
    firsts = []
    for match in matches:
        run, name = next(iter(match.items()))
        firsts.append(runs[run].calls[name])
    names = dict.fromkeys(unique_names(firsts))
    for unique_name, first, match in zip(names, firsts, matches, strict=True):
        title = unique_name
        if f"{first.name} (2)" in names:
            endings = [name.removeprefix(first.name) for name in match.values()]
            numbers = [ending.strip(" ()") or "1" for ending in endings]
            title = f"{first.name} ({' → '.join(dict.fromkeys(numbers))})"
        base_runs = {run: name for run, name in match.items() if run < len(base)}
        new_runs = {run: name for run, name in match.items() if run >= len(base)}
        base_values = [runs[run].operations[name] for run, name in base_runs.items()]
        new_values = [runs[run].operations[name] for run, name in new_runs.items()]
        yield ComparedOperation(
            name=unique_name,
            title=title,
            base_runs=len(base_runs),
            new_runs=len(new_runs),
            differences=find_differences(base_values, new_values),
            base_signatures=_list_signatures(runs, base_runs),
            new_signatures=_list_signatures(runs, new_runs),
        )


def _list_signatures(runs: Sequence[Run], match: Match) -> list[str]:
    signatures = [runs[run].calls[name].signature for run, name in match.items()]
    return list(dict.fromkeys(filter(None, signatures)))


def longest_in_all(
    runs: Sequence[Run], most: int, typical: Callable[[list[float]], float]
) -> list[tuple[str, list[Values]]]:
    """Return the longest operations that all runs have: ``[(name, measured values in each run)]``.

    The list has up to ``most`` operations, in the order of the first run. An operation has a different duration in each
    run. ``typical`` (for example, the median) computes a single duration from these durations.
    """
    matches = match_operations([run.calls for run in runs])
    everywhere = [match for match in matches if len(match) == len(runs)]
    titles = unique_names(runs[0].calls[match[0]] for match in everywhere)
    values_of = {}
    lengths_s = {}
    for title, match in zip(titles, everywhere, strict=True):
        values = [runs[run].operations[name] for run, name in match.items()]
        values_of[title] = values
        durations_s = [figures[DURATION].low for figures in values if DURATION in figures]
        lengths_s[title] = typical(durations_s or [0.0])
    longest = set(sorted(lengths_s, key=lambda title: -lengths_s[title])[:most])
    return [(title, values) for title, values in values_of.items() if title in longest]
