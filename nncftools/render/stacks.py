"""The build-up of the RSS peak: the lines under the headline, collapsed stacks, and speedscope.

flamegraph.pl and speedscope read collapsed stacks. speedscope's own format
(https://www.speedscope.app/file-format-schema.json) has the peaks of operations, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from nncftools.analysis.build_up import (
    NOT_SEEN,
    PROGRAM,
    SEEN,
    SHARED,
    BuildUp,
    Moment,
    Part,
    at_end,
    build_ups,
    of_peak,
)
from nncftools.analysis.code_places import short_file
from nncftools.analysis.frames import WITHOUT_STACK, Node, running_text, tree_of
from nncftools.analysis.holders import holders
from nncftools.analysis.memory_kinds import Kinds
from nncftools.errors import NncfToolsError
from nncftools.render.listing import NumberedOperation, numbered, timeline, without_small
from nncftools.render.view import View, command_text
from nncftools.session.model import Frame, MappingGroup, Snapshots
from nncftools.session.session import Session
from nncftools.units import MemoryUnit, printable, seconds_text, shortened


class Named(NamedTuple):
    """A frame with what a reader sees of it."""

    name: str
    file: str = ""
    """The whole path."""
    line: int = 0


PEAK = "the peak"
_LONGEST = 200
_SHORT = 32
"""Characters of a name."""
_WORDS = {"other_files": "smaller files", "stack": "stacks of threads", "shared": "shared memory"}
"""Other kinds are called by their names."""


def lines_of_peak(session: Session, unit: MemoryUnit) -> list[tuple[str, str]]:
    """Return headings and texts about the peak of RSS of a session with snapshots, and about its end."""
    if (rise := of_peak(session)) is None:
        return [("stacks", f"none: {missing(session)}")]
    lines = lines_of(session, rise)
    if (end := at_end(session)) is not None:
        rows = [f"{unit.brief(holder.size)} {holder.label}" for holder in holders(end, session)]
        held = f"{unit.brief(end.size)} {unit} at the end ({seconds_text(end.at_s)}): {', '.join(rows)}"
        lines.append(("still held", held))
    return lines


def lines_of(session: Session, rise: BuildUp, whole: str = PEAK) -> list[tuple[str, str]]:
    """Return headings and texts about a build-up; ``whole`` is what it is of."""
    root = tree_of(rise)
    last = "running" if whole == PEAK else "rose last"  # at another moment, something else may run
    running = last, "not seen" if rise.top is None else _process(rise.top, session) + running_text(rise.top)
    seen = "seen", _seen(rise, root.certain, session, whole)
    return [running, seen]


def missing(session: Session, unless: str = "no stack was seen of any process whose memory grew") -> str:
    """Return why stacks are missing: what the helper said, ``unless`` it said nothing."""
    return printable((session.snapshots or Snapshots()).missing or unless)


def _process(top: Part, session: Session) -> str:
    """Return the process, if several processes have stacks; else nothing."""
    snapshots = session.snapshots
    if snapshots is None or sum(bool(watched.windows) for watched in snapshots.processes) < 2:  # noqa: PLR2004 — several
        return ""
    process = next((process for process in session.processes if process.id == top.process), None)
    return "" if process is None else f"{shortened(printable(process.name), _SHORT)} (pid {process.pid}): "


def moment_text(kinds: Kinds, unit: MemoryUnit) -> str:
    """Return when mappings were read, and how much memory there was."""
    return f"at {seconds_text(kinds.at_s)}, with {unit.brief(kinds.total)} {unit}"


def kind_name(group: MappingGroup) -> str:
    """Return what a group of mappings is, in words; a file has its name without its folder."""
    if group.kind == "file":
        return shortened(printable(group.file.rpartition("/")[2] or group.file), _SHORT)
    return _WORDS.get(group.kind, printable(group.kind))


def _seen(rise: BuildUp, certain: int, session: Session, whole: str) -> str:
    """Return which part of the memory was seen and which is certain, and what the rest is."""
    seen, shared, not_seen = percents([rise.sum_of(SEEN, PROGRAM), rise.sum_of(SHARED), rise.sum_of(NOT_SEEN)])
    text = f"{seen} % of {whole}, {min(seen, percents([certain, rise.size - certain])[0])} % certain"
    reason = missing(session, "")
    rest = [f"{shared} % {WITHOUT_STACK[SHARED]}"] if shared else []
    if not_seen and (shared or reason):
        rest.append(f"{not_seen} % {WITHOUT_STACK[NOT_SEEN]}{f': {reason}' if reason else ''}")
    return f"{text}; {', '.join(rest)}" if rest else text


def percents(sizes: Sequence[float]) -> list[int]:
    """Return the shares of a whole in percent: they sum to 100, or are all 0."""
    whole = sum(sizes)
    exact = [size / whole * 100 if whole else 0.0 for size in sizes]
    shares = [int(share) for share in exact]
    by_rest = sorted(range(len(sizes)), key=lambda place: shares[place] - exact[place])
    for place in by_rest[: round(sum(exact)) - sum(shares)]:
        shares[place] += 1
    return shares


def build_up_of_peak(session: Session, format_: str) -> BuildUp:
    """Return the build-up of the peak. Raises NncfToolsError, which names the format, when it is not known."""
    if (rise := of_peak(session)) is not None:
        return rise
    snapshots = session.snapshots or Snapshots()
    why = "the moment of the peak is unknown" if snapshots.stacks else "this session has none"
    why = f"none were taken: {printable(snapshots.missing)}" if snapshots.missing else why
    raise NncfToolsError(f"{format_} needs the stacks of the peak; {why}", remedy="stacks")


def named_stacks(build_up: BuildUp, *, only_certain: bool = False) -> Iterator[tuple[tuple[Named, ...], int]]:
    """Yield stacks, the outermost frame first, and their bytes: they sum to the peak.

    With ``only_certain``, memory counts for the innermost function that it certainly belongs to, if there is one.
    """
    waiting: list[tuple[tuple[Named, ...], Node]] = [((), tree_of(build_up))]
    while waiting:
        above, node = waiting.pop()
        size = node.certain if only_certain and above else node.size
        for child in node.children.values():
            size -= child.certain if only_certain and child.frame is not None else child.size
            if child.frame is None:
                yield (Named(f"[{child.text}]"),), child.size
            else:
                waiting.append(((*above, _named(child.frame)), child))
        if size:
            yield above or (Named("[not certain]"),), size


def place_text(frame: Frame) -> str:
    """Return file and line, from the package on: ``torch/jit/_trace.py:455``."""
    line = f":{frame.line}" if frame.line else ""
    return f"{shortened(printable(short_file(frame.file)), _LONGEST)}{line}"


def _named(frame: Frame) -> Named:
    """Return a frame with its function and its place as the name: ``_check_trace (torch/jit/_trace.py:455)``."""
    function = shortened(printable(frame.function), _LONGEST) or "?"
    where = place_text(frame)
    return Named(f"{function} ({where})" if where else function, printable(frame.file), frame.line)


def collapsed_report(session: Session, _view: View) -> str:
    """Return one line per stack, ``frame;frame bytes``, the outermost frame first and the largest stack first.

    Raises NncfToolsError when the session has no stacks.
    """
    sums = Counter[str]()
    for frames, size in named_stacks(build_up_of_peak(session, "collapsed")):
        sums[";".join(frame.name.replace(";", ":") for frame in frames)] += size
    largest_first = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    return "".join(f"{stack} {size}\n" for stack, size in largest_first)


_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_MOST_OPERATIONS = 10


def report(session: Session, view: View) -> bytes:
    """Return the profiles in UTF-8, in bytes of memory: the peak, what of it is certain, and each operation's own peak.

    Raises NncfToolsError when the session has no stacks.
    """
    peak = build_up_of_peak(session, "speedscope")
    places: dict[Named, int] = {}
    profiles = [_profile("Peak", peak, places), _profile("Peak, what is certain", peak, places, only_certain=True)]
    operations = _largest(without_small(numbered(timeline(session.operations, view.depth), session), session))
    for (row, _), build_up in zip(operations, build_ups(session, [of for _, of in operations]), strict=True):
        if build_up is not None:
            profiles.append(_profile(f"{row.number} {row.title}", build_up, places))
    frames = [{key: value for key, value in frame._asdict().items() if value} for frame in places]
    document = {
        "$schema": _SCHEMA,
        "exporter": f"nncf-tools {session.tool_version}".rstrip(),
        "name": shortened(printable(view.title) or command_text(session), _LONGEST),
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    }
    return msgspec.json.encode(document) + b"\n"


def _profile(name: str, of: BuildUp, places: dict[Named, int], *, only_certain: bool = False) -> dict[str, Any]:
    """Return a profile; new frames are added to ``places``, the list that all profiles share."""
    held = list(named_stacks(of, only_certain=only_certain))
    return {
        "type": "sampled",
        "name": f"{shortened(printable(name), _LONGEST)}, at {seconds_text(of.at_s)}",
        "unit": "bytes",
        "startValue": 0,
        "endValue": sum(size for _, size in held),
        "samples": [[places.setdefault(frame, len(places)) for frame in stack] for stack, _ in held],
        "weights": [size for _, size in held],
    }


def _largest(every: Iterable[NumberedOperation]) -> list[tuple[NumberedOperation, Moment]]:
    """Return the operations with the largest peaks, in the order of the table, and these peaks."""
    peaks = ((row, row.operation.of("rss").peak) for row in every)
    known = [(row, Moment(of.from_s, of.to_s, round(of.low))) for row, of in peaks if of is not None]
    largest = sorted(known, key=lambda item: -item[1].size)[:_MOST_OPERATIONS]
    numbers = {row.number for row, _ in largest}
    return [item for item in known if item[0].number in numbers]
