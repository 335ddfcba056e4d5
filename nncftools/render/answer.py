"""The answer that every output gives first: how high memory went and when, who held it, and how little is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nncftools.analysis import summary
from nncftools.analysis.session import Session
from nncftools.limits.needs import needs, went_on
from nncftools.metrics import OF_DEVICES, name_of
from nncftools.render.sentences import brief_where_text
from nncftools.render.view import SEPARATOR, View, label
from nncftools.units import MemoryUnit, brief_seconds, printable, shortened

if TYPE_CHECKING:
    from nncftools.analysis.frames import Holder

_SOURCE, _NAME, _PART = 60, 60, 30
"""Characters."""
_MOSTLY = 0.95
"""A row is certain if this part of it is certain."""
_NAMED = 0.01
"""A part of a row that is smaller, as a share of the peak, is not named."""
_MOST_PARTS = 4
_IF_NAMED = {"anon", "file", "shmem", "swap", "system"}
"""A report has their peaks only if the user names them: parts of RSS, and what the whole machine holds."""
_PYTHON = "python"
"""The part of Python itself has no name in the row of Python and imports."""


def headline(session: Session, view: View) -> str:
    """Return the peak, when it was and during which operation: ``Peak memory 254 MiB, 1.7 s after the start``."""
    name_of_run = view.title or session.name
    title = f"{shortened(printable(name_of_run), _NAME)}: " if name_of_run else ""
    return f"{title}{peak_text(session, view)}"


def peak_text(session: Session, view: View) -> str:
    """Return the headline without the name of the run."""
    name = "rss" if "rss" in view.metrics else next(iter(view.metrics), "rss")
    peak = session.peaks.get(name)
    if peak is None or peak.low is None:
        return "Peak memory unknown"
    size = float(peak.low)
    above = ""
    if view.from_zero:
        first = summary.level(session, name).first if name in session.samples else None
        size -= first or 0.0
        above = " above the first sample"
    if name != "rss":
        figure = f"Peak {label(name)} {_brief(size, view.unit)}{above}"
    elif above:
        figure = f"Peak memory {_brief(size, view.unit)}{above}"
    else:
        figure = f"Peak memory {_shared(session, view.unit) or _brief(size, view.unit)}"
    span_s = peak.span_s
    when = "at an unknown time" if span_s is None else f"{brief_seconds(sum(span_s) / 2)} after the start"
    where = brief_where_text(session) if name == "rss" else ""
    return ", ".join(filter(None, (figure, when, where)))


def _brief(size: float, unit: MemoryUnit) -> str:
    return f"{unit.brief(size)} {unit}"


def _shared(session: Session, unit: MemoryUnit) -> str:
    """Return the peak of several ranks, or of processes that share pages, PSS first where it is known; else nothing."""
    if len(session.ranks) > 1:
        return f"{_brief(session.rss_peak.low or 0, unit)} (sum of {len(session.ranks)} ranks)"
    peak = session.rss_peak
    count = len(summary.processes_at_peak(session)) if summary.forked_copies(session) else 0
    if count < 2 or peak.low is None:  # noqa: PLR2004 — one process shares nothing
        return ""
    near = summary.pss_near_peak(session)
    if near is not None and near.is_at_peak:
        rss = f"RSS of {count} processes: {unit.brief(peak.low)}"
        return f"{_brief(near.pss, unit)} (PSS; {rss}, shared pages counted in each)"
    return f"{_brief(peak.low, unit)} (RSS of {count} processes; pages that they share are counted in each)"


class HolderRow(NamedTuple):
    """A row about who held the peak, as texts."""

    size: str
    """With ``~`` before a size that is only likely."""
    label: str
    text: str
    """The text of the line of code, or what the row consists of; empty for a place that is in doubt."""
    is_source: bool = False
    """Whether ``text`` is code."""


def rows_of_peak(session: Session, view: View, most: int = 4) -> list[HolderRow]:
    """Return who held the RSS peak; empty if the view does not show it, and without stacks."""
    if view.from_zero or "rss" not in view.metrics:
        return []
    held = _holders(session, most)
    whole = sum(holder.size for holder in held)
    return [_row(holder, whole, view.unit) for holder in held]


def largest_holder(session: Session, unit: MemoryUnit) -> str:
    """Return which code held most of the peak: ``404 MiB in convert.py:893 export``; empty for unknown."""
    held = [holder for holder in _holders(session, 4) if holder.is_code]
    return f"{_brief(held[0].size, unit)} in {shortened(held[0].label, _NAME)}" if held else ""


def _holders(session: Session, most: int) -> list[Holder]:
    if session.snapshots is None:
        return []
    from nncftools.analysis.frames import peak_holders  # a run without stacks does without it

    return peak_holders(session, most)


def _row(holder: Holder, whole: int, unit: MemoryUnit) -> HolderRow:
    is_likely = holder.is_code and holder.certain < holder.size * _MOSTLY
    size = f"{'~' if is_likely else ''}{_brief(holder.size, unit)}"
    text = shortened(printable(holder.source), _SOURCE)
    if holder.parts:
        large = [(name, part) for name, part in holder.parts[:_MOST_PARTS] if part >= whole * _NAMED]
        names = [(shortened(printable(name), _PART), part) for name, part in large if name != _PYTHON]
        named = ", ".join(f"{name} {unit.brief(part)}" for name, part in names)
        text = f"({named})" if named else ""
    name = doubted(holder.label, holder.or_later)  # it is long: the text of the line has no room
    return HolderRow(size, name, "" if holder.or_later else text, is_source=bool(holder.source))


def doubted(label: str, or_later: str) -> str:
    """Return the name of a row, with the function that may hold the memory instead, if there is one."""
    return f"{label}, or {or_later}, which ran later" if or_later else label


def sufficient(session: Session, unit: MemoryUnit) -> str:
    """Return how little memory would be enough, and the duration: ``Would work with 242 MiB · took 2.3 s``."""
    took = brief_seconds(session.duration_s)
    lasted = f"took {took}"
    if session.attached_to is not None:
        lasted = f"recorded {took} of pid {session.attached_to}"
    elif session.finished and went_on(session):
        lasted = f"recorded {took}, and the command went on"
    needed = needs(session)
    if needed is None:
        return lasted
    enough = f"{'Needs more than' if needed.is_bound else 'Would work with'} {_brief(needed.floor, unit)}"
    return f"{enough}{SEPARATOR}{lasted}"


def other_peaks(session: Session, view: View) -> str:
    """Return the peaks of further metrics that the user named: ``Peaks of PSS 250 MiB · Swap 0 MiB``; else nothing."""
    texts = []
    for name in view.asked or [name for name in view.metrics if name not in _IF_NAMED]:
        peak = session.peaks.get(name)
        if name == "rss" or name_of(name) in OF_DEVICES:
            continue
        size = None if peak is None else peak.low
        texts.append(f"{label(name)} {'unknown' if size is None else _brief(size, view.unit)}")
    return f"Peaks of {SEPARATOR.join(texts)}" if texts else ""
