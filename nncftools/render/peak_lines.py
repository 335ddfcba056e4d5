"""What outputs draw and say of the peak: memory over time, the limit, the lines under the headline, the verdict.

Every picture takes its points from here, so that none shows another peak. The lines say which share of the limit the
peak was, what ran, and which code held the memory; the verdict says why a run died. Both are headings and texts, which
each output writes in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nncftools.analysis.session import Session
from nncftools.analysis.summary import is_between_samples, level
from nncftools.limits.judges import verdict
from nncftools.limits.needs import MACHINE, Effective, effective_limit
from nncftools.limits.verdict import Verdict
from nncftools.metrics import DEVICE_ALLOCATED, name_of
from nncftools.render.sentences import span_text, where_text
from nncftools.render.view import View, label
from nncftools.session.model import UNKNOWN_PEAK
from nncftools.units import MemoryUnit, brief_size, printable, seconds_text, shortened

if TYPE_CHECKING:
    from nncftools.analysis.summary import Floats

_NEAR = 0.5
"""A larger part of a limit is near it."""
_FILE, _OPERATION, _NAME = 80, 70, 32
"""Lengths of texts, in characters."""


class MemoryLine(NamedTuple):
    """Seconds, and sizes in the view's unit, above the first sample if the view asks for that; NaN breaks the line."""

    time_s: Floats
    sizes: Floats
    is_sparse: bool
    """Whether fewer than half of the samples contain the metric."""
    peak: tuple[float, float]
    """The time of the peak, and its size; at an unknown time, the largest sample."""
    peak_size: float
    """The size of the peak, whether its time is known or not."""
    span_s: tuple[float, float] | None
    """Between these moments memory rose to the peak; None for unknown."""
    mark: tuple[float, float] | None
    """The same if the peak is a high-water mark above the line."""
    peak_text: str
    """``"RSS peak 300.0 MiB at 0.500 s"``."""


def memory_line(session: Session, view: View, name: str, points: int = 2000, *, gaps: bool = True) -> MemoryLine | None:
    """Return a metric as a line of at most ``points`` points; None when no sample contains it."""
    samples = session.samples
    if name not in samples or not (figures := samples.figures(name)).known:
        return None
    import numpy as np  # 120 ms of CPU that a report in text can do without

    from nncftools.analysis.summary import decimated_with_gaps

    values = np.asarray(samples[name])
    zero = float(values[~np.isnan(values)][0]) if view.from_zero else 0.0
    spacing_s = session.sampler.spacing_s if gaps else None
    time_s, sizes = decimated_with_gaps(samples.time_s, values, spacing_s, points)
    of = level(session, name)
    size = (figures.highest if of.peak is None else of.peak) - zero
    text = f"{label(name)} peak {view.unit.label(size)}"
    if of.span_s is None:
        point = samples.time_s[int(np.nanargmax(values))], figures.highest - zero
        text += " at an unknown moment"
    else:
        point = sum(of.span_s) / 2, size
        text += f" at {span_text(of.span_s)}"
    is_mark = is_between_samples(session.peaks.get(name, UNKNOWN_PEAK))
    return MemoryLine(
        time_s,
        (sizes - zero) / view.unit.factor,
        figures.known < len(values) / 2,
        (point[0], point[1] / view.unit.factor),
        size / view.unit.factor,
        of.span_s,
        of.span_s if is_mark else None,
        f"{text} ({'torch' if name_of(name) == DEVICE_ALLOCATED else 'kernel'}'s high-water mark)" if is_mark else text,
    )


class DrawnLimit(NamedTuple):
    """A limit as a line in a picture."""

    size: float
    """In the view's unit."""
    name: str
    size_text: str

    @property
    def label(self) -> str:
        """Name and size in two lines."""
        return f"{self.name}\n{self.size_text}"


def limit_text(session: Session) -> str | None:
    """Return which part of its limit a run held at its peak: ``95 % of 8 GiB (control group, set by FILE)``.

    All memory of the machine is a limit only for a run that held more than half of it. None when there is no limit.
    """
    limit, peak = _limit_and_peak(session)
    if limit is None or (limit.kind == MACHINE and peak <= limit.size * _NEAR):
        return None
    by = f", set by {shortened(printable(limit.set_by), _FILE)}" if limit.set_by else ""
    of = "all of the machine" if limit.kind == MACHINE else limit.kind
    return f"{limit.share_text(peak)} of {brief_size(limit.size)} ({of}{by})"


def drawn_limit(session: Session, view: View) -> DrawnLimit | None:
    """Return the limit, if the view shows RSS and it came near: an axis with any other limit would hide the data."""
    limit, peak = _limit_and_peak(session)
    if limit is None or peak <= limit.size * _NEAR or view.from_zero or "rss" not in view.metrics:
        return None
    return DrawnLimit(view.unit.of(limit.size), limit.name, brief_size(limit.size))


def _limit_and_peak(session: Session) -> tuple[Effective | None, int]:
    """Return the limit and the RSS peak in bytes; no limit where either is unknown."""
    low = session.rss_peak.low
    if low is None or session.from_zero:
        return None, 0
    return effective_limit(session), low


def peak_label(session: Session, unit: MemoryUnit) -> str:
    """Return ``during Export · 404 MiB in convert.py:893 export``; empty when neither is known."""
    where = shortened(where_text(session), _OPERATION)
    if session.snapshots is None:
        return where
    from nncftools.render.answer import largest_holder  # a run without stacks does without it

    return " · ".join(filter(None, (where, largest_holder(session, unit))))


def peak_lines(session: Session, unit: MemoryUnit) -> list[tuple[str, str]]:
    """Return headings and texts about the peak of RSS; only the limit, if the session was recorded without stacks."""
    limit = limit_text(session)
    lines = [] if limit is None else [("limit", limit)]
    if session.snapshots is None:
        return lines
    from nncftools.render.stacks import lines_of_peak

    return [*lines, *lines_of_peak(session, unit)]


def as_sentences(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Return each heading with its text."""
    return [f"{heading}: {text}" for heading, text in lines]


def verdict_lines(session: Session, unit: MemoryUnit) -> list[tuple[str, str]]:
    """Return headings and texts, the conclusion first; empty when nothing died."""
    if (judged := verdict(session, unit)) is None:
        return []
    return [("Verdict", headline(judged)), *_details(judged, unit)]


def headline(judged: Verdict) -> str:
    """Return the conclusion as a sentence, and how sure it is."""
    text = judged.text
    if text.startswith(("the ", "a ")):
        text = text[0].upper() + text[1:]
    return f"{text}. ({judged.certainty})"


def _details(judged: Verdict, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    state = judged.state
    if state.at_s is not None:
        growth = "" if state.growth_per_s is None else f", growing by {unit.brief(state.growth_per_s)} {unit}/s"
        share = _share(judged, state.rss, unit)
        yield "held", f"RSS {unit.brief(state.rss)} {unit} at {seconds_text(state.at_s)}{growth}{share}"
    largest = []
    for process in state.largest:
        name = shortened(printable(process.name), _NAME) or "a process"
        largest.append(f"{name} (pid {process.pid}) {unit.brief(process.most_memory)} {unit}")
    for heading, text in (
        ("largest", ", ".join(largest)),
        ("during", state.operation),
        ("running", printable(state.running)),
        ("evidence", "; ".join(map(printable, judged.evidence))),
        ("not", "; ".join(text.removeprefix("not ") for text in judged.is_not)),
    ):
        if text:
            yield heading, text


def _share(judged: Verdict, rss: int, unit: MemoryUnit) -> str:
    if (limit := judged.limit) is None:
        return ""
    whose = "of the machine" if limit.kind == MACHINE else f"({limit.kind})"
    return f"; {limit.share_text(rss)} of {unit.brief(limit.size)} {unit} {whose}"
