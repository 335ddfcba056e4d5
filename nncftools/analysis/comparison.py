"""Two runs, or two groups of repeated runs, side by side: their figures, operations, and what they were asked to do.

Operations of several runs are the same one by function and arguments, else by function, else by name. Settings are the
command, arguments, machine, sampling, and the compression of saved models.
"""

from __future__ import annotations

import shlex
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import count
from pathlib import PurePath

from msgspec.structs import replace

from nncftools.analysis import build_up, figures
from nncftools.analysis.figures import (
    CPU_TIME,
    DURATION,
    MODEL_SIZE,
    PEAK,
    Difference,
    Figure,
    GrownStack,
    Sizes,
    Value,
    Values,
    grown,
    places,
)
from nncftools.analysis.operation import Operation, combined
from nncftools.analysis.session import Session
from nncftools.analysis.summary import cpu_s
from nncftools.errors import NncfToolsError
from nncftools.metrics import is_memory, memory_of
from nncftools.session.nesting import kind_of

Key = Callable[[Operation], Hashable]

COMMAND = "command"
_MOST_WORDS = 500
_OF_NNCF = 3
"""``nncf``, an algorithm, a setting."""


@dataclass(frozen=True)
class Setting:
    """One setting on both sides; of runs that differ, all values with ``or`` between them; empty for none."""

    name: str
    base: str
    new: str


def of_models(session: Session) -> dict[str, str]:
    """Return the compression settings of the saved models, by name: ``mode``, ``group_size``."""
    values_of: dict[str, list[str]] = {}
    for path, value in (fact for model in session.models for fact in model.facts.items()):
        parts = path.split("/")
        if parts[0] == "nncf" and len(parts) == _OF_NNCF:
            values_of.setdefault(parts[-1], []).append(value)
    return {name: _either(values) for name, values in values_of.items()}


def differing(
    base: Sequence[Run], new: Sequence[Run], calls: Iterable[tuple[str, Sequence[str], Sequence[str]]]
) -> Iterator[Setting]:
    """Yield the settings that differ, those that the user chose first.

    ``calls`` are the operations that both sides have: the name, and what it called on each side, with its arguments.
    """
    commands = [list(dict.fromkeys(run.command for run in runs)) for runs in (base, new)]
    if commands[0] != commands[1]:
        yield from _of_commands(*commands)
    for name, of_base, of_new in calls:
        yield from _if_different(name, of_base, of_new)
    have_models = all(any(run.models for run in runs) for runs in (base, new))
    for name in dict.fromkeys(name for run in (*base, *new) for name in run.models if have_models):
        yield from _if_different(name, *([run.models.get(name, "") for run in runs] for runs in (base, new)))
    for fact in base[0].facts:
        yield from _if_different(fact, *([run.facts[fact] for run in runs] for runs in (base, new)))


def _if_different(name: str, base: Sequence[str], new: Sequence[str]) -> Iterator[Setting]:
    sides = _either(base), _either(new)
    if sides[0] != sides[1]:
        yield Setting(name, *sides)


def _of_commands(base: Sequence[str], new: Sequence[str]) -> Iterator[Setting]:
    """Yield the words in which two commands differ, with the option before them; of several commands, all of them."""
    if len(base) > 1 or len(new) > 1:
        yield Setting(COMMAND, _either(base), _either(new))
        return
    base_words, new_words = _words(base[0]), _words(new[0])
    for kind, from_, to, new_from, new_to in SequenceMatcher(None, base_words, new_words, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        has_option = from_ > 0 and base_words[from_ - 1].startswith("-") and to > from_ and new_to > new_from
        words = base_words[from_ - has_option : to], new_words[new_from - has_option : new_to]
        yield Setting(COMMAND, *map(shlex.join, words))


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:  # the name of a run is no command line
        words = command.split()
    return words[:_MOST_WORDS]


def _either(texts: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(texts))


_KEYS: tuple[Key, ...] = (
    lambda of: (of.name, of.call, of.arguments),
    lambda of: (of.name, of.call),
    lambda of: of.name,
)
"""What must be equal, the strictest first."""


def matched(runs: Sequence[Mapping[str, Operation]]) -> list[dict[int, str]]:
    """Return each operation as its name in the runs that have it, by the place of the run.

    ``runs`` are the operations of each run by their names, in the order of their starts. Where several are alike, the
    first is matched with the first. The result is in the order of the first run, then of what only later ones have.
    """
    operations: list[dict[int, str]] = []
    for run, functions in enumerate(runs):
        waiting = list(functions)
        free = list(operations)
        for key in _KEYS:
            waiting, free = _take(run, waiting, free, runs, key)
        operations += ({run: name} for name in waiting)
    return operations


def _take(
    number: int, names: Sequence[str], free: Sequence[dict[int, str]], runs: Sequence[Mapping[str, Operation]], key: Key
) -> tuple[list[str], list[dict[int, str]]]:
    """Match operations of run ``number`` with those of earlier runs that have the same key; return what is left."""
    by_key: dict[Hashable, deque[dict[int, str]]] = {}
    for operation in free:
        for like in dict.fromkeys(key(runs[run][name]) for run, name in operation.items()):
            by_key.setdefault(like, deque()).append(operation)
    left = []
    for name in names:
        alike = by_key.get(key(runs[number][name]), deque())
        while alike and number in alike[0]:
            alike.popleft()
        if alike:
            alike.popleft()[number] = name
        else:
            left.append(name)
    return left, [operation for operation in free if number not in operation]


_SAVING = "Saving"
"""Its arguments are names of files, which differ without being a setting."""
_MOST_STACKS = 6


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a comparison needs from a session."""

    title: str
    command: str
    facts: Mapping[str, str]
    """What must be equal for figures to be comparable, by its name: host, interval."""
    models: Mapping[str, str] = field(default_factory=dict)
    """How the saved models were compressed, by the name of the setting."""
    peak: str
    """When RSS reached its peak, and in which operation; empty for unknown."""
    remarks: Sequence[str]
    """What is wrong with this run."""
    figures: Values
    operations: Mapping[str, Values]
    """By name, in the order of their starts; the second of one name is called ``NAME (2)``."""
    calls: Mapping[str, Operation] = field(default_factory=dict)
    """The same operations without their figures."""
    every: Mapping[str, Operation] = field(default_factory=dict)
    """For gates: these operations and those inside them with their figures, in the order of their starts."""
    stacks: Sizes | None = None
    """The bytes that code held at the RSS peak; None when no stacks were taken."""
    why_no_stacks: str = ""
    """What the helper said; empty for unknown, and if no stacks were asked for."""

    def together(self, calls: Sequence[Operation]) -> Values:
        """Return the figures of operations as one: the highest peak, and the sums of durations and counters.

        An operation inside another one of them does not count again.
        """
        every = set(calls)
        outer = [call for call in calls if every.isdisjoint(call.ancestors)]
        return _of_operation(combined(outer)) if outer else {}


def measured(session: Session, title: str, depth: int = 1, *, peak: str = "", with_inner: bool = False) -> Run:
    """Return the figures of a session, with the operations of its outer ``depth`` levels.

    ``title`` names it in messages, ``peak`` says when and where its peak was. Gates on operations also need the figures
    of those inside them (``with_inner``). Raises NncfToolsError for a session without samples.
    """
    if not len(session.samples):
        raise NncfToolsError(f"{title}: holds no samples: there is nothing to compare")
    return figures_of_run(session, title, depth, peak=peak, with_inner=with_inner)


def figures_of_run(session: Session, title: str, depth: int = 1, *, peak: str = "", with_inner: bool = False) -> Run:
    """Return the same also of a session without samples, as far as its figures are known."""
    shown = [of for of in session.operations if of.depth < depth]
    names = unique_names(shown)
    calls = {name: replace(of, parent=None, figures={}) for name, of in zip(names, shown, strict=True)}
    every: dict[str, Operation] = {}
    if with_inner:
        outer_first = sorted(session.operations, key=lambda of: of.depth >= depth)
        every = dict(zip(unique_names(outer_first), outer_first, strict=True))
        for operation in every.values():
            operation.figures = dict(operation.figures)  # to compute them later keeps the samples in memory
    stacks = build_up.of_peak(session)
    return Run(
        title=title,
        command=shlex.join(session.command) or session.name,
        facts=_facts(session),
        models=of_models(session),
        peak=peak,
        remarks=list(_remarks(session)),
        figures=_figures(session),
        operations=dict(zip(names, map(_of_operation, shown), strict=True)),
        calls=calls,
        every=dict(sorted(every.items(), key=lambda item: item[1].start_s)),
        stacks=None if stacks is None else places(stacks),
        why_no_stacks="" if session.snapshots is None else session.snapshots.missing or "",
    )


def _figures(session: Session) -> Values:
    known = {} if session.from_zero else session.peaks
    peaks = {
        PEAK + name: Value(peak.low, peak.high)
        for name, peak in known.items()
        if is_memory(name) and peak.low is not None
    }
    run = {DURATION: session.duration_s, CPU_TIME: cpu_s(session), MODEL_SIZE: _model_size(session)}
    known_figures = {**peaks, **_known(session.totals | run)}
    return {name: known_figures[name] for name in figures.in_order(known_figures) if figures.figure_of(name)}


def _model_size(session: Session) -> float | None:
    """Return the bytes of everything that was saved and was there at the end; a file in a saved folder counts once."""
    sizes = {mark.saved: mark.saved_size for mark in session.marks if mark.saved and mark.saved_size is not None}
    inside = {path for path in sizes if any(str(above) in sizes for above in PurePath(path).parents)}
    known = [size for path, size in sizes.items() if path not in inside]
    return sum(known) if known else None


def _of_operation(operation: Operation) -> Values:
    gauges, counters = _compared_columns(tuple(operation.figures))
    peaks = {
        PEAK + column: Value(peak.low, peak.high)
        for column in gauges
        if (peak := operation.of(column).peak) is not None
    }
    spent = {column: operation.of(column).spent for column in counters}
    duration_s = operation.known_duration_s and operation.in_calls_s
    return {**peaks, **_known({DURATION: duration_s, CPU_TIME: operation.cpu_s, **spent})}


@lru_cache
def _compared_columns(columns: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the gauges of memory and the counters among the columns of an operation."""
    counters = [column for column in columns if column != CPU_TIME and figures.figure_of(column)]
    return memory_of(columns), counters


def _known(figures: Mapping[str, float | None]) -> Values:
    return {name: Value(value) for name, value in figures.items() if value is not None}


def unique_names(operations: Iterable[Operation]) -> list[str]:
    """Return a name for each operation that no other has."""
    numbers: dict[str, count[int]] = defaultdict(lambda: count(2))
    names: dict[str, None] = {}
    for operation in operations:
        name = operation.name
        while name in names:
            name = f"{operation.name} ({next(numbers[operation.name])})"
        names[name] = None
    return list(names)


def _facts(session: Session) -> dict[str, str]:
    host, facts = session.host, session.sampler
    cores = "" if host.cpus is None else f" ({host.cpus} cores)"
    return {
        "host": f"{host.name or 'unknown'}{cores}",
        "interval": "unknown" if facts.interval_s is None else f"{facts.interval_s:g} s",
        "tool version": session.tool_version or "unknown",
        "source of figures": facts.source or "unknown",
        "number of ranks": f"{len(session.ranks) or 1}",
    }


def _remarks(session: Session) -> Iterator[str]:
    if session.finished is False:
        yield "is unfinished: its figures are those up to then"
    if session.exit is not None and session.exit.signal is not None:
        yield f"was killed by signal {session.exit.signal}"
    elif session.exit is not None and session.exit.code:
        yield f"ended with exit status {session.exit.code}"
    if len(session.samples) == 1:
        yield "has one sample: its memory at other moments is unknown"


@dataclass(frozen=True)
class ComparedOperation:
    """One operation in the runs that have it; no ``differences`` when one side has none."""

    name: str
    title: str
    """The name, with its number where a run has several: ``NAME (1)``, or ``NAME (1 → 2)`` for different numbers."""
    base_runs: int
    new_runs: int
    differences: Mapping[str, Difference]
    base_signatures: Sequence[str] = ()
    """What the operation called in the runs of this side, with its arguments; each once."""
    new_signatures: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs or groups side by side."""

    base: Sequence[Run]
    new: Sequence[Run]
    figures: Mapping[str, Difference]
    """Of the whole run, by name."""
    operations: Sequence[ComparedOperation]
    """In the order of ``base``, then those that only ``new`` has."""
    only_base: Sequence[Figure] = ()
    only_new: Sequence[Figure] = ()
    settings: Sequence[Setting] = ()
    """What the runs were asked to do differently."""
    remarks: Sequence[str] = ()
    """What is wrong with single runs."""
    stacks: Sequence[GrownStack] | None = None
    """The code whose memory at the RSS peak changed most; None unless both sides have stacks."""

    @property
    def warnings(self) -> list[str]:
        """What makes the figures hard to compare, as sentences."""
        differing_facts = []
        for setting in self.settings:
            if setting.name in self.base[0].facts:
                noun, of, rest = setting.name.partition(" of ")  # "hosts", "numbers of ranks"
                differing_facts.append(f"different {noun}s{of}{rest}: base {setting.base}; new {setting.new}")
        commands = ["different commands"] if any(setting.name == COMMAND for setting in self.settings) else []
        return [*differing_facts, *commands, *self.remarks]

    @property
    def is_of_groups(self) -> bool:
        """Whether a side has several runs."""
        return len(self.base) > 1 or len(self.new) > 1


def compared(base: Sequence[Run], new: Sequence[Run]) -> Comparison:
    """Return the comparison of two runs or groups.

    Raises NncfToolsError when they have no memory metric in common, or if neither has any, no other figure.
    """
    of_base, of_new = [run.figures for run in base], [run.figures for run in new]
    here, there = figures.recorded(of_base), figures.recorded(of_new)
    memory = {name for name in (*here, *there) if name.startswith(PEAK)}
    common = set(here) & set(there)
    if not (common & memory if memory else common - {DURATION}):
        recorded = f"{base[0].title} has {', '.join(here)}, {new[0].title} has {', '.join(there)}"
        raise NncfToolsError(f"no {'memory ' if memory else ''}metric in common, nothing to compare: {recorded}")
    operations = list(_compared_operations(base, new))
    both = [operation for operation in operations if operation.base_runs and operation.new_runs]
    calls = [(of.title, of.base_signatures, of.new_signatures) for of in both if kind_of(of.name) != _SAVING]
    stacks_of_base, stacks_of_new = ([run.stacks for run in runs if run.stacks is not None] for runs in (base, new))
    has_stacks = stacks_of_base and stacks_of_new
    return Comparison(
        base=base,
        new=new,
        figures=figures.differences(of_base, of_new),
        operations=operations,
        only_base=[figures.known_figure(name) for name in here if name not in there],
        only_new=[figures.known_figure(name) for name in there if name not in here],
        settings=list(differing(base, new, calls)),
        remarks=[f"{run.title} {remark}" for run in (*base, *new) for remark in run.remarks],
        stacks=grown(stacks_of_base, stacks_of_new, _MOST_STACKS) if has_stacks else None,
    )


def _compared_operations(base: Sequence[Run], new: Sequence[Run]) -> Iterator[ComparedOperation]:
    runs = [*base, *new]
    operations = matched([run.calls for run in runs])
    firsts = [next(runs[number].calls[name] for number, name in names.items()) for names in operations]
    unique = dict.fromkeys(unique_names(firsts))
    for unique_name, first, names in zip(unique, firsts, operations, strict=True):
        numbers = dict.fromkeys(name.removeprefix(first.name).strip(" ()") or "1" for name in names.values())
        is_one = f"{first.name} (2)" not in unique
        title = unique_name if is_one else f"{first.name} ({' → '.join(numbers)})"
        base_names = [item for item in names.items() if item[0] < len(base)]
        sides = base_names, [item for item in names.items() if item[0] >= len(base)]
        of_base, of_new = ([runs[number].operations[name] for number, name in side] for side in sides)
        every = (dict.fromkeys(runs[number].calls[name].signature for number, name in side) for side in sides)
        signatures = ([signature for signature in of_side if signature] for of_side in every)
        counts = len(of_base), len(of_new)
        yield ComparedOperation(unique_name, title, *counts, figures.differences(of_base, of_new), *signatures)


def longest_in_all(
    runs: Sequence[Run], most: int, typical: Callable[[list[float]], float]
) -> list[tuple[str, list[Values]]]:
    """Return the operations that all runs have, with their figures in each; the ``most`` longest, in their order.

    ``typical`` reduces the durations in all runs to one.
    """
    everywhere = [names for names in matched([run.calls for run in runs]) if len(names) == len(runs)]
    titles = unique_names(runs[0].calls[names[0]] for names in everywhere)
    values = [[runs[number].operations[name] for number, name in names.items()] for names in everywhere]
    every = list(zip(titles, values, strict=True))

    def duration_s(item: tuple[str, list[Values]]) -> float:
        return typical([of[DURATION].low for of in item[1] if DURATION in of] or [0.0])

    kept = {title for title, _ in sorted(every, key=duration_s, reverse=True)[:most]}
    return [item for item in every if item[0] in kept]
