"""The build-up of the RSS peak: the lines under the headline, collapsed stacks, speedscope, and the page's flame graph.

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
    running_text,
)
from nncftools.analysis.code_places import package_of, short_file, what_runs
from nncftools.analysis.frames import WITHOUT_STACK, Node, holders, tree_of
from nncftools.analysis.rss_levels import Kinds
from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.render import listing
from nncftools.render.listing import NumberedOperation, drop_small, number_operations, timeline
from nncftools.render.view import BREAK, View, command_text, plotly_text
from nncftools.session.model import Frame, MappingGroup, Snapshots
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
    operations = _largest(drop_small(number_operations(timeline(session.operations, view.depth), session), session))
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


_MOST_NODES = 1000
"""With what is merged inside each of them, at most twice as many boxes."""
_SMALLEST_BOX = 0.002
"""As a share of the peak: what is smaller is merged."""
_MOST_LEVELS = 40
_LEVEL_HEIGHT, _PATH_HEIGHT = 21, 22
_FLAME_NAME, _LONGEST_TEXT = 120, 400
_CHARACTERS, _FEWEST_CHARACTERS = 150, 8
"""The graph's width, and the shortest part of a name that is written into a box."""
_WHOLE = "RSS at its peak"
_CERTAIN = 0.5
"""A box is hatched if a smaller part of it is certain."""


def flame(session: Session, view: View) -> dict[str, Any] | None:
    """Return the flame graph for the page, parents first; None when the session has no stacks of its peak."""
    if (build_up := of_peak(session)) is None:
        return None
    boxes = _boxes(tree_of(build_up))
    packages = [None if node.frame is None else package_of(node.frame.file) for _, node in boxes]
    largest_first = sorted((-node.size, of) for (_, node), of in zip(boxes, packages, strict=True) if of is not None)
    fills = listing.choose_package_fills(list(dict.fromkeys(package for _, package in largest_first)))
    legend = {
        _package_name(package) if fill != listing.OTHER_PACKAGES else "other packages": fill.colour
        for package, fill in fills.items()
    }
    labels, texts, hovers, sought = [], [], [], []
    levels: list[int] = []
    for (parent, node), package in zip(boxes, packages, strict=True):
        name, place = _box_name(node), "" if node.frame is None else place_text(node.frame)
        labels.append(plotly_text(name))
        texts.append(plotly_text(_fitted(name, place, int(node.size / build_up.size * _CHARACTERS)), _LONGEST_TEXT))
        hovers.append(_box_text(node, place, build_up.size, view.unit))
        sought.append([name, place, "" if package is None else _package_name(package)])
        levels.append(1 if parent is None else levels[parent] + 1)
    fill_of = [listing.REST if package is None else fills[package] for package in packages]
    trace = {
        "type": "icicle",
        "ids": [f"{number}" for number in range(len(boxes))],
        "parents": ["" if parent is None else f"{parent}" for parent, _ in boxes],
        "labels": labels,
        "values": [node.size for _, node in boxes],
        "text": texts,
        "hovertext": hovers,
        "hovertemplate": "<b>%{label}</b><br>%{hovertext}<extra></extra>",
        "customdata": sought,
        "insidetextfont": {"color": [fill.ink for fill in fill_of]},
        "marker": {
            "colors": [fill.colour for fill in fill_of],
            "pattern": {"shape": ["/" if _is_likely(node) else "" for _, node in boxes]},
        },
    }
    height = min(max(levels), _MOST_LEVELS) * _LEVEL_HEIGHT + _PATH_HEIGHT
    return {
        "traces": [trace],
        "layouts": [{"height": height, "margin": {"l": 0, "r": 0, "t": _PATH_HEIGHT, "b": 0}}],
        "unit": view.unit,
        "bytes": view.unit.factor,
        "digits": view.unit.decimals,
        "text": f"Which code made memory rise to its peak of {view.unit.label(build_up.size)}.",
        "legend": legend,
    }


def _fitted(name: str, place: str, letters: int) -> str:
    """Return the text in a box that is so wide: as much as fits, but the name where a reader must zoom in anyway."""
    short = name.removeprefix("import ")
    for text in (f"{name}  {place}", name, short):
        if len(text) <= letters:
            return text
    return shortened(short, letters) if letters >= _FEWEST_CHARACTERS else name


def _package_name(package: str) -> str:
    return shortened(printable(package), _FLAME_NAME) or "the program itself"


def _is_likely(node: Node) -> bool:
    return node.frame is not None and node.certain < node.size * _CERTAIN


def _box_text(node: Node, place: str, whole: int, unit: MemoryUnit) -> str:
    """Return what is written when the mouse points at a box: its place, its size, and how much of it is certain."""
    lines = [plotly_text(place), f"{unit.label(node.size)}, {100 * node.size / whole:.1f} % of the peak"]
    if node.frame is not None or node.certain:
        is_certain = node.certain == node.size
        lines.append("all of it certain" if is_certain else f"{unit.label(node.certain)} of it certain")
    return BREAK.join(filter(None, lines))


def _boxes(root: Node) -> list[tuple[int | None, Node]]:
    """Return the boxes, parents first, each with the number of its parent; small ones are merged."""
    large = [root]
    for node in large:  # it grows, level by level: of equal ones, the outermost are first
        large += [child for child in node.children.values() if child.size >= root.size * _SMALLEST_BOX]
    drawn = {id(node) for node in sorted(large, key=lambda node: -node.size)[:_MOST_NODES]}
    boxes: list[tuple[int | None, Node]] = []
    waiting: list[tuple[int | None, Node]] = [(None, root)]
    while waiting:
        parent, node = waiting.pop()
        number, children = len(boxes), node.sorted_children
        boxes.append((parent, node))
        if rest := [child for child in children if id(child) not in drawn]:
            size, certain = sum(child.size for child in rest), sum(child.certain for child in rest)
            boxes.append((number, Node(size=size, certain=certain, label=f"… {len(rest):,} more")))
        waiting += [(number, child) for child in reversed(children) if id(child) in drawn]
    return boxes


def _box_name(node: Node) -> str:
    return node.text or _WHOLE if node.frame is None else shortened(printable(what_runs(node.frame)), _FLAME_NAME)
