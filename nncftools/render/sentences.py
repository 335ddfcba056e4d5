"""Sentences about a session: where the peak was, warnings, and why code lines or operations are missing.

All outputs describe the moment and the operation of the RSS peak with the same text. The text names the process of an
operation only if other processes ran operations at the same time. Long names lose the beginning that they share with
other names.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

from nncftools.analysis.code_places import SEPARATOR
from nncftools.analysis.operation import Operation, PeakPlace, place_of
from nncftools.analysis.peaks import READING
from nncftools.analysis.session import Session
from nncftools.analysis.summary import (
    dropped_files,
    forked_copies,
    is_of_python,
    largest_process,
    of_recording,
    pss_near_peak,
    rss_error,
)
from nncftools.metrics import in_order, is_counter
from nncftools.render.view import brief_label, clip
from nncftools.session.model import Peak, Process
from nncftools.units import UNKNOWN, MemoryUnit, count_text, printable, seconds_text, shortened, size_text

_PROCESS_NAME = 16
"""Longest name of a process, in characters."""


class Performers:
    """Names of the processes that ran the operations of a session."""

    def __init__(self, session: Session) -> None:
        self._names = {process.id: process.name for process in session.processes}
        self._levels: dict[int, _Level] = {}
        for operation in session.operations:
            if operation.pid is not None:
                self._levels.setdefault(operation.depth, _Level()).add(operation, operation.pid)

    def name_process(self, operation: Operation) -> str:
        """Return name and PID; empty unless other processes ran operations of this nesting level at the same time."""
        level = self._levels.get(operation.depth)
        if operation.pid is None or level is None or not level.has_others_beside(operation):
            return ""
        pid = f"pid {operation.pid}"
        if operation.process is None:
            return pid
        name = clip(self._names[operation.process], _PROCESS_NAME)
        return f"{name}, {pid}" if name else pid


class _Level:
    """The operations of one nesting level, in the order of their starts.

    For each operation, ``_latest`` has three values about this and all earlier operations: the latest end, the PID of
    the operation with this end, and the latest end among operations with any other PID.
    """

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._latest: list[tuple[float, int, float]] = []

    def add(self, operation: Operation, pid: int) -> None:
        nothing = (-inf, pid, -inf)
        end_s, latest_pid, others_end_s = self._latest[-1] if self._latest else nothing
        if pid == latest_pid:
            end_s = max(end_s, operation.end_s)
        elif operation.end_s > end_s:
            others_end_s = end_s
            end_s = operation.end_s
            latest_pid = pid
        else:
            others_end_s = max(others_end_s, operation.end_s)
        self._starts.append(operation.start_s)
        self._latest.append((end_s, latest_pid, others_end_s))

    def has_others_beside(self, operation: Operation) -> bool:
        count = bisect_left(self._starts, operation.end_s)
        if not count:
            return False
        end_s, latest_pid, others_end_s = self._latest[count - 1]
        return (others_end_s if latest_pid == operation.pid else end_s) > operation.start_s


_BETWEEN_PARTS = re.compile("[./:]+ *")
_BETWEEN_WORDS = re.compile("[./:_ -]+")
_SHORTEST_END = 6
"""A shortened name keeps at least this number of characters."""


def without_shared_start(names: Iterable[str]) -> dict[str, str]:
    """Return each name without the beginning that other names have, too: ``…layer_3.mlp``.

    The removed beginning is as long as possible, but no other name may end with the text that remains. Names are cut
    after ``.``, ``/`` or ``:``. If this is impossible, a name is cut between words.
    """
    every = list(dict.fromkeys(names))
    short: dict[str, str] = {}
    for separators in (_BETWEEN_PARTS, _BETWEEN_WORDS):
        short |= _cut_starts([name for name in every if name not in short], every, separators)
    return {name: short.get(name, name) for name in every}


def _cut_starts(names: Sequence[str], every: Sequence[str], separators: re.Pattern[str]) -> dict[str, str]:
    """Return the names that can be cut at these separators: ``{name: rest of the name after "…"}``.

    A cut removes a beginning that several of ``names`` have. No other name in ``every`` may end with the rest.
    """
    cuts = {}
    ends = Counter[str]()
    for name in every:
        cuts[name] = [match.end() for match in separators.finditer(name)]
        ends.update(name[cut:] for cut in cuts[name])
    families: dict[str, list[str]] = {}
    for name in names:
        for cut in cuts[name]:
            families.setdefault(name[:cut], []).append(name[cut:])
    shared = set()
    for start, rests in families.items():
        are_distinct = all(len(rest) >= _SHORTEST_END and ends[rest] == 1 for rest in rests)
        if len(rests) > 1 and are_distinct:
            shared.add(start)
    short = {}
    for name in names:
        possible = [cut for cut in cuts[name] if name[:cut] in shared]
        cut = max(possible, default=0)
        if cut > 1:
            short[name] = f"…{name[cut:]}"
    return short


_NAME = 40
"""Longest name of an operation, in characters."""
_LONGEST = 400
"""Names with at least this number of characters are not compared with each other."""
_MOST_NAMES = 1000
"""If a run has more names of operations than this, no names are compared."""
_MOST_LEVELS = 10
"""Largest number of levels in a path of nested operations; from a longer path, the middle is removed."""
_MOST_RIVALS = 2
_MOST_HUGETLB = 3
_SECONDS = " s"


def span_text(span_s: tuple[float, float] | None) -> str:
    """Return a span of time: ``12.30–12.35 s``, or ``12.30 s`` if start and end have the same text."""
    if span_s is None:
        return UNKNOWN
    first, last = map(seconds_text, span_s)
    if first == last:
        return last
    if all(text.count(" ") == 1 for text in (first, last)):
        return f"{first.removesuffix(_SECONDS)}–{last}"
    return f"{first} – {last}"


def when_text(session: Session) -> str:
    """Return the moment and the operation of the RSS peak: ``at 0.98 s during Export``; empty if unknown."""
    peak = session.peak_place
    return "" if peak is None else f"at {span_text((peak.from_s, peak.to_s))} {where_text(session)}".rstrip()


def where_text(session: Session) -> str:
    """Return the operation of the RSS peak: ``during Export``; empty if no operation is near the peak."""
    return _describe_place(session.peak_place, session)


def _describe_place(peak: PeakPlace | None, session: Session) -> str:
    if peak is None:
        return ""
    performers = Performers(session)
    short = _shorten_names(peak, session)

    def name_operation(operation: Operation) -> str:
        name = printable(operation.name)
        process = performers.name_process(operation)
        if len(name) > _NAME:
            name = shortened(short.get(name, name), _NAME)
        return f"{name} ({process})" if process else name

    path = _join_path([name_operation(operation) for operation in peak.path])
    rivals = _describe_rivals(peak, name_operation)
    if peak.either:
        either = _describe_either(peak, [name_operation(operation) for operation in peak.either])
        return f"during {path}, {either}{rivals}" if path else f"{either}{rivals}"
    if path:
        return f"during {path}{rivals}"
    nearest = peak.nearest
    if nearest is None:
        return ""
    after_s = peak.from_s - nearest.end_s
    if after_s >= 0:
        return f"{seconds_text(after_s)} after {name_operation(nearest)}"
    before_s = max(0.0, nearest.start_s - peak.to_s)
    return f"{seconds_text(before_s)} before {name_operation(nearest)}"


def _join_path(names: list[str]) -> str:
    """Return nested operations as a path: ``Export › Compilation``."""
    if len(names) > _MOST_LEVELS:
        names[_MOST_LEVELS // 2 : -_MOST_LEVELS // 2] = ["…"]
    return SEPARATOR.join(names)


def _describe_rivals(peak: PeakPlace, name_operation: Callable[[Operation], str]) -> str:
    """Return the other operations in which the peak may have been: ``, or in Saving``.

    The own peaks of these operations are not exactly known.
    """
    names = []
    for rival in peak.rivals:
        is_around = any(rival is operation for operation in peak.path)
        names.append(f"the rest of {name_operation(rival)}" if is_around else name_operation(rival))
    text = f", or in {' or '.join(names)}" if names else ""
    if len(names) > _MOST_RIVALS:
        text = f", or in one of {len(names):,} others"
    return f"{text}, or outside all operations" if peak.may_be_outside else text


def brief_where_text(session: Session) -> str:
    """Return the most likely operation of the RSS peak: ``during Export › Compilation``.

    If nested operations have the same name, the name occurs once. The text is empty if no operation is near the peak.
    """
    peak = session.peak_place
    if peak is None:
        return ""
    short = _shorten_names(peak, session)
    names: list[str] = []
    nearest = [] if peak.nearest is None else [peak.nearest]
    for operation in peak.path or peak.either[:1] or nearest:
        name = shortened(short.get(operation.name, printable(operation.name)), _NAME)
        if name not in names[-1:]:
            names.append(name)
    if not names:
        return ""
    path = _join_path(names)
    if nearest:
        return f"just {'after' if peak.from_s >= nearest[0].end_s else 'before'} {path}"
    others = 0 if peak.path else len(peak.either) - 1
    return f"during {path} or {others:,} more" if others > 0 else f"during {path}"


def where_reached(session: Session, level: int, at_s: float) -> str:
    """Return the operation in which RSS reached ``level`` bytes.

    ``at_s`` is the time of the first sample with at least ``level`` bytes.
    """
    times = session.samples.time_s
    before_s = times[max(0, bisect_left(times, at_s) - 1)] if len(times) else at_s
    reached = Peak(
        sampled=level,
        at_s=at_s,
        low=level,
        rose_from_s=min(before_s, at_s),
        rose_to_s=at_s,
    )
    place = place_of(reached, session.operations, session.processes, session.duration_s)
    return _describe_place(place, session)


def _shorten_names(peak: PeakPlace, session: Session) -> dict[str, str]:
    """Return the names without their shared beginnings: ``{name: short name}``.

    The dictionary is empty if all names of operations near the peak are short.
    """
    operations = [*peak.path, *peak.either, *peak.rivals]
    if peak.nearest is not None:
        operations.append(peak.nearest)
    if all(len(operation.name) <= _NAME for operation in operations):
        return {}
    names = {printable(operation.name) for operation in session.operations if len(operation.name) < _LONGEST}
    return without_shared_start(sorted(names)) if len(names) <= _MOST_NAMES else {}


def _describe_either(peak: PeakPlace, names: Sequence[str]) -> str:
    """Return the operations in which the peak may have been, because they ran at that time: ``in Export or Save``."""
    first = peak.either[0]
    last = peak.either[-1]
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


_EXCESS = 0.02
"""If the peak exceeds the largest sample by more than this share, a warning says that the peak was between two samples.
"""
_NOTICEABLE = 2 << 20
"""There is no warning about a peak between two samples if the peak exceeds the largest sample by at most this number of
bytes."""
_MUCH_SHARED = 1.1
_LARGE_ERROR = 0.01
"""If the possible error of RSS is larger than this share of the peak, there is a warning."""
OLD_UNMARKED = "no operation was marked"
"""The first words of a warning about missing operations. Earlier versions recorded this warning for every script
without operations."""
NO_CALLS = "--mark-call marked nothing"
NO_LINES = "--mark-on marked nothing"
NO_HOOK = "operations are missing"
UNMARKED = (NO_CALLS, NO_LINES, NO_HOOK)
"""The first words of the warnings about missing operations."""


def hints(session: Session, unit: MemoryUnit) -> list[str]:
    """Return all warnings: those of the recording, and those about the figures."""
    return [
        *of_recording(session),
        *_warn_of_limit(session),
        *_warn_of_short_memory(session),
        *_warn_of_copies(session, unit),
        *_warn_of_pss(session, unit),
        *_warn_of_peak_between_samples(session, unit),
        *_warn_of_rss_error(session, unit),
        *_warn_of_unknown_counters(session),
    ]


def brief_hints(session: Session) -> list[str]:
    """Return the warnings for the default report: about the recording, but not about the accuracy of single figures."""
    recorded = [text for text in of_recording(session) if not text.startswith((OLD_UNMARKED, *UNMARKED))]
    recorded += _warn_of_limit(session)
    recorded += _warn_of_short_memory(session)
    return [*recorded, *filter(None, [hugetlb_text(session)])]


def _warn_of_short_memory(session: Session) -> Iterator[str]:
    dropped = dropped_files(session)
    if dropped:
        yield (
            f"the machine was short of memory: the kernel dropped {size_text(dropped)} of cached files and had to read "
            "the files again; on a machine with more memory the peak is higher"
        )


_HELD_LEAST = 64 << 20
_HELD_SHARE = 0.2
"""A report has a line on the memory that is left at the end, if this memory is at least this share of the peak, and at
least ``_HELD_LEAST`` bytes.
"""


def write_held_at_end(session: Session, unit: MemoryUnit) -> str:
    """Return the memory that the program still held at the end, and the share of the peak; empty if negligible."""
    peak = session.rss_peak.low
    if session.snapshots is None or not peak:
        return ""
    from nncftools.analysis.build_up import held_at_end  # not needed without stacks

    held = held_at_end(session) or 0
    if held < max(_HELD_LEAST, peak * _HELD_SHARE):
        return ""
    text = f"Still held at the end: {brief_label(held, unit)} without imports, {held / peak * 100:.0f} % of peak"
    return f"{text}; report --peak --at end shows the code"


def hugetlb_text(session: Session) -> str:
    """Return the processes that held hugetlb pages; empty if no process did."""
    holders = [process for process in session.processes if process.hugetlb]
    holders.sort(key=lambda process: (-(process.hugetlb or 0), process.name))
    texts = [f"{printable(holder.name)} {size_text(holder.hugetlb)}" for holder in holders[:_MOST_HUGETLB]]
    return f"RSS does not include hugetlb pages: {', '.join(texts)}" if texts else ""


def _warn_of_limit(session: Session) -> Iterator[str]:
    reached = session.limit_reached
    if reached is None:
        return
    where = where_reached(session, reached.rss, reached.at_s)
    if where:
        yield f"--max-memory was exceeded {where}, at {seconds_text(reached.at_s)}"


def _warn_of_copies(session: Session, unit: MemoryUnit) -> Iterator[str]:
    """Warn if forked processes share pages with their parent: the sum of RSS counts these pages several times."""
    peak = session.rss_peak
    largest = largest_process(session)
    if peak.sampled is None or largest is None:
        return
    copies = forked_copies(session)
    if copies and peak.sampled > largest.size:
        are_copies = "is a forked copy" if copies == 1 else "are forked copies"
        text = f"forked copies share pages: {copies} of the processes at the RSS peak {are_copies} of their parent"
        sums = "the sum counts shared pages several times"
        yield f"{text}, and {sums}; the largest single process held {unit.label(largest.size)}"


def _warn_of_pss(session: Session, unit: MemoryUnit) -> Iterator[str]:
    """Warn if PSS was much smaller than RSS in a sample near the RSS peak."""
    near = pss_near_peak(session)
    if near is not None and near.is_at_peak and near.rss > near.pss * _MUCH_SHARED:
        rss = unit.label(near.rss)
        pss = unit.label(near.pss)
        text = f"RSS counts shared pages once for each process: near its peak, when RSS was {rss}, PSS was {pss}"
        yield f"{text}; use PSS to size a machine"


def _warn_of_peak_between_samples(session: Session, unit: MemoryUnit) -> Iterator[str]:
    peak = session.rss_peak
    if peak.sampled is None or peak.low is None:
        return
    if peak.low <= peak.sampled + max(peak.sampled * _EXCESS, _NOTICEABLE):
        return
    process = next((process for process in session.processes if process.id == peak.process), None)
    owner = ""
    if process is not None and len(session.processes) > 1:
        owner = f" of {process.name or '?'} (pid {process.pid})"
    proven = f"the kernel's high-water mark{owner} proves {unit.label(peak.low)}"
    sample = f"the largest sample is {unit.label(peak.sampled)} at {seconds_text(peak.at_s)}"
    if peak.low_from == READING:
        yield f"a later reading of memory shows the RSS peak, {unit.label(peak.low)}: {sample}"
    else:
        yield f"the RSS peak came and went between two samples: {proven}, {sample}"


def _warn_of_rss_error(session: Session, unit: MemoryUnit) -> Iterator[str]:
    host = session.host
    low = session.rss_peak.low
    error = rss_error(host)
    if low is None or error <= low * _LARGE_ERROR:
        return
    text = f"RSS on this machine may be off by up to {unit.label(error)} for each process"
    reason = f"Linux {host.release} leaves out the latest changes on each of {host.cpus} CPUs"
    yield f"{text}: {reason}; Linux 6.16 and later count exactly"


def _warn_of_unknown_counters(session: Session) -> Iterator[str]:
    totals = session.totals
    unknown = [name for name in in_order(totals) if totals[name] is None and is_counter(name)]
    if unknown:
        reason = "the figures of at least one process could not be read"
        yield f"unknown: {', '.join(unknown)}; {reason} (a process of another user, or a system without these figures)"


_MUCH = 0.2
"""If at least this share of the peak has no stacks, the report says why."""
_REASONS = {
    "no program whose memory grew runs Python": "",
    r"layout of (Python [\d.]+)t is": "nncf-tools cannot read the stacks of {}, a build without the global lock; use "
    "Python 3.10 to 3.15 with the lock",
    r"layout of (Python 3\.\d) is": "nncf-tools reads neither stacks nor operations of {}; use Python 3.10 to 3.15",
    r"layout of (Python [\d.]+) is": "this nncf-tools cannot read the stacks of {}; use Python 3.10 to 3.15",
    "no symbol _PyRuntime": "nncf-tools cannot read the stacks of this Python, and marks no calls of a Python older "
    "than 3.10; use CPython 3.10 to 3.15",
    "allow reading the stacks of (.+)": "the kernel does not allow reading the memory of {}; run nncf-tools as the "
    "same user, or as root (in a container: with the capability SYS_PTRACE)",
    r"(kernel\.yama\.ptrace_scope is \d)\), except": "{}, and no Python loaded the hook; run nncf-tools as root, or "
    "set kernel.yama.ptrace_scope to 0 with sysctl",
    "(the helper process .+|the log of the helper .+)": "{}; record again",
}
"""Maps a pattern to a sentence with a remedy. The pattern matches a text of the recorder about missing stacks.

If a text of the recorder matches no pattern, the text itself names a remedy.
"""


def missing_line(session: Session) -> str:
    """Return a sentence on missing code lines or operations, with reason and remedy; empty if nothing is missing.

    If both are missing, the sentence is about the code lines, because the reason is often the same.
    """
    reason = _explain_missing_code(session)
    if reason:
        return f"code lines are missing: {reason}"
    return next((text for text in session.warnings if text.startswith(UNMARKED)), "")


def _explain_missing_code(session: Session) -> str:
    """Return why much of the peak has no stacks; empty if little is missing, or if the user did not ask for stacks."""
    snapshots = session.snapshots
    if snapshots is None:
        return ""
    if snapshots.missing is None:
        has_stacks = any(watched.windows for watched in snapshots.processes)
        if has_stacks or not is_of_python(session):
            return ""
        return "no Python process ran for at least 0.1 s, so no stack could be read; record a longer run"
    from nncftools.analysis.build_up import NOT_SEEN, of_peak  # not needed if all stacks are known

    build_up = of_peak(session)
    if build_up is not None:
        unseen = [part.size for part in build_up.parts if part.kind == NOT_SEEN and not part.is_start]
        if sum(unseen) < build_up.size * _MUCH:
            return ""
    for pattern, sentence in _REASONS.items():
        match = re.search(pattern, snapshots.missing)
        if match:
            return sentence.format(*match.groups())
    return snapshots.missing


_WITHOUT_CODE = re.compile(r"--?(V|version|h|\?)|.*nncftools/helper_process\.py ")
"""Matches the arguments of a Python that prints the version or a help text, or that is a helper process of ours."""
_LAST_OPTION = re.compile(r"-[a-zA-Z]*[cm]")
"""After ``-c`` or ``-m``, all words of Python's command line belong to the program."""
_ISOLATING_OPTION = re.compile(r"-[a-zA-Z]*([IES])")
_APART = {
    "user": "ran as another user, who cannot write the marks log: run nncf-tools as that user",
    "root": "had another root folder, without the marks log: run nncf-tools inside that root folder",
    "clock": "ran in a time namespace, whose clock is not that of the recording: run nncf-tools inside that namespace",
}

_USUAL_REASON = (
    "the reason is not known; usually the environment lacks our PYTHONPATH and NNCF_TOOLS_* (env -i, tox), so pass "
    "these on; or Python is older than 3.10, so use a newer Python"
)


def explain_missing_marks(processes: Sequence[Process], programs: int, outside: int) -> str:
    """Return why no operation was marked, or none for some of the functions to mark.

    ``programs`` is the number of Python processes that loaded the hook, which marks calls as operations. ``outside`` is
    the number of marks before or after the recording.
    """
    reasons = []
    if outside:
        marks = "1 mark was" if outside == 1 else f"{outside:,} marks were"
        reasons.append(f"{marks} made before or after the recording")
    by_reason: dict[str, list[Process]] = {}
    for process in processes:
        option = _find_isolating_option(process)
        if option:
            isolated = f"ran an isolated Python ({option}), which loads no hook: run it without {option}"
            by_reason.setdefault(isolated, []).append(process)
        for key in process.apart:
            if key in _APART:
                by_reason.setdefault(_APART[key], []).append(process)
    for reason, (first, *others) in by_reason.items():
        more = f" and {len(others):,} more" if others else ""
        reasons.append(f"process {first.pid} ({clip(first.name, _PROCESS_NAME)}){more} {reason}")
    text = "; ".join(reasons)
    if not programs:
        if any(map(_runs_code, processes)):
            return f"no Python program loaded the hook: {text or _USUAL_REASON}"
        return text or "no Python program was seen"
    loaded = count_text(programs, "Python program")
    if text:
        return f"{loaded} loaded the hook, and {text}"
    return (
        f"{loaded} loaded the hook, but called none of these functions: check their names, and whether a Python "
        "without our environment (env -i, tox) calls them"
    )


def _runs_code(process: Process) -> bool:
    """Return whether a process is a Python that runs the user's code."""
    arguments = " ".join(process.command[1:])
    return process.is_python and not _WITHOUT_CODE.match(arguments)


def _find_isolating_option(process: Process) -> str:
    """Return the option that prevents this Python process from loading the hook: ``-I``; empty if there is none."""
    if not _runs_code(process):
        return ""
    words = iter(process.command[1:])
    for word in words:
        isolating = _ISOLATING_OPTION.match(word)
        if isolating:
            return f"-{isolating[1]}"
        if not word.startswith("-") or word == "-" or _LAST_OPTION.match(word):
            return ""
        if word in {"-W", "-X", "--check-hash-based-pycs"}:
            next(words, None)
    return ""
