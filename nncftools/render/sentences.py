"""Sentences about a session: where its peak was, what to know before trusting its figures, and what is missing.

The moment and the operation of the RSS peak are the same text in every output. It names the process of an operation
where operations of several processes ran at the same time, and long names without the beginning that they share.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from nncftools.analysis.code_places import SEPARATOR
from nncftools.analysis.operation import Operation, PeakPlace, place_of
from nncftools.analysis.session import Session
from nncftools.analysis.summary import (
    forked_copies,
    is_of_python,
    largest_process,
    of_recording,
    pss_near_peak,
    rss_error,
)
from nncftools.metrics import in_order, is_counter
from nncftools.session.model import Peak, Process
from nncftools.units import UNKNOWN, MemoryUnit, printable, seconds_text, shortened, size_text

_PERFORMER_NAME = 16


class Performers:
    """The processes of a session's operations."""

    def __init__(self, session: Session) -> None:
        self._names = {process.id: process.name for process in session.processes}
        self._levels: dict[int, _Level] = {}
        for operation in session.operations:
            if operation.pid is not None:
                self._levels.setdefault(operation.depth, _Level()).add(operation, operation.pid)

    def of(self, operation: Operation) -> str:
        """Return name and PID; empty unless operations of other processes ran on the same level at the same time."""
        level = self._levels.get(operation.depth)
        if operation.pid is None or level is None or not level.others_ran(operation):
            return ""
        name = "" if operation.process is None else self._names[operation.process]
        return ", ".join(filter(None, (shortened(printable(name), _PERFORMER_NAME), f"pid {operation.pid}")))


class _Level:
    """The operations of one level: up to each of them, the latest end, and the latest end of any other process."""

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._latest: list[tuple[float, int, float]] = []

    def add(self, operation: Operation, pid: int) -> None:
        """Add an operation; none begins before those added."""
        end_s, of, others_end_s = self._latest[-1] if self._latest else (-inf, pid, -inf)
        if pid == of:
            end_s = max(end_s, operation.end_s)
        elif operation.end_s > end_s:
            end_s, of, others_end_s = operation.end_s, pid, end_s
        else:
            others_end_s = max(others_end_s, operation.end_s)
        self._starts.append(operation.start_s)
        self._latest.append((end_s, of, others_end_s))

    def others_ran(self, operation: Operation) -> bool:
        if not (begun := bisect_left(self._starts, operation.end_s)):
            return False
        end_s, of, others_end_s = self._latest[begun - 1]
        return (others_end_s if of == operation.pid else end_s) > operation.start_s


_STRONG, _ANY = re.compile("[./:]+ *"), re.compile("[./:_ -]+")
"""Where a name can be cut: between its parts, and between words."""
_LEAST = 6
"""Characters: less of a name says too little."""


def without_shared_start(names: Iterable[str]) -> dict[str, str]:
    """Return each name without the beginning that it shares with others: ``…layer_3.mlp``.

    The longest beginning is left out after which each rest still differs from the end of any other name. It ends
    between two parts of a name (``.``, ``/``, ``:``), or between two words where names have no such parts in common.
    """
    every = list(dict.fromkeys(names))
    short: dict[str, str] = {}
    for separators in (_STRONG, _ANY):
        left = [name for name in every if name not in short]
        short |= _without_beginnings(left, every, separators)
    return {name: short.get(name, name) for name in every}


def _without_beginnings(names: Sequence[str], every: Sequence[str], separators: re.Pattern[str]) -> dict[str, str]:
    ends: dict[str, int] = {}
    families: dict[str, list[str]] = {}
    for name in every:
        for at in _cuts(name, separators):
            ends[name[at:]] = ends.get(name[at:], 0) + 1
    for name in names:
        for at in _cuts(name, separators):
            families.setdefault(name[:at], []).append(name)
    lost = set()
    for beginning, family in families.items():
        rests = [name[len(beginning) :] for name in family]
        if len(family) > 1 and all(len(rest) >= _LEAST and ends[rest] == 1 for rest in rests):
            lost.add(beginning)
    cuts = {name: max((at for at in _cuts(name, separators) if name[:at] in lost), default=0) for name in names}
    return {name: f"…{name[at:]}" for name, at in cuts.items() if at > 1}


def _cuts(name: str, separators: re.Pattern[str]) -> Iterator[int]:
    return (match.end() for match in separators.finditer(name))


_NAME = 40
_NAMED = 3
_LONGEST, _MOST_NAMES = 400, 1000
"""Of longer or more names, the beginnings are not compared."""
_MOST_LEVELS = 10
"""Operations inside each other that are named; of more, the outermost and the innermost ones."""
_MOST_RIVALS = 2
_SECONDS = " s"


def span_text(span_s: tuple[float, float] | None) -> str:
    """Return a moment that lies between two others: ``"12.30–12.35 s"``, or ``"12.30 s"`` if they read the same."""
    if span_s is None:
        return UNKNOWN
    first, last = map(seconds_text, span_s)
    if first == last:
        return last
    both_short = all(text.count(" ") == 1 for text in (first, last))
    return f"{first.removesuffix(_SECONDS)}–{last}" if both_short else f"{first} – {last}"


def when_text(session: Session) -> str:
    """Return the moment and the operation of the RSS peak: ``at 0.98 s during Export``; empty for unknown."""
    peak = session.peak_place
    return "" if peak is None else f"at {span_text((peak.from_s, peak.to_s))} {where_text(session)}".rstrip()


def where_text(session: Session) -> str:
    """Return the operation of the RSS peak as part of a sentence; empty when no operation is near it."""
    return _where(session.peak_place, session)


def _where(peak: PeakPlace | None, session: Session) -> str:
    if peak is None:
        return ""
    performers, short = Performers(session), _short_names(peak, session)
    path = _path_text([_name(operation, performers, short) for operation in peak.path])
    rest = ("the rest of " if any(rival is around for around in peak.path) else "" for rival in peak.rivals)
    others = [of + _name(rival, performers, short) for of, rival in zip(rest, peak.rivals, strict=True)]
    several = f"one of {len(others):,} others" if len(others) > _MOST_RIVALS else " or ".join(others)
    rivals = f", or in {several}" if others else ""  # their own peaks are not known well enough to exclude them
    rivals += ", or outside of all operations" if peak.may_be_outside else ""
    if peak.either:
        either = _either(peak, [_name(operation, performers, short) for operation in peak.either])
        return (f"during {path}, {either}" if path else either) + rivals
    if path:
        return f"during {path}{rivals}"
    if (nearest := peak.nearest) is None:
        return ""
    name, after_s = _name(nearest, performers, short), peak.from_s - nearest.end_s
    if after_s >= 0:
        return f"{seconds_text(after_s)} after {name}"
    return f"{seconds_text(max(0.0, nearest.start_s - peak.to_s))} before {name}"


def _path_text(names: list[str]) -> str:
    """Return operations inside of each other as a path, without the middle of a long one."""
    if len(names) > _MOST_LEVELS:
        names[_MOST_LEVELS // 2 : -_MOST_LEVELS // 2] = ["…"]
    return SEPARATOR.join(names)


def brief_where_text(session: Session) -> str:
    """Return the operation of the RSS peak without what else it may be: ``during Export › Compilation``.

    Equal names inside of each other are named once. Empty when no operation is near the peak.
    """
    peak = session.peak_place
    if peak is None:
        return ""
    short = _short_names(peak, session)
    names: list[str] = []
    nearest = [] if peak.nearest is None else [peak.nearest]
    for operation in peak.path or peak.either[:1] or nearest:
        name = shortened(short.get(operation.name, printable(operation.name)), _NAME)
        if name not in names[-1:]:
            names.append(name)
    if not names:
        return ""
    path = _path_text(names)
    if nearest:
        return f"just {'after' if peak.from_s >= nearest[0].end_s else 'before'} {path}"
    others = 0 if peak.path else len(peak.either) - 1
    return f"during {path}{f' or {others:,} other operations' if others > 0 else ''}"


def where_reached(session: Session, level: int, at_s: float) -> str:
    """Return where RSS reached a level, as ``where_text`` does; the sample at ``at_s`` is the first with this level."""
    times = session.samples.time_s
    before_s = times[max(0, bisect_left(times, at_s) - 1)] if len(times) else at_s
    reached = Peak(sampled=level, at_s=at_s, low=level, rose_from_s=min(before_s, at_s), rose_to_s=at_s)
    return _where(place_of(reached, session.operations, session.processes, session.duration_s), session)


def _name(operation: Operation, performers: Performers, short: Mapping[str, str]) -> str:
    name, by = printable(operation.name), performers.of(operation)
    if len(name) > _NAME:
        name = shortened(short.get(name, name), _NAME)
    return f"{name} ({by})" if by else name


def _short_names(peak: PeakPlace, session: Session) -> dict[str, str]:
    """Return the long names without their common beginnings; none if no name near the peak is long."""
    of_peak = [*peak.path, *peak.either, *peak.rivals, *([] if peak.nearest is None else [peak.nearest])]
    if all(len(operation.name) <= _NAME for operation in of_peak):
        return {}
    names = {printable(operation.name) for operation in session.operations if len(operation.name) < _LONGEST}
    return without_shared_start(sorted(names)) if len(names) <= _MOST_NAMES else {}


def _either(peak: PeakPlace, names: Sequence[str]) -> str:
    """Return the operations that may hold the peak as text; all of them ran between its two moments."""
    first, last = peak.either[0], peak.either[-1]
    if len(names) == 1 and first.end_s < peak.to_s:
        return f"at the end of {names[0]} or just after it"
    if len(names) == 1:
        return f"at the start of {names[0]} or just before it"
    if len(names) == 2:  # noqa: PLR2004 — both are named
        at_start = "at the start of " if last.start_s >= first.end_s else ""
        return f"in {names[0]} or {at_start}{names[1]}"
    if len(set(names)) == 1:
        return f"in one of {len(names):,} operations named {names[0]}"
    return f"in one of {len(names):,} operations, from {names[0]} to {names[-1]}"


_EXCESS, _NOTICEABLE = 0.02, 2 << 20
"""A peak between two samples is worth a warning if it exceeds all samples by this share and this number of bytes."""
_MUCH_SHARED = 1.1
_LARGE_ERROR = 0.01
"""Of the RSS peak: an error of RSS that is larger is worth a warning."""
OLD_UNMARKED = "no operation was marked"
"""The beginning of a warning of earlier versions, which they gave for every script without operations."""
NO_CALLS, NO_LINES, NO_HOOK = "--mark-call marked nothing", "--mark-on marked nothing", "operations are missing"
UNMARKED = NO_CALLS, NO_LINES, NO_HOOK
"""The beginnings of the warnings that operations are missing."""


def hints(session: Session, unit: MemoryUnit) -> list[str]:
    """Return the session's own warnings and those that follow from its figures."""
    return [
        *(session.warnings if session.ranks else of_recording(session)),
        *_at_the_limit(session),
        *_shared_pages(session, unit),
        *_counted_often(session, unit),
        *_between_samples(session, unit),
        *_off(session, unit),
        *_unknown_counters(session),
    ]


def brief_hints(session: Session) -> list[str]:
    """Return the warnings of the default report: what the recording lacks, and not what its figures allow to doubt."""
    of_run = session.warnings if session.ranks else of_recording(session)
    recorded = [text for text in of_run if not text.startswith((OLD_UNMARKED, *UNMARKED))]
    return [*recorded, *_at_the_limit(session), *filter(None, [hugetlb_text(session)])]


def hugetlb_text(session: Session) -> str:
    """Return which processes held hugetlb pages; empty if none did."""
    held = sorted((-(process.hugetlb or 0), process.name) for process in session.processes if process.hugetlb)
    texts = [f"{printable(name)} {size_text(-size)}" for size, name in held[:_NAMED]]
    return f"RSS does not include hugetlb pages: {', '.join(texts)}" if texts else ""


def _at_the_limit(session: Session) -> Iterator[str]:
    reached = session.limit_reached
    if reached is not None and (where := where_reached(session, reached.rss, reached.at_s)):
        yield f"--max-memory was exceeded {where}, at {seconds_text(reached.at_s)}"


def _shared_pages(session: Session, unit: MemoryUnit) -> Iterator[str]:
    """Forked copies share pages with their parent, and the sum of RSS counts these pages once per process."""
    peak = session.rss_peak
    largest = largest_process(session)
    if peak.sampled is None or largest is None:
        return
    copies = forked_copies(session)
    if copies and peak.sampled > largest.size:
        are_copies = "is a forked copy" if copies == 1 else "are forked copies"
        text = f"forked copies share pages: {copies} of the processes at the RSS peak {are_copies} of their parent"
        sums = "the sum counts shared pages once for each"
        yield f"{text}, and {sums}; the largest single process held {unit.label(largest.size)}"


def _counted_often(session: Session, unit: MemoryUnit) -> Iterator[str]:
    """Compare PSS with the RSS of the same sample, if that sample is near the RSS peak."""
    near = pss_near_peak(session)
    if near is not None and near.is_at_peak and near.rss > near.pss * _MUCH_SHARED:
        rss = unit.label(near.rss)
        pss = unit.label(near.pss)
        text = f"RSS counts shared pages once for each process: near its peak, when RSS was {rss}, PSS was {pss}"
        yield f"{text}; to size a machine, take PSS"


def _between_samples(session: Session, unit: MemoryUnit) -> Iterator[str]:
    peak = session.rss_peak
    if peak.sampled is None or peak.low is None:
        return
    if peak.low <= peak.sampled + max(peak.sampled * _EXCESS, _NOTICEABLE):
        return
    process = next((process for process in session.processes if process.id == peak.process), None)
    whose = "" if process is None or len(session.processes) == 1 else f" of {process.name or '?'} (pid {process.pid})"
    proven = f"the kernel's high-water mark{whose} proves {unit.label(peak.low)}"
    sample = f"the largest sample is {unit.label(peak.sampled)} at {seconds_text(peak.at_s)}"
    yield f"the RSS peak came and went between two samples: {proven}, {sample}"


def _off(session: Session, unit: MemoryUnit) -> Iterator[str]:
    peak, error = session.rss_peak, rss_error(session.host)
    if peak.low is None or error <= peak.low * _LARGE_ERROR:
        return
    host, most = session.host, f"RSS on this machine may be off by up to {unit.label(error)} for each process"
    why = f"Linux {host.release} leaves out what each of {host.cpus} CPUs has not added yet"
    yield f"{most}: {why}; 6.16 and later are exact"


def _unknown_counters(session: Session) -> Iterator[str]:
    unknown = [name for name in in_order(session.totals) if session.totals[name] is None and is_counter(name)]
    if unknown:
        why = "the figures of at least one process could not be read (another user's, or not supported by the system)"
        yield f"unknown: {', '.join(unknown)}; {why}"


_MUCH = 0.2
"""Where no stack was seen of this part of the peak, the report says why."""
_REASONS = {
    "no program whose memory grew runs Python": "",
    r"layout of (Python [\d.]+)t is": "nncf-tools cannot read the stacks of {}, a build without the global lock; use "
    "Python 3.10 to 3.15 with the lock",
    r"layout of (Python 3\.\d) is": "nncf-tools reads neither stacks nor operations of {}; use Python 3.10 to 3.15",
    r"layout of (Python [\d.]+) is": "this nncf-tools cannot read the stacks of {}; use Python 3.10 to 3.15",
    "no symbol _PyRuntime": "nncf-tools cannot read the stacks of this Python; use CPython 3.10 to 3.15",
    "allow reading the stacks of (.+)": "the kernel does not allow reading the memory of {}; run nncf-tools as the "
    "same user, or as root (in a container: with the capability SYS_PTRACE)",
    r"(kernel\.yama\.ptrace_scope is \d)\), except": "{}, and no Python loaded the hook; run nncf-tools as root, or "
    "set it to 0 with sysctl",
    "(the helper process .+|the log of the helper .+)": "{}; record again",
}
"""By a part of the recorder's text, the sentence with the remedy. Other texts of the recorder name it themselves."""


def missing_line(session: Session) -> str:
    """Return what is missing, why, and what to do, in one sentence; empty if nothing is missing that was expected.

    Where code lines and operations are missing, the sentence is about the code: often, both have one reason.
    """
    if reason := _missing_code(session):
        return f"code lines are missing: {reason}"
    return next((text for text in session.warnings if text.startswith(UNMARKED)), "")


def _missing_code(session: Session) -> str:
    """Return why no stacks were seen of much of the memory at the peak; empty if stacks were not asked for."""
    snapshots = session.snapshots
    if snapshots is None:
        return ""
    if snapshots.missing is None:
        has_stacks = any(watched.windows for watched in snapshots.processes)
        if has_stacks or not is_of_python(session):
            return ""
        return "no Python process ran for long enough to read its stack (0.1 s); record a longer run"
    from nncftools.analysis.build_up import NOT_SEEN, of_peak  # a run whose stacks are all there does without it

    build_up = of_peak(session)
    if build_up is not None:
        unseen = sum(part.size for part in build_up.parts if part.kind == NOT_SEEN and not part.is_start)
        if unseen < build_up.size * _MUCH:
            return ""
    return _reason(snapshots.missing)


def _reason(text: str) -> str:
    for pattern, sentence in _REASONS.items():
        if match := re.search(pattern, text):
            return sentence.format(*match.groups())
    return text


_LAST = re.compile(r"-[a-zA-Z]*[cm]")
"""The last option of Python; the words after it are the program's."""
_ISOLATING = re.compile(r"-[a-zA-Z]*([IES])")
_APART = {
    "user": "ran as another user, who may not write the marks log: record as that user",
    "root": "had another root folder, without the marks log: record inside it",
    "clock": "ran in a time namespace, whose clock is not that of the recording: record inside it",
}


def no_marks_reason(processes: Sequence[Process], programs: int, outside: int) -> str:
    """Return why nothing was marked.

    ``programs`` is the number of Pythons that the hook ran in, ``outside`` that of marks which were not made between
    start and end of the recording.
    """
    marks = "1 mark was" if outside == 1 else f"{outside:,} marks were"
    reasons = [f"{marks} made before or after the recording"] if outside else []
    by_way: dict[str, list[Process]] = {}
    for process in processes:
        option = _isolating(process)
        ways = [f"ran an isolated Python ({option}), which loads no hook: run it without {option}"] if option else []
        for way in (*ways, *(_APART[way] for way in process.apart if way in _APART)):
            by_way.setdefault(way, []).append(process)
    for way, (first, *others) in by_way.items():
        more = f" and {len(others):,} more" if others else ""
        reasons.append(f"process {first.pid} ({shortened(printable(first.name), 16)}){more} {way}")
    known = "; ".join(reasons)
    if programs:
        ran = "1 Python program loaded the hook" if programs == 1 else f"{programs:,} Python programs loaded the hook"
        called = "but called none of these functions: check their names, and whether a Python without our environment"
        return f"{ran}, and {known}" if known else f"{ran}, {called} (env -i, tox) calls them"
    usual = (
        "usually its environment lacks our PYTHONPATH and NNCF_TOOLS_* (env -i, tox): pass them on; "
        "or it is older than Python 3.10: use a newer one"
    )
    return f"no Python program loaded the hook: {known or f'the reason is not known; {usual}'}"


def _isolating(process: Process) -> str:
    """Return the option that keeps a Python from loading the hook; empty if no option does."""
    if not process.is_python:
        return ""
    words = iter(process.command[1:])
    for word in words:
        if not word.startswith("-") or word == "-":
            return ""
        isolating = _ISOLATING.match(word)
        if isolating is not None and not word.startswith("--"):
            return f"-{isolating[1]}"
        if _LAST.match(word):
            return ""
        if word in {"-W", "-X", "--check-hash-based-pycs"}:
            next(words, None)
    return ""
