"""What two runs, or two groups of repeated runs, cost beside each other."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from nncftools.analysis.summary import cpu_s
from nncftools.errors import NncfToolsError
from nncftools.metrics import MEMORY_METRICS, METRICS
from nncftools.session.samples import TIME, Samples
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from nncftools.session.model import Session
    from nncftools.session.phases import Phase

SIGNIFICANT = 0.05
"""From here down, a p says that the difference exceeds the spread."""
_PEAK = "peak_"
_IO = {
    "read_bytes": "Storage read",
    "write_bytes": "Storage written",
    "read_chars": "Calls read",
    "write_chars": "Calls written",
}


@dataclass(frozen=True)
class Figure:
    """What is compared: its name in a gate, what a reader sees, and its unit (``"B"`` or ``"s"``)."""

    name: str
    label: str
    unit: str


FIGURES = {
    figure.name: figure
    for figure in (
        *(Figure(_PEAK + name, f"Peak {METRICS[name].label}", "B") for name in MEMORY_METRICS),
        Figure("duration", "Duration", "s"),
        Figure("cpu", "CPU time", "s"),
        *(Figure(name, label, "B") for name, label in _IO.items()),
    )
}
"""In the order in which they are shown."""


@dataclass(frozen=True)
class Value:
    """One figure of one run, in bytes or seconds."""

    low: float
    """The figure; of a peak the lower end of its bracket."""
    high: float | None = None
    """The upper end of the bracket; None when there is none, or it is unknown."""


Values = dict[str, Value]


def unit_for(size: float) -> MemoryUnit:
    """Return the binary unit in which ``size`` bytes are a number of at least one."""
    units = (MemoryUnit.GiB, MemoryUnit.MiB, MemoryUnit.KiB)
    return next((unit for unit in units if size >= unit.factor), MemoryUnit.B)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a comparison needs of a session."""

    title: str
    command: str
    facts: Mapping[str, str]
    """What should be equal for figures to be comparable, by its name in the plural: hosts, intervals."""
    remarks: Sequence[str]
    """What is wrong with this run alone."""
    figures: Values
    operations: Mapping[str, Values]
    """By name, in the order of their starts; the second of one name is called ``NAME (2)``."""
    deeper: frozenset[str] = frozenset()
    """Names of operations inside of those, which are not compared."""


def measured(session: Session, title: str, depth: int = 1) -> Run:
    """Return the figures of a session, with the operations of its outer ``depth`` levels.

    ``title`` names it in messages. Raises NncfToolsError for a session without samples.
    """
    if not len(session.samples):
        raise NncfToolsError(f"{title}: holds no samples: there is nothing to compare")
    phases = session.phases
    shown = [place for place, phase in enumerate(phases) if phase.depth < depth]
    peaks = {name: _phase_peaks(session, name) for name in _memory(session)} if shown else {}
    names = _names(phases[place] for place in shown)
    return Run(
        title=title,
        command=shlex.join(session.command) or session.name,
        facts=_facts(session),
        remarks=list(_remarks(session)),
        figures=_figures(session),
        operations={
            name: _known(
                {
                    **{_PEAK + metric: of[place] for metric, of in peaks.items()},
                    "duration": phases[place].duration_s,
                    "cpu": phases[place].cpu_s,
                    **{counter: getattr(phases[place], counter) for counter in _IO},
                }
            )
            for name, place in zip(names, shown, strict=True)
        },
        deeper=frozenset(phase.name for phase in phases if phase.depth >= depth) - set(names),
    )


def _memory(session: Session) -> list[str]:
    return [name for name in session.samples.metrics if name in MEMORY_METRICS]


def _figures(session: Session) -> Values:
    peaks = {
        _PEAK + name: Value(peak.low, peak.high)
        for name, peak in session.peaks.items()
        if name in MEMORY_METRICS and peak.low is not None and not session.from_zero
    }
    others = {"duration": session.duration_s, "cpu": cpu_s(session), **{name: session.totals.get(name) for name in _IO}}
    found = {**peaks, **_known(others)}
    return {name: found[name] for name in FIGURES if name in found}


def _known(figures: Mapping[str, float | None]) -> Values:
    return {name: Value(value) for name, value in figures.items() if value is not None}


def _phase_peaks(session: Session, metric: str) -> list[float | None]:
    """Return the largest sample of a memory metric in each operation; phases tell that of RSS, so it stands there."""
    columns = Samples({TIME: session.samples.time_s, "rss": session.samples[metric]})
    return [phase.rss_peak for phase in msgspec.structs.replace(session, samples=columns).phases]


def _names(phases: Iterable[Phase]) -> list[str]:
    """Return a name for each operation that no other has."""
    numbers: dict[str, int] = {}
    names: dict[str, None] = {}
    for phase in phases:
        name = phase.name
        while name in names:
            numbers[phase.name] = numbers.get(phase.name, 1) + 1
            name = f"{phase.name} ({numbers[phase.name]})"
        names[name] = None
    return list(names)


def _facts(session: Session) -> dict[str, str]:
    host, facts = session.host, session.sampler
    cores = "" if host.cpus is None else f" ({host.cpus} cores)"
    return {
        "hosts": f"{host.name or 'unknown'}{cores}",
        "intervals": "unknown" if facts.interval_s is None else f"{facts.interval_s:g} s",
        "tool versions": session.tool_version or "unknown",
        "sources of figures": facts.source or "unknown",
        "numbers of ranks": f"{len(session.ranks) or 1}",
    }


def _remarks(session: Session) -> Iterator[str]:
    if session.finished is False:
        yield "is unfinished: its figures are those up to then"
    if session.exit is not None and session.exit.signal is not None:
        yield f"was killed by signal {session.exit.signal}"
    elif session.exit is not None and session.exit.code:
        yield f"ended with exit status {session.exit.code}"
    if len(session.samples) == 1:
        yield "has one sample: what it held at other moments is not known"


@dataclass(frozen=True)
class Side:
    """One figure of one run or group."""

    values: Sequence[float]
    """One for each run in which the figure is known."""
    high: float | None = None
    """The median of the upper ends of the brackets; None when one is unknown."""

    @property
    def median(self) -> float:
        """The median of the runs; of one run its value."""
        return median(self.values)


@dataclass(frozen=True)
class Difference:
    """One figure on both sides."""

    figure: Figure
    base: Side
    new: Side
    p: float | None = None
    """How likely ranks at least as uneven are by chance (exact Mann-Whitney test); None for one run each."""

    @property
    def change(self) -> float:
        """How much more it is in ``new``, by medians."""
        return self.new.median - self.base.median

    @property
    def percent(self) -> float | None:
        """The change in per cent of ``base``; None when that is zero."""
        return self.change / self.base.median * 100 if self.base.median else None

    @property
    def is_within_brackets(self) -> bool:
        """Whether the brackets overlap, so that it is not certain that the real peaks differ."""
        base, new = self.base, self.new
        if base.high is None or new.high is None or not self.change:
            return False
        return max(base.median, new.median) <= min(base.high, new.high)

    @property
    def exceeds_spread(self) -> bool | None:
        """Whether the difference is more than the spread of the runs lets expect; None for one run each."""
        return None if self.p is None else self.p <= SIGNIFICANT


@dataclass(frozen=True)
class Operation:
    """One operation in the runs that have it; no ``differences`` when one side has none."""

    name: str
    base_runs: int
    new_runs: int
    differences: Mapping[str, Difference]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs or groups beside each other."""

    base: Sequence[Run]
    new: Sequence[Run]
    figures: Mapping[str, Difference]
    """Of the whole run, by name."""
    operations: Sequence[Operation]
    """In the order of ``base``, then those that only ``new`` has."""
    only_base: Sequence[Figure] = ()
    only_new: Sequence[Figure] = ()
    warnings: Sequence[str] = field(default_factory=list)

    @property
    def is_of_groups(self) -> bool:
        """Whether a side has several runs."""
        return len(self.base) > 1 or len(self.new) > 1


def compared(base: Sequence[Run], new: Sequence[Run]) -> Comparison:
    """Return two runs or groups beside each other.

    Raises NncfToolsError when they have no memory metric in common, or without any memory nothing else.
    """
    of_base, of_new = [run.figures for run in base], [run.figures for run in new]
    here, there = _recorded(of_base), _recorded(of_new)
    _check_common(base[0].title, here, new[0].title, there)
    operations = dict.fromkeys(name for run in (*base, *new) for name in run.operations)
    return Comparison(
        base=base,
        new=new,
        figures=_differences(of_base, of_new),
        operations=[_operation(name, base, new) for name in operations],
        only_base=[FIGURES[name] for name in here if name not in there],
        only_new=[FIGURES[name] for name in there if name not in here],
        warnings=list(_warnings(base, new)),
    )


def _recorded(figures: Iterable[Values]) -> list[str]:
    held = {name for of in figures for name in of}
    return [name for name in FIGURES if name in held]


def _check_common(base: str, here: Sequence[str], new: str, there: Sequence[str]) -> None:
    memory = {name for name in (*here, *there) if name.startswith(_PEAK)}
    common = (set(here) & set(there) & memory) if memory else (set(here) & set(there)) - {"duration"}
    if not common:
        found = f"{base} has {', '.join(here)}, {new} has {', '.join(there)}"
        raise NncfToolsError(f"no {'memory ' if memory else ''}metric in common, nothing to compare: {found}")


def _operation(name: str, base: Sequence[Run], new: Sequence[Run]) -> Operation:
    of_base = [run.operations[name] for run in base if name in run.operations]
    of_new = [run.operations[name] for run in new if name in run.operations]
    return Operation(name, len(of_base), len(of_new), _differences(of_base, of_new))


def _differences(base: Sequence[Values], new: Sequence[Values]) -> dict[str, Difference]:
    found = {}
    for name, figure in FIGURES.items():
        of_base = [values[name] for values in base if name in values]
        of_new = [values[name] for values in new if name in values]
        if of_base and of_new:
            found[name] = _difference(figure, _side(of_base), _side(of_new))
    return found


def _side(values: Sequence[Value]) -> Side:
    highs = [value.high for value in values if value.high is not None]
    return Side([value.low for value in values], median(highs) if len(highs) == len(values) else None)


def _difference(figure: Figure, base: Side, new: Side) -> Difference:
    if len(base.values) == len(new.values) == 1:
        return Difference(figure, base, new)
    from nncftools.analysis.mann_whitney import p_value  # numpy: 70 ms that two single runs need not pay

    return Difference(figure, base, new, p_value(base.values, new.values))


def _warnings(base: Sequence[Run], new: Sequence[Run]) -> Iterator[str]:
    for fact in base[0].facts:
        of_base, of_new = (list(dict.fromkeys(run.facts[fact] for run in runs)) for runs in (base, new))
        if len({*of_base, *of_new}) > 1:
            yield f"different {fact}: base {', '.join(of_base)}; new {', '.join(of_new)}"
    if len({run.command for run in (*base, *new)}) > 1:
        yield "different commands"
    for run in (*base, *new):
        for remark in run.remarks:
            yield f"{run.title} {remark}"
