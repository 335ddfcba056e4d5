"""The figures of a session, to compare with those that an output says.

``Known`` walks the session, and calls every public function of ``nncftools.analysis`` and ``nncftools.limits`` that
needs nothing but a session. So what an output computes by itself is unknown here. ``said`` finds figures in a text by
their units and decimals, ``numbers`` all of a document.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import nncftools.analysis
import nncftools.limits
from nncftools import metrics
from nncftools.analysis.build_up import NOT_SEEN, PROGRAM, SEEN, SHARED, at_end, held_at_end, of_peak
from nncftools.analysis.frames import holders, tree_of
from nncftools.analysis.peaks import RATE_WINDOW_S
from nncftools.analysis.rss_levels import kinds_near
from nncftools.analysis.session import find_unmarked
from nncftools.analysis.summary import highest_rate, summarize_level
from nncftools.errors import NncfToolsError
from nncftools.render.listing import list_operations
from nncftools.render.stacks import percents
from nncftools.render.terminal_chart import choose_rates
from nncftools.session.samples import Samples

if TYPE_CHECKING:
    from nncftools.analysis.session import Session

_ALL_LEVELS = 99
_ROWS = (1, 2, 3, 4, 20)
"""How many rows outputs have about who held the peak: the rest, which is a row, too, depends on it."""
_OVER_TIME = {"samples", "series", "snapshots"}
"""Fields that hold what was measured over time, not figures of the run."""
_FACTORS = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "s": 1, "min": 60, "cores": 1, "%": 1, "": 1}
_FIGURE = re.compile(
    r"(?<![\w./:#-])[+-]?(?P<number>\d[\d,]*(?:\.\d+)?)(?:–(?P<to>\d[\d,]*(?:\.\d+)?))?"
    r"(?:\s?(?P<unit>[KMG]iB|[KMGB](?=/s)|B\b|min\b|s\b|cores\b|%))?(?![\w.:-])"
)
_NO_FIGURES = re.compile(
    r"\d{4}-\d\d-\d\d[ T][\d:.]+(?: UTC|Z|[+]\d\d:\d\d)|\b\d?\d(?::\d\d)+\b|\S*/\S+|^.*┤.*$|^[│ ]*0:00 .*$",
    re.MULTILINE,
)
"""Moments of a day, paths, and axes of charts."""


class Figure(NamedTuple):
    """A number that an output says, in bytes, seconds, cores or per cent."""

    value: float
    within: float
    """Half of its last digit."""
    unit: str = ""
    text: str = ""


def said(text: str) -> Iterator[Figure]:
    """Yield the figures of a text: numbers with a unit or with decimals."""
    for found in _FIGURE.finditer(_NO_FIGURES.sub(" ", text)):
        unit = found["unit"] or ""
        for number in filter(None, (found["number"], found["to"])):
            if unit or "." in number:
                yield figure(number, unit, found[0])


def figure(number: str, unit: str = "", text: str = "") -> Figure:
    """Return a number as it is written, with its unit."""
    factor = _FACTORS[unit.removesuffix("iB")]
    within = 0.5 * 10 ** -len(number.partition(".")[2])
    return Figure(float(number.replace(",", "")) * factor, within * factor, unit, text or number)


class Known:
    """The figures of a session."""

    def __init__(self, session: Session) -> None:
        self._every = sorted({abs(float(number)) for number in _figures(session)})
        self._per_cent = sorted(_shares(session))

    def unknown(self, figures: Iterable[Figure]) -> list[str]:
        """Return the texts of figures that are none of the session's, to the precision in which they are written."""
        return [figure.text for figure in figures if not self._has(figure)]

    def _has(self, figure: Figure) -> bool:
        """Return whether the session has a figure; without a unit, it may be memory in MiB."""
        if figure.unit == "%":
            return is_among(figure, self._per_cent)
        mib = _FACTORS["M"]
        return is_among(figure, self._every) or (
            not figure.unit and is_among(Figure(figure.value * mib, figure.within * mib), self._every)
        )


def is_among(figure: Figure, every: list[float]) -> bool:
    """Return whether one of the sorted values would be written as this figure, apart from its sign."""
    value, within = abs(figure.value), figure.within * 1.001
    place = bisect_left(every, value - within)
    return place < len(every) and every[place] <= value + within


def _figures(session: Session) -> Iterator[float]:
    yield from numbers(session)
    yield from (RATE_WINDOW_S, len(session.processes), len(session.samples), 0)
    yield from numbers(
        [session.operations, list_operations(session.operations, _ALL_LEVELS), find_unmarked(session, 0.0)]
    )
    for name in metrics.memory_of(session.samples.metrics):
        of = summarize_level(session, name)
        yield from numbers([of, of.from_zero()])
        if name == "system":
            yield (session.host.memory or 0) - (of.final or 0)
    for rate in choose_rates(session.samples):
        yield from numbers(highest_rate(session, rate.counters))
    for function in _functions_of_a_session():
        try:
            yield from numbers(function(session))
        except (NncfToolsError, AttributeError):  # it needs more: a start time, or the ranks of a job
            continue
    built_up = of_peak(session)
    if built_up is not None and session.snapshots is not None:
        for most in _ROWS:
            for row in holders(built_up, session, most):
                yield from (row.size, row.certain, *(size for _, size in row.parts))
        yield from numbers(kinds_near(session, built_up.at_s, built_up.size))
        yield from (built_up.sum_of(part.kind) for part in built_up.parts)
        yield tree_of(built_up).certain
    held_at_the_end = at_end(session)
    if held_at_the_end is not None:
        yield from (row.size for row in holders(held_at_the_end, session))


def _functions_of_a_session() -> Iterator[Callable[[Session], object]]:
    for package in (nncftools.analysis, nncftools.limits):
        for found in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{found.name}")
            for name, function in inspect.getmembers(module, inspect.isfunction):
                needed = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
                if not name.startswith("_") and [one.name for one in needed] == ["session"]:
                    yield function


def numbers(of: object, seen: dict[int, object] | None = None) -> Iterator[float]:
    """Yield every number in an object, its fields and its properties."""
    seen = {} if seen is None else seen
    if isinstance(of, int | float) and not isinstance(of, bool):
        yield of
    if of is None or isinstance(of, int | float | str | bytes | Samples) or id(of) in seen:
        return
    seen[id(of)] = of  # kept, so that no other object has its id
    if isinstance(of, Iterable):
        for value in of.values() if isinstance(of, Mapping) else of:
            yield from numbers(value, seen)
    fields = getattr(of, "__struct_fields__", None) or getattr(of, "__dict__", ())
    properties = [name for name, value in inspect.getmembers(type(of)) if isinstance(value, property)]
    for name in {*fields, *properties} - _OVER_TIME:
        if not name.startswith("_"):
            yield from numbers(getattr(of, name), seen)


def _shares(session: Session) -> Iterator[float]:
    """Yield the parts of a whole that outputs write in per cent."""
    yield 0.0
    built_up = of_peak(session)
    if built_up is not None:
        certain = tree_of(built_up).certain
        yield from percents([built_up.sum_of(*kinds) for kinds in ((SEEN, PROGRAM), (SHARED,), (NOT_SEEN,))])
        yield from percents([certain, built_up.size - certain])
        yield 100 * (held_at_end(session) or 0) / built_up.size
    for operation in list_operations(session.operations, _ALL_LEVELS):
        yield 100 * operation.duration_s / session.duration_s
