"""Compares what a session says with the truth: one function for each rule, which returns whether an answer is right."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.truth.random_programs.envelope import Interval
    from benchmarks.truth.random_programs.truth import Headline, Operation, Truth
    from nncftools import Session
    from nncftools.analysis.operation import Operation as Said
    from nncftools.analysis.operation import PeakPlace
    from nncftools.analysis.peaks import Bracket, Figures

_MIB = 2**20
_CLOSE, _CLOSE_BYTES = 0.02, 3 * _MIB
"""A figure without a ``≈`` is as close to the truth as this share of it, or this size."""
_PEAK, _PEAK_BYTES = 0.01, 2 * _MIB
"""The bracket of a peak may miss it by this much."""
_TIGHT, _TIGHT_BYTES = 0.1, 6 * _MIB
"""A tight bracket has both ends this close to the peak."""
_CLOCK_NS = 1000
"""What a time loses as a floating-point number of seconds."""
_SAME = _MIB / 2
"""By this much, figures of one operation may contradict each other."""

FIGURES = ("start", "end", "change")
ESTIMATES = tuple(f"{figure} ≈" for figure in FIGURES)
HOLDS, TOGETHER, MISSING, RUN, HEADLINE = "peak", "together", "missing", "run's peak", "headline"
RULES = (*FIGURES, HOLDS, TOGETHER, MISSING, RUN, HEADLINE)
TIGHT, DECIDED = "tight", "decided"
SHARES = (*ESTIMATES, TIGHT, DECIDED)
"""Of these, not every answer must be right: estimates, tight brackets, headlines that name one operation."""


class Answer(NamedTuple):
    """What came of one rule for one operation, or for the run."""

    rule: str
    is_right: bool
    operation: str
    said: str
    truth: str


def judge(session: Session, truth: Truth) -> list[Answer]:
    """Return the answers to everything that is asked of a session."""
    zero_ns = session.start.monotonic_ns or 0
    said = {operation.name: operation for operation in session.operations}
    surplus = Counter(operation.name for operation in session.operations)
    surplus.subtract(operation.name for operation in truth.operations)
    answers = [
        Answer(MISSING, is_right=False, operation=name, said="an operation", truth="none")
        for name in surplus.elements()
        if name not in truth.optional
    ]
    for operation in truth.operations:
        one = said.get(operation.name)
        is_there = one is not None and is_its_time(one, operation, zero_ns)
        answers.append(Answer(MISSING, is_there, operation.name, _time(one), _times(operation, zero_ns)))
        if one is not None:
            answers += _of_operation(one.of("rss"), operation)
    peak = session.peaks.get("rss")
    is_held = peak is not None and holds_peak(peak.low, peak.high, truth.peak)
    text = "unknown" if peak is None else _bracket(peak.low, peak.high)
    answers.append(Answer(RUN, is_held, "", text, _interval(truth.peak)))
    place = session.peak_place
    said_of = _Headline.of(place)
    is_right = place is not None and is_headline(said_of, truth.headline)
    names = " or ".join(sorted(name or "none" for name in truth.headline.names))
    is_decided = not (said_of.either or said_of.rivals)
    text = said_of.text()
    return [*answers, Answer(HEADLINE, is_right, "", text, names), Answer(DECIDED, is_decided, "", text, names)]


class _Headline(NamedTuple):
    """What a session says of the operation of its peak."""

    path: Sequence[str] = ()
    either: Sequence[str] = ()
    rivals: Sequence[str] = ()
    is_covered: bool = True
    """Whether ``either`` leaves no time between the two moments of the peak."""

    @classmethod
    def of(cls, place: PeakPlace | None) -> _Headline:
        """Return it as names."""
        if place is None:
            return cls()
        until_s = place.from_s
        for one in place.either:
            until_s = max(until_s, one.end_s) if one.start_s <= until_s else until_s
        path, either, rivals = ([one.name for one in some] for some in (place.path, place.either, place.rivals))
        outside = [""] if place.may_be_outside else []
        return cls(path, either, [*rivals, *outside], until_s >= place.to_s)

    def text(self) -> str:
        """Return it in words."""
        either = [*self.either, *([] if self.is_covered or self.path else ["none"])]
        text = " › ".join(filter(None, [*self.path, " or ".join(either)])) or "none"
        return " or ".join([text, *(name or "none" for name in self.rivals)])


def _of_operation(said: Figures, truth: Operation) -> Iterator[Answer]:
    ends = [("start", said.start, said.start_is_estimate, truth.start, 0.0)]
    if truth.end is not None:
        larger = max(truth.start.high, truth.end.high)
        ends.append(("end", said.end, said.end_is_estimate, truth.end, 0.0))
        ends.append(("change", said.delta, said.delta_is_estimate, truth.end - truth.start, larger))
    for figure, size, is_estimate, interval, of in ends:
        rule = f"{figure} ≈" if is_estimate else figure
        yield Answer(rule, is_close(size, interval, of), truth.name, _size(size), _interval(interval))
    peak = said.peak
    text, interval = "unknown" if peak is None else _bracket(peak.low, peak.high), truth.peak
    is_held = peak is not None and holds_peak(peak.low, peak.high, interval)
    yield Answer(HOLDS, is_held, truth.name, text, _interval(interval))
    if truth.end is not None:
        yield Answer(TIGHT, peak is not None and is_tight(peak, interval), truth.name, text, _interval(interval))
    figures = f"start {_size(said.start)}, end {_size(said.end)}, peak {text}"
    yield Answer(TOGETHER, agree(said), truth.name, figures, "start and end within the peak")


def is_its_time(said: Said, truth: Operation, zero_ns: int) -> bool:
    """Return whether an operation begins and ends when its marks were made."""
    ends = [(said.start_s, truth.start_ns), (said.end_s, truth.end_ns)]
    return all(
        times is None or times[0] - _CLOCK_NS <= zero_ns + at_s * 1e9 <= times[1] + _CLOCK_NS for at_s, times in ends
    )


def is_close(figure: float | None, truth: Interval, of: float = 0.0) -> bool:
    """Return whether a figure is right; ``of`` is the size of which a share is tolerated."""
    if figure is None:
        return False
    return abs(truth.distance(figure)) <= max(_CLOSE_BYTES, _CLOSE * max(of, abs(truth.high)))


def holds_peak(low: float | None, high: float | None, truth: Interval) -> bool:
    """Return whether a bracket has something in common with what the peak can be."""
    if low is None:
        return False
    return low <= truth.high + _of_peak(truth.high) and (high is None or high >= truth.low - _of_peak(truth.low))


def _of_peak(size: float) -> float:
    return max(_PEAK_BYTES, _PEAK * size)


def is_tight(bracket: Bracket, truth: Interval) -> bool:
    """Return whether both ends of a bracket are close to the peak."""
    if bracket.high is None:
        return False
    near = max(_TIGHT_BYTES, _TIGHT * truth.high)
    return bracket.low >= truth.low - near and bracket.high <= truth.high + near


def agree(said: Figures) -> bool:
    """Return whether the peak is not below start and end, as far as these are no estimates."""
    figures = ((said.start, said.start_is_estimate), (said.end, said.end_is_estimate))
    least = max((figure for figure, is_estimate in figures if figure is not None and not is_estimate), default=0.0)
    peak = said.peak
    return peak is None or (peak.low >= least - _SAME and (peak.high is None or peak.high >= least - _SAME))


def is_headline(said: _Headline, truth: Headline) -> bool:
    """Return whether the operation of the peak is named, with operations around it that were open.

    Several that are named together are right if one of them is.
    """
    if not truth.names.isdisjoint(said.rivals):
        return True
    around = said.path if said.either else said.path[:-1]
    if not truth.open.issuperset(around):
        return False
    outside = said.path[-1:] or [""]
    leaves = [*said.either, *([] if said.is_covered and said.either else outside)]
    return not truth.names.isdisjoint(leaves)


def _time(said: Said | None) -> str:
    return "none" if said is None else f"{said.start_s:.6f} to {said.end_s:.6f} s"


def _times(operation: Operation, zero_ns: int) -> str:
    begun, ended = (
        None if times is None else (times[0] - zero_ns) / 1e9 for times in (operation.start_ns, operation.end_ns)
    )
    return f"{begun:.6f} to {'?' if ended is None else f'{ended:.6f}'} s"


def _size(figure: float | None) -> str:
    return "unknown" if figure is None else f"{figure / _MIB:.1f}"


def _bracket(low: float | None, high: float | None) -> str:
    return f"{_size(low)} to {'?' if high is None else _size(high)}"


def _interval(truth: Interval) -> str:
    return _size(truth.low) if truth.high - truth.low < _MIB / 10 else f"{_size(truth.low)} to {_size(truth.high)}"
