"""The texts about the peak for all outputs: headline, code that held the memory, limit, and why the command died.

Pictures take the memory curve and the peak from here, so that all outputs show the same peak. Most texts are pairs of
heading and text; each output formats the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nncftools.analysis import summary
from nncftools.analysis.session import Session
from nncftools.limits.judges import verdict
from nncftools.limits.needs import MACHINE, Effective, effective_limit, needs, was_running
from nncftools.limits.verdict import Verdict
from nncftools.metrics import DEVICE_ALLOCATED, OF_DEVICES, name_of
from nncftools.render.sentences import brief_where_text, span_text, where_text
from nncftools.render.view import SEPARATOR, View, brief_label, clip, label
from nncftools.session.model import UNKNOWN_PEAK
from nncftools.units import MemoryUnit, brief_seconds, brief_size, printable, seconds_text, shortened

if TYPE_CHECKING:
    from nncftools.analysis.frames import Holder
    from nncftools.analysis.summary import Floats

_NAME = 60
"""Longest name of a run, in characters; the next five constants limit other texts."""
_SOURCE = 60
_PART = 30
_FILE = 80
_OPERATION = 70
_PROCESS = 32
_NAMED = 0.01
"""A row about memory that no line of code holds, such as imports, lists the packages that hold the memory. Packages
below this share of the peak are not listed."""
_MOST_PARTS = 4
_MOST_HOLDERS = 4
_IF_NAMED = {"anon", "file", "shmem", "swap", "system"}
"""Metrics whose peaks are shown only if the user names them: parts of RSS, and memory of the whole machine."""
_PYTHON = "python"
"""The package name of Python and its standard library. A list of packages by memory does not contain this name."""
_NEAR = 0.5
"""RSS is near a limit if the peak is above this share of the limit."""


def write_headline(session: Session, view: View) -> str:
    """Return the name of the run, peak, time and operation: ``export: Peak memory 254 MiB, 1.7 s after the start``."""
    name = view.title or session.name
    title = f"{clip(name, _NAME)}: " if name else ""
    return f"{title}{write_peak(session, view)}"


def write_peak(session: Session, view: View) -> str:
    """Return peak, time and operation: ``Peak memory 254 MiB, 1.7 s after the start, during Export``."""
    name = "rss" if "rss" in view.metrics else next(iter(view.metrics), "rss")
    peak = session.peaks.get(name, UNKNOWN_PEAK)
    if peak.low is None:
        return "Peak memory unknown"
    size = float(peak.low)
    if view.from_zero and name in session.samples:
        size -= summary.summarize_level(session, name).first or 0.0
    metric = "memory" if name == "rss" else label(name)
    texts = [f"Peak {metric} {brief_label(size, view.unit)}{view.above}"]
    if name == "rss" and not view.from_zero:
        shared = _write_shared_peak(session, view.unit)
        texts = [f"Peak memory {shared}"] if shared else texts
    span_s = peak.span_s
    texts.append("at an unknown time" if span_s is None else f"{brief_seconds(sum(span_s) / 2)} after the start")
    if name == "rss":
        texts.append(brief_where_text(session))
    return ", ".join(filter(None, texts))


def _write_shared_peak(session: Session, unit: MemoryUnit) -> str:
    """Return the peak of several ranks, or of several processes that share pages; else an empty text.

    The text begins with PSS if PSS at the peak is known.
    """
    low = session.rss_peak.low or 0
    if len(session.ranks) > 1:
        return f"{brief_label(low, unit)} (sum of {len(session.ranks)} ranks)"
    count = len(summary.processes_at_peak(session)) if summary.forked_copies(session) else 0
    if count < 2:  # noqa: PLR2004 — one process shares nothing
        return ""
    near = summary.pss_near_peak(session)
    if near is not None and near.is_at_peak:
        rss = f"RSS of {count} processes: {unit.brief(low)}"
        return f"{brief_label(near.pss, unit)} (PSS; {rss}, shared pages counted in each)"
    return f"{brief_label(low, unit)} (RSS of {count} processes; pages that they share are counted in each)"


class HolderRow(NamedTuple):
    """A row about a part of the memory at the peak, such as a line of code or the imported packages."""

    size: str
    """The size, after a ``~`` if most of the size is not certain."""
    label: str
    text: str
    """The line of source code. If the row is not about code, the parts of its memory: ``(torch 80 MiB, numpy 9 MiB)``.
    Empty if unknown, or if ``label`` names two functions of which either may hold the memory."""
    is_source: bool = False
    """Whether ``text`` is a line of code."""


def list_holders(session: Session, view: View, most: int = _MOST_HOLDERS) -> list[HolderRow]:
    """Return rows about the code that held the RSS peak.

    There are no rows if the session has no stacks, or if the view does not show this peak.
    """
    if view.from_zero or "rss" not in view.metrics:
        return []
    holders = _find_holders(session, most)
    size = sum(holder.size for holder in holders)
    return [_make_row(holder, size, view.unit) for holder in holders]


def name_largest_holder(session: Session, unit: MemoryUnit) -> str:
    """Return the code that held most of the peak: ``404 MiB in convert.py:893 export``; empty if unknown."""
    for holder in _find_holders(session, _MOST_HOLDERS):
        if holder.is_code:
            return f"{brief_label(holder.size, unit)} in {shortened(holder.label, _NAME)}"
    return ""


def _find_holders(session: Session, most: int) -> list[Holder]:
    if session.snapshots is None:
        return []
    from nncftools.analysis.frames import peak_holders  # not needed without stacks

    return peak_holders(session, most)


def _make_row(holder: Holder, whole: int, unit: MemoryUnit) -> HolderRow:
    size = f"{'~' if holder.is_likely else ''}{brief_label(holder.size, unit)}"
    text = clip(holder.source, _SOURCE)
    if holder.parts:
        parts = []
        for name, part in holder.parts[:_MOST_PARTS]:
            if part >= whole * _NAMED and name != _PYTHON:
                parts.append(f"{clip(name, _PART)} {unit.brief(part)}")
        text = f"({', '.join(parts)})" if parts else ""
    if holder.or_later:
        text = ""  # the label is long
    name = doubt(holder.label, holder.or_later)
    return HolderRow(size, name, text, is_source=bool(holder.source))


def doubt(label: str, or_later: str) -> str:
    """Return the label. If a function that ran later may hold the memory instead, add the name of that function."""
    return f"{label}, or {or_later}, which ran later" if or_later else label


def write_need(session: Session, unit: MemoryUnit) -> str:
    """Return the needed memory and the duration: ``Would work with 242 MiB · took 2.3 s``."""
    duration = brief_seconds(session.duration_s)
    took = f"took {duration}"
    if session.attached_to is not None:
        took = f"recorded {duration} of pid {session.attached_to}"
    elif session.finished and was_running(session):
        took = f"recorded {duration}, and the command continued"
    needed = needs(session)
    if needed is None:
        return took
    enough = "Needs more than" if needed.is_bound else "Would work with"
    return f"{enough} {brief_label(needed.floor, unit)}{SEPARATOR}{took}"


def write_other_peaks(session: Session, view: View) -> str:
    """Return the peaks of metrics other than RSS: ``Peaks of PSS 250 MiB · Swap 0 MiB``; empty if there are none."""
    texts = []
    for name in view.asked or [name for name in view.metrics if name not in _IF_NAMED]:
        if name != "rss" and name_of(name) not in OF_DEVICES:
            size = session.peaks.get(name, UNKNOWN_PEAK).low
            texts.append(f"{label(name)} {'unknown' if size is None else brief_label(size, view.unit)}")
    return f"Peaks of {SEPARATOR.join(texts)}" if texts else ""


class MemoryLine(NamedTuple):
    """A metric over time, in the unit of the view; the line has a gap at NaN.

    With ``--from-zero``, the first sample is subtracted.
    """

    time_s: Floats
    sizes: Floats
    is_sparse: bool
    """Whether fewer than half of the samples contain the metric."""
    peak: tuple[float, float]
    """Time and size of the peak. If the time is unknown, these are the time and the size of the largest sample."""
    peak_size: float
    """Size of the peak, even if the time is unknown."""
    span_s: tuple[float, float] | None
    """Start and end of the time in which the peak occurred; None if unknown."""
    mark: tuple[float, float] | None
    """Start and end of the time in which the peak occurred, if only a high-water mark (of the kernel or torch) shows
    the peak, because all samples are smaller; else None."""
    peak_text: str
    """Label of the peak: ``RSS peak 300.0 MiB at 0.500 s``."""


def memory_line(session: Session, view: View, name: str, points: int = 2000) -> MemoryLine | None:
    """Return a metric as a line of at most ``points`` points; None if no sample contains the metric."""
    samples = session.samples
    if name not in samples or not samples.figures(name).known:
        return None
    import numpy as np  # takes 120 ms of CPU, and reports in text do not need it

    from nncftools.analysis.summary import decimated_with_gaps

    figures = samples.figures(name)
    values = np.asarray(samples[name])
    level = summary.summarize_level(session, name)
    zero = (level.first or 0.0) if view.from_zero else 0.0
    time_s, sizes = decimated_with_gaps(samples.time_s, values, session.sampler.spacing_s, points)
    size = (figures.highest if level.peak is None else level.peak) - zero
    text = f"{label(name)} peak {view.unit.label(size)}"
    if level.span_s is None:
        at_s = samples.time_s[int(np.nanargmax(values))]
        height = figures.highest - zero
        text += " at an unknown moment"
    else:
        at_s = sum(level.span_s) / 2
        height = size
        text += f" at {span_text(level.span_s)}"
    is_mark = summary.is_between_samples(session.peaks.get(name, UNKNOWN_PEAK))
    if is_mark:
        text += f" ({'torch' if name_of(name) == DEVICE_ALLOCATED else 'kernel'}'s high-water mark)"
    return MemoryLine(
        time_s=time_s,
        sizes=(sizes - zero) / view.unit.factor,
        is_sparse=figures.known < len(values) / 2,
        peak=(at_s, height / view.unit.factor),
        peak_size=size / view.unit.factor,
        span_s=level.span_s,
        mark=level.span_s if is_mark else None,
        peak_text=text,
    )


class DrawnLimit(NamedTuple):
    """A memory limit, drawn as a line in a picture."""

    size: float
    """Size in the unit of the view."""
    name: str
    size_text: str


def write_limit(session: Session) -> str | None:
    """Return how near the peak came to the limit: ``95 % of 8 GiB (control group, set by FILE)``; None without a limit.

    The machine's memory counts as a limit only if the peak was more than half of that memory.
    """
    limit, peak = _find_limit(session)
    if limit is None or (limit.kind == MACHINE and peak <= limit.size * _NEAR):
        return None
    source = f", set by {clip(limit.set_by, _FILE)}" if limit.set_by else ""
    kind = "all of the machine" if limit.kind == MACHINE else limit.kind
    return f"{limit.share_text(peak)} of {brief_size(limit.size)} ({kind}{source})"


def choose_drawn_limit(session: Session, view: View) -> DrawnLimit | None:
    """Return the limit to draw; None if the view does not show RSS, or if RSS stayed far below the limit.

    An axis that reaches up to a distant limit would make the curve flat.
    """
    limit, peak = _find_limit(session)
    if limit is None or peak <= limit.size * _NEAR or view.from_zero or "rss" not in view.metrics:
        return None
    return DrawnLimit(view.unit.of(limit.size), limit.name, brief_size(limit.size))


def _find_limit(session: Session) -> tuple[Effective | None, int]:
    """Return the memory limit and the RSS peak in bytes. The limit is None if unknown."""
    low = session.rss_peak.low
    if low is None or session.from_zero:
        return None, 0
    return effective_limit(session), low


def label_peak(session: Session, unit: MemoryUnit) -> str:
    """Return the operation and the code of the peak: ``during Export · 404 MiB in convert.py:893 export``.

    The text is empty if both are unknown.
    """
    texts = (shortened(where_text(session), _OPERATION), name_largest_holder(session, unit))
    return SEPARATOR.join(filter(None, texts))


def explain_peak(session: Session, unit: MemoryUnit) -> list[tuple[str, str]]:
    """Return pairs (heading, text) about the RSS peak: the limit, and the code if the session has stacks."""
    limit = write_limit(session)
    lines = [] if limit is None else [("limit", limit)]
    if session.snapshots is None:
        return lines
    from nncftools.render.stacks import lines_of_peak

    return [*lines, *lines_of_peak(session, unit)]


def join_lines(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Return pairs (heading, text) as texts: ``heading: text``."""
    return [f"{heading}: {text}" for heading, text in lines]


def explain_verdict(session: Session, unit: MemoryUnit) -> list[tuple[str, str]]:
    """Return pairs (heading, text) about why a process of the run died, the conclusion first; empty if none died."""
    judged = verdict(session, unit)
    if judged is None:
        return []
    return [("Verdict", write_verdict(judged)), *_explain(judged, unit)]


def write_verdict(judged: Verdict) -> str:
    """Return the conclusion as a sentence, with the certainty in brackets."""
    text = judged.text
    if text.startswith(("the ", "a ")):
        text = text[0].upper() + text[1:]
    return f"{text}. ({judged.certainty})"


def _explain(judged: Verdict, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    state = judged.state
    if state.at_s is not None:
        held = f"RSS {brief_label(state.rss, unit)} at {seconds_text(state.at_s)}"
        if state.growth_per_s is not None:
            held += f", growing by {brief_label(state.growth_per_s, unit)}/s"
        if judged.limit is not None:
            limit = judged.limit
            kind = "of the machine" if limit.kind == MACHINE else f"({limit.kind})"
            held += f"; {limit.share_text(state.rss)} of {brief_label(limit.size, unit)} {kind}"
        yield "held", held
    largest = []
    for process in state.largest:
        name = clip(process.name, _PROCESS) or "a process"
        largest.append(f"{name} (pid {process.pid}) {brief_label(process.most_memory, unit)}")
    lines = {
        "largest": ", ".join(largest),
        "during": state.operation,
        "running": printable(state.running),
        "evidence": "; ".join(map(printable, judged.evidence)),
        "not": "; ".join(text.removeprefix("not ") for text in judged.is_not),
    }
    yield from ((heading, text) for heading, text in lines.items() if text)
