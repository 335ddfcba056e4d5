"""What outputs draw and say of the peak: memory over time, the limit, the lines under the headline, the verdict.

Every picture takes its points from here, so that none shows another peak. The lines say which share of the limit the
peak was, what ran, and which code held the memory; the verdict says why a run died. Both are headings and texts, which
each output writes in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nncftools.limits.judges import verdict
from nncftools.limits.needs import MACHINE, needs
from nncftools.limits.verdict import Verdict, most_memory
from nncftools.metrics import DEVICE_ALLOCATED, name_of
from nncftools.session.model import MappingGroup
from nncftools.session.session import Session
from nncftools.units import MemoryUnit, printable, seconds_text, shortened

if TYPE_CHECKING:
    from nncftools.analysis.build_up import BuildUp
    from nncftools.analysis.memory_kinds import Kinds
from typing import NamedTuple

import numpy as np

from nncftools.analysis.peak_text import span_text, where_text
from nncftools.analysis.series import Floats, decimated_with_gaps
from nncftools.analysis.summary import is_between_samples, level
from nncftools.limits.needs import Effective, effective_limit
from nncftools.render.view import View, label
from nncftools.session.peaks import sampled_peak
from nncftools.units import brief_size

_NEAR = 0.5
"""A larger part of a limit is near it."""
_FILE, _OPERATION, _OWNER = 80, 70, 60
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


def memory_line(session: Session, view: View, name: str, points: int = 4000, *, gaps: bool = True) -> MemoryLine | None:
    """Return a metric as a line of about ``points`` points at most; None when no sample contains it."""
    samples = session.samples
    if name not in samples or not (figures := samples.figures(name)).known:
        return None
    values = np.asarray(samples[name])
    zero = float(values[~np.isnan(values)][0]) if view.from_zero else 0.0
    spacing_s = session.sampler.spacing_s if gaps else None
    time_s, sizes = decimated_with_gaps(samples.time_s, values, spacing_s, points)
    peak = session.peaks.get(name) or sampled_peak(name, samples)
    of = level(samples, name, {name: peak})
    size = (figures.highest if of.peak is None else of.peak) - zero
    text = f"{label(name)} peak {view.unit.label(size)}"
    if of.span_s is None:
        point = samples.time_s[int(np.nanargmax(values))], figures.highest - zero
        text += " at an unknown moment"
    else:
        point = sum(of.span_s) / 2, size
        text += f" at {span_text(of.span_s)}"
    is_mark = is_between_samples(peak)
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
    peak = session.peaks.get("rss")
    if peak is None or peak.low is None or session.from_zero:
        return None, 0
    return effective_limit(session), peak.low


def peak_label(session: Session, unit: MemoryUnit) -> str:
    """Return ``during Export · 404 MiB by convert.py:893 export``; empty when neither is known."""
    return " · ".join(filter(None, (shortened(where_text(session), _OPERATION), _owner(session, unit))))


def _owner(session: Session, unit: MemoryUnit) -> str:
    """Return the place in the code that held the most; empty when no stacks were taken."""
    if session.snapshots is None:
        return ""
    from nncftools.analysis.build_up import of_peak
    from nncftools.analysis.frames import held_by, tree_of

    build_up = of_peak(session)
    if not (largest := [] if build_up is None else held_by(tree_of(build_up), 1)):
        return ""
    return f"{_brief(largest[0].size, unit)} by {shortened(largest[0].label, _OWNER)}"


_HOLDERS = 4
_LINE = 64
"""Characters: what stands behind a heading in a line of 80 columns."""
_MOST_LINES = 6
_SMALL = 0.01
"""A smaller part of the memory is not named."""
_MOSTLY = 0.95
_NAME = 32
_WORDS = {
    "anonymous": "anonymous",
    "other_files": "smaller files",
    "libraries": "libraries",
    "stack": "stacks of threads",
    "shared": "shared memory",
}
NOTHING_SEEN = "no stack was seen of any process whose memory grew"


def peak_lines(session: Session, unit: MemoryUnit) -> list[tuple[str, str]]:
    """Return headings and texts about the peak of RSS; only the limit, if the session was recorded without stacks."""
    limit = limit_text(session)
    lines = [] if limit is None else [("limit", limit)]
    if session.snapshots is None:
        return lines
    from nncftools.analysis import build_up  # a run without stacks does without it

    if (rise := build_up.of_peak(session)) is not None:
        return [*lines, *lines_of(session, rise, unit)]
    peak, moment = session.peaks.get("rss"), session.peak_place
    size = 0 if peak is None or moment is None else peak.low or 0
    kinds = [] if moment is None else list(_kinds(session, moment.to_s, size, unit, 2))
    return [*lines, ("stacks", f"none: {missing(session)}"), *kinds]


def lines_of(
    session: Session, rise: BuildUp, unit: MemoryUnit, whole: str = "the peak", *, has_kinds: bool = True
) -> list[tuple[str, str]]:
    """Return headings and texts about a build-up; ``whole`` is what it is of."""
    lines = [*_stacks(rise, session, unit), ("seen", seen_text(rise, session, whole))]
    free = _MOST_LINES - sum(map(_height, lines))
    kinds = _kinds(session, rise.at_s, rise.size, unit, free) if has_kinds else ()
    return [*lines[:-1], *kinds, lines[-1]]


def _height(line: tuple[str, str]) -> int:
    return 1 + len(line[1]) // _LINE


def missing(session: Session) -> str:
    """Return why stacks are missing."""
    known = None if session.snapshots is None else session.snapshots.missing
    return printable(known or NOTHING_SEEN)


def _stacks(rise: BuildUp, session: Session, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    from nncftools.analysis.frames import held_by, running_text, tree_of

    top = rise.top
    running = "running", "not seen" if top is None else f"{_process(top.process, session)}{running_text(top)}"
    yield running
    text, free = "", _MOST_LINES - 2 - _height(running)  # a line for what it is made of, and for what was seen
    for of in held_by(tree_of(rise), _HOLDERS):
        known = f"{unit.brief(of.certain)} certain" if of.certain >= rise.size * _SMALL else "likely"
        holder = f"{_brief(of.size, unit)} {of.label}{f' ({known})' if of.certain < of.size * _MOSTLY else ''}"
        if text and len(text) + len(holder) > free * _LINE:
            break
        text = f"{text} · {holder}" if text else holder
    if text:
        yield "held by", text


def _process(number: int | None, session: Session) -> str:
    """Return the process, if several processes have stacks; else nothing."""
    snapshots = session.snapshots
    if snapshots is None or sum(bool(watched.windows) for watched in snapshots.processes) < 2:  # noqa: PLR2004 — several
        return ""
    process = next((process for process in session.processes if process.id == number), None)
    return "" if process is None else f"{shortened(printable(process.name), _NAME)} (pid {process.pid}): "


def _brief(size: float, unit: MemoryUnit) -> str:
    return f"{unit.brief(size)} {unit}"


def _kinds(session: Session, at_s: float, size: int, unit: MemoryUnit, lines: int) -> Iterator[tuple[str, str]]:
    from nncftools.analysis.memory_kinds import near

    if (kinds := near(session, at_s, size)) is None:
        return
    if kinds.is_other_memory:
        now = " · ".join(_sampled(session, at_s, size, unit)) or "not known"
        yield "made of", f"{now}; mappings were read {moment_text(kinds, unit)}"
        return
    when = "" if kinds.is_of_moment else f" ({moment_text(kinds, unit)})"
    yield "made of", " · ".join(_parts(kinds, unit, _LINE * max(1, min(lines, 2)))) + when


def _sampled(session: Session, at_s: float, size: int, unit: MemoryUnit) -> Iterator[str]:
    """Yield the kinds of memory in the sample nearest to a moment, if they were sampled."""
    times, samples = session.samples.time_s, session.samples
    row = min(range(len(times)), key=lambda number: abs(times[number] - at_s), default=None)
    with_unit = f" {unit}"
    for column, words in (("anon", "anonymous"), ("file", "of files"), ("shmem", "shared memory")):
        value = samples[column][row] if row is not None and column in samples.metrics else 0.0
        if value >= size * _SMALL:  # False for NaN, which is unknown
            yield f"{unit.brief(value)}{with_unit} {words}"
            with_unit = ""


def moment_text(kinds: Kinds, unit: MemoryUnit) -> str:
    """Return when mappings were read, and how much memory there was."""
    return f"at {seconds_text(kinds.at_s)}, with {_brief(kinds.total, unit)}"


def _parts(kinds: Kinds, unit: MemoryUnit, room: int) -> Iterator[str]:
    """Yield the kinds of memory, as many as fit into a line; only the first one has its unit."""
    least, length = kinds.total * _SMALL, 0
    rest = sum(group.rss for group in kinds.groups)
    for group in kinds.groups:
        text = f"{unit.brief(group.rss)}{'' if length else f' {unit}'} {kind_name(group)}"
        if length + len(text) + len(remark := _what_it_is(group, unit)) <= room:
            text += remark
        if group.rss < least or (length and length + len(text) > room):
            break
        length += len(text) + 3
        rest -= group.rss
        yield text
    for size, name in ((rest, "other"), (kinds.not_read, "of other processes")):
        if size >= least:
            yield f"{unit.brief(size)}{'' if length else f' {unit}'} {name}"


def _what_it_is(group: MappingGroup, unit: MemoryUnit) -> str:
    if group.kind != "file":
        return ""
    if group.clean >= group.rss * _MOSTLY:
        return " (the kernel can drop it)"
    return f" ({unit.brief(group.anonymous)} of it copied)" if group.anonymous >= group.rss * _SMALL else ""


def kind_name(group: MappingGroup) -> str:
    """Return what a group of mappings is, in words; a file has its name without its folder."""
    if group.kind == "file":
        return shortened(printable(group.file.rpartition("/")[2] or group.file), _NAME)
    return _WORDS.get(group.kind, printable(group.kind))


def seen_text(rise: BuildUp, session: Session, whole: str) -> str:
    """Return which part of the memory was seen and which is certain, and what the rest is."""
    from nncftools.analysis.build_up import NOT_SEEN, PROGRAM, SEEN, SHARED

    certain = sum(part.size for part in rise.parts if part.is_certain)
    seen, shared, not_seen = percents([rise.sum_of(SEEN, PROGRAM), rise.sum_of(SHARED), rise.sum_of(NOT_SEEN)])
    text = f"{seen} % of {whole}, {min(seen, percents([certain, rise.size - certain])[0])} % certain"
    reason = None if session.snapshots is None else session.snapshots.missing
    why = f": {printable(reason)}" if reason else ""
    rest = [f"{shared} % shared with the parent"] if shared else []
    if not_seen and (shared or why):
        rest.append(f"{not_seen} % not seen{why}")
    return "; ".join([text, *([", ".join(rest)] if rest else [])])


def percents(sizes: Sequence[float]) -> list[int]:
    """Return the shares of a whole in percent: they sum to 100, or are all 0."""
    whole = sum(sizes)
    exact = [size / whole * 100 if whole else 0.0 for size in sizes]
    shares = [int(share) for share in exact]
    by_rest = sorted(range(len(sizes)), key=lambda place: shares[place] - exact[place])
    for place in by_rest[: round(sum(exact)) - sum(shares)]:
        shares[place] += 1
    return shares


def as_sentences(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Return each heading with its text."""
    return [f"{heading}: {text}" for heading, text in lines]


def verdict_lines(session: Session, unit: MemoryUnit) -> list[tuple[str, str]]:
    """Return headings and texts, the conclusion first; empty when nothing died."""
    if (judged := verdict(session, unit)) is None:
        return []
    needed = needs(session, is_bound=True) if judged.is_for_memory else None
    enough = [] if needed is None else [("needs", needed.text(unit))]
    return [("Verdict", headline(judged)), *_details(judged, unit), *enough]


def headline(judged: Verdict) -> str:
    """Return the conclusion as a sentence, and how sure it is."""
    text = judged.text.removeprefix("the ").removeprefix("a ")
    first = "The " if judged.text.startswith("the ") else "A " if judged.text.startswith("a ") else ""
    hung = "" if judged.hung_s is None else f" The command did nothing for {seconds_text(judged.hung_s)} after that."
    return f"{first}{text}.{hung} ({judged.certainty})"


def _details(judged: Verdict, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    state = judged.state
    if state.at_s is not None:
        growth = "" if state.growth_per_s is None else f", growing by {_brief(state.growth_per_s, unit)}/s"
        share = _share(judged, state.rss, unit)
        yield "held", f"RSS {_brief(state.rss, unit)} at {seconds_text(state.at_s)}{growth}{share}"
    largest = []
    for process in state.largest:
        name = shortened(printable(process.name), _NAME) or "a process"
        largest.append(f"{name} (pid {process.pid}) {_brief(most_memory(process), unit)}")
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
    if limit.is_of_process:
        rss = max((process.peak_rss or 0 for process in judged.state.largest), default=0)
    whose = "of the machine" if limit.kind == MACHINE else f"({limit.kind})"
    return f"; {limit.share_text(rss)} of {unit.brief(limit.size)} {unit} {whose}"
