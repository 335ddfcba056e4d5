"""The code that made up the RSS peak, as report lines, collapsed stacks, speedscope file, and flame graph for HTML.

flamegraph.pl and speedscope read collapsed stacks. A file in speedscope's own format
(https://www.speedscope.app/file-format-schema.json) also has the peaks of operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
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
from nncftools.render.listing import (
    OTHER_PACKAGES,
    REST,
    NumberedOperation,
    choose_package_fills,
    drop_small,
    keep_largest,
    number_operations,
)
from nncftools.render.view import BREAK, View, brief_label, clip, plotly_text, write_title
from nncftools.session.model import Frame, MappingGroup, Snapshots
from nncftools.units import MemoryUnit, printable, seconds_text, shortened


class NamedFrame(NamedTuple):
    """A frame of a stack, with the name that readers see."""

    name: str
    file: str = ""
    """The full path."""
    line: int = 0

    def write(self) -> dict[str, str | int]:
        """Return the known fields, as speedscope expects them."""
        return {key: value for key, value in self._asdict().items() if value}


PEAK = "the peak"
_LONGEST = 200
"""Longest text of a place (file and line) and longest name of a function, in characters; the next constant limits the
names of processes and files.
"""
_SHORT = 32
_KINDS = {"other_files": "smaller files", "stack": "stacks of threads", "shared": "shared memory"}
"""Words for some kinds of memory; the other kinds are readable as they are."""


def lines_of_peak(session: Session, unit: MemoryUnit) -> list[tuple[str, str]]:
    """Return pairs of heading and text: the code at the peak, and the code that held memory at the end.

    The session must have stacks.
    """
    rise = of_peak(session)
    if rise is None:
        return [("stacks", f"none: {explain_missing(session)}")]
    lines = explain_build_up(session, rise)
    end = at_end(session)
    if end is not None:
        rows = [f"{unit.brief(holder.size)} {holder.label}" for holder in holders(end, session)]
        held = f"{brief_label(end.size, unit)} at the end ({seconds_text(end.at_s)}): {', '.join(rows)}"
        lines.append(("still held", held))
    return lines


def explain_build_up(session: Session, rise: BuildUp, whole: str = PEAK) -> list[tuple[str, str]]:
    """Return pairs of heading and text about a build-up (the code that made memory rise).

    ``whole`` is the name of the memory in these texts, such as ``the peak``.
    """
    running = "not seen" if rise.top is None else f"{_name_process(rise.top, session)}{running_text(rise.top)}"
    heading = "running" if whole == PEAK else "rose last"  # at another moment, other code may run
    sizes = [
        rise.sum_of(SEEN, PROGRAM),
        rise.sum_of(SHARED),
        rise.sum_of(NOT_SEEN),
    ]
    seen, shared, not_seen = percents(sizes)
    certain = tree_of(rise).certain
    text = f"{seen} % of {whole}, {min(seen, percents([certain, rise.size - certain])[0])} % certain"
    reason = explain_missing(session, "")
    rest = []
    if shared:
        rest.append(f"{shared} % {WITHOUT_STACK[SHARED]}")
    if not_seen and (shared or reason):
        rest.append(f"{not_seen} % {WITHOUT_STACK[NOT_SEEN]}{f': {reason}' if reason else ''}")
    return [(heading, running), ("seen", f"{text}; {', '.join(rest)}" if rest else text)]


def explain_missing(session: Session, unless: str = "no stack was read of a process whose memory grew") -> str:
    """Return why stacks are missing: the reason from the helper process that reads the stacks, or else ``unless``."""
    return printable((session.snapshots or Snapshots()).missing or unless)


def _name_process(top: Part, session: Session) -> str:
    """Return the name of the process if several processes have stacks; else an empty text."""
    snapshots = session.snapshots or Snapshots()
    if sum(bool(watched.windows) for watched in snapshots.processes) < 2:  # noqa: PLR2004 — several
        return ""
    for process in session.processes:
        if process.id == top.process:
            return f"{clip(process.name, _SHORT)} (pid {process.pid}): "
    return ""


def write_moment(kinds: Kinds, unit: MemoryUnit) -> str:
    """Return the time of the reading of the mappings, and the memory at this time."""
    return f"at {seconds_text(kinds.at_s)}, with {brief_label(kinds.total, unit)}"


def name_kind(group: MappingGroup) -> str:
    """Return the name of a kind of memory; for a single file, the file name without the folder."""
    if group.kind == "file":
        return clip(group.file.rpartition("/")[2] or group.file, _SHORT)
    return _KINDS.get(group.kind, printable(group.kind))


def percents(sizes: Sequence[float]) -> list[int]:
    """Return the sizes as percentages of their sum: whole numbers that add up to 100, or all 0."""
    whole = sum(sizes) or 1.0
    exact = [size / whole * 100 for size in sizes]
    shares = [int(share) for share in exact]
    by_rest = sorted(
        range(len(sizes)),
        key=lambda index: shares[index] - exact[index],
    )
    for index in by_rest[: round(sum(exact)) - sum(shares)]:
        shares[index] += 1
    return shares


def _require_peak(session: Session, format_: str) -> BuildUp:
    """Return the build-up of the peak (the code that made memory rise).

    Raise NncfToolsError if the build-up is unknown. The message names the output format ``format_``.
    """
    rise = of_peak(session)
    if rise is not None:
        return rise
    snapshots = session.snapshots or Snapshots()
    reason = "the moment of the peak is unknown" if snapshots.stacks else "this session has none"
    if snapshots.missing:
        reason = f"none were taken: {printable(snapshots.missing)}"
    raise NncfToolsError(f"{format_} needs the stacks of the peak; {reason}", remedy="stacks")


_Stack = tuple[NamedFrame, ...]


def _list_stacks(build_up: BuildUp, *, only_certain: bool = False) -> Iterator[tuple[_Stack, int]]:
    """Yield each stack, the outermost frame first, with its bytes; all bytes add up to the peak.

    If ``only_certain`` is true, a stack ends at the innermost function that certainly holds the memory. Memory without
    any such function has the stack ``[not certain]``.
    """
    waiting: list[tuple[_Stack, Node]] = [((), tree_of(build_up))]
    while waiting:
        stack, node = waiting.pop()
        size = node.certain if only_certain and stack else node.size
        for child in node.children.values():
            if child.frame is None:
                size -= child.size
                yield (NamedFrame(f"[{child.text}]"),), child.size
            else:
                size -= child.certain if only_certain else child.size
                waiting.append(((*stack, _name_frame(child.frame)), child))
        if size:
            yield stack or (NamedFrame("[not certain]"),), size


def write_place(frame: Frame) -> str:
    """Return file and line of a frame. The path begins with the package: ``torch/jit/_trace.py:455``."""
    line = f":{frame.line}" if frame.line else ""
    return f"{clip(short_file(frame.file), _LONGEST)}{line}"


def _name_frame(frame: Frame) -> NamedFrame:
    """Return a frame whose name has function and place: ``_check_trace (torch/jit/_trace.py:455)``."""
    function = clip(frame.function, _LONGEST) or "?"
    place = write_place(frame)
    return NamedFrame(f"{function} ({place})" if place else function, printable(frame.file), frame.line)


def collapsed_report(session: Session, _view: View) -> str:
    """Return a line for each stack, the largest first: ``outer_frame;inner_frame BYTES``.

    Raises NncfToolsError if the session has no stacks.
    """
    sums = Counter[str]()
    for frames, size in _list_stacks(_require_peak(session, "collapsed")):
        names = [frame.name.replace(";", ":") for frame in frames]
        sums[";".join(names)] += size
    largest_first = sorted(
        sums.items(),
        key=lambda item: (-item[1], item[0]),
    )
    return "".join(f"{stack} {size}\n" for stack, size in largest_first)


_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_MOST_OPERATIONS = 10


def report(session: Session, view: View) -> bytes:
    """Return a speedscope file in UTF-8, with profiles of the RSS peak and of the peaks of operations.

    A second profile of the RSS peak counts only memory that certainly belongs to a function. Raises NncfToolsError if
    the session has no stacks.
    """
    peak = _require_peak(session, "speedscope")
    indexes: dict[NamedFrame, int] = {}
    profiles = [
        _make_profile("Peak", peak, indexes),
        _make_profile("Peak, what is certain", peak, indexes, only_certain=True),
    ]
    operations = _select_largest(session, view)
    moments = [moment for _, moment in operations]
    for (row, _), build_up in zip(operations, build_ups(session, moments), strict=True):
        if build_up is not None:
            profiles.append(_make_profile(f"{row.number} {row.title}", build_up, indexes))
    document = {
        "$schema": _SCHEMA,
        "exporter": f"nncf-tools {session.tool_version}".rstrip(),
        "name": write_title(session, view, _LONGEST),
        "activeProfileIndex": 0,
        "shared": {"frames": [frame.write() for frame in indexes]},
        "profiles": profiles,
    }
    return msgspec.json.encode(document) + b"\n"


def _make_profile(
    name: str, build_up: BuildUp, indexes: dict[NamedFrame, int], *, only_certain: bool = False
) -> dict[str, Any]:
    """Return a speedscope profile. ``indexes`` maps each frame to its number in the file; new frames are added."""
    samples = []
    weights = []
    for stack, size in _list_stacks(build_up, only_certain=only_certain):
        samples.append([indexes.setdefault(frame, len(indexes)) for frame in stack])
        weights.append(size)
    return {
        "type": "sampled",
        "name": f"{clip(name, _LONGEST)}, at {seconds_text(build_up.at_s)}",
        "unit": "bytes",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _select_largest(session: Session, view: View) -> list[tuple[NumberedOperation, Moment]]:
    operations = number_operations(session, view.depth)
    known = []
    for row in drop_small(operations, session):
        peak = row.operation.of("rss").peak
        if peak is not None:
            moment = Moment(peak.from_s, peak.to_s, round(peak.low))
            known.append((row, moment))
    return keep_largest(known, _MOST_OPERATIONS, lambda item: item[1].size)


_MOST_NODES = 1000
"""Largest number of boxes in the flame graph, not counting the boxes that merge others."""
_SMALLEST_BOX = 0.002
"""Boxes below this share of the peak are merged."""
_MOST_LEVELS = 40
_LEVEL_HEIGHT = 21
_PATH_HEIGHT = 22
_FLAME_NAME = 120
_LONGEST_TEXT = 400
_CHARACTERS = 150
"""Width of the flame graph, in characters."""
_FEWEST_CHARACTERS = 8
"""A name is not cut to fewer characters than these."""
_WHOLE = "RSS at its peak"
_CERTAIN = 0.5
"""A box is hatched if less than this share of its memory certainly belongs to its code."""


class _Box(NamedTuple):
    node: Node
    parent: int | None
    """Index of the parent; None for the root box (the whole peak)."""
    level: int

    @property
    def name(self) -> str:
        if self.node.frame is None:
            return self.node.text or _WHOLE
        return clip(what_runs(self.node.frame), _FLAME_NAME)

    @property
    def place(self) -> str:
        return "" if self.node.frame is None else write_place(self.node.frame)

    @property
    def package(self) -> str | None:
        """The package; empty for the program's own code, None for memory without code."""
        return None if self.node.frame is None else package_of(self.node.frame.file)


def flame(session: Session, view: View) -> dict[str, Any] | None:
    """Return the flame graph for the page; None if the peak has no stacks. Outer boxes come before inner boxes."""
    build_up = of_peak(session)
    if build_up is None:
        return None
    boxes = _make_boxes(tree_of(build_up))
    sizes = sorted(
        (
            -box.node.size,
            box.package,
        )
        for box in boxes
        if box.package is not None
    )
    fills = choose_package_fills(list(dict.fromkeys(package for _, package in sizes)))
    legend = {}
    for name, fill in fills.items():
        legend["other packages" if fill == OTHER_PACKAGES else _name_package(name)] = fill.colour
    texts = []
    sought = []
    fill_of = []
    for box in boxes:
        package = box.package
        room = int(box.node.size / build_up.size * _CHARACTERS)
        texts.append(plotly_text(_fit_name(box.name, box.place, room), _LONGEST_TEXT))
        sought.append([box.name, box.place, "" if package is None else _name_package(package)])
        fill_of.append(REST if package is None else fills[package])
    trace = {
        "type": "icicle",
        "ids": [f"{number}" for number in range(len(boxes))],
        "parents": ["", *(f"{box.parent}" for box in boxes[1:])],
        "labels": [plotly_text(box.name) for box in boxes],
        "values": [box.node.size for box in boxes],
        "text": texts,
        "hovertext": [_write_hover(box, build_up.size, view.unit) for box in boxes],
        "hovertemplate": "<b>%{label}</b><br>%{hovertext}<extra></extra>",
        "customdata": sought,
        "insidetextfont": {"color": [fill.ink for fill in fill_of]},
        "marker": {
            "colors": [fill.colour for fill in fill_of],
            "pattern": {"shape": ["/" * _is_likely(box.node) for box in boxes]},
        },
    }
    levels = min(max(box.level for box in boxes), _MOST_LEVELS)
    height = levels * _LEVEL_HEIGHT + _PATH_HEIGHT
    return {
        "traces": [trace],
        "layouts": [{"height": height, "margin": {"l": 0, "r": 0, "t": _PATH_HEIGHT, "b": 0}}],
        "unit": view.unit,
        "bytes": view.unit.factor,
        "digits": view.unit.decimals,
        "text": f"The code that made memory rise to its peak of {view.unit.label(build_up.size)}.",
        "legend": legend,
    }


def _fit_name(name: str, place: str, room: int) -> str:
    """Return the text for a box: name and place if they fit, else the name, whole or cut.

    A box that is too small for any text gets the whole name, because readers can zoom in.
    """
    short = name.removeprefix("import ")
    for text in (f"{name}  {place}", name, short):
        if len(text) <= room:
            return text
    return shortened(short, room) if room >= _FEWEST_CHARACTERS else name


def _name_package(package: str) -> str:
    return clip(package, _FLAME_NAME) or "the program itself"


def _is_likely(node: Node) -> bool:
    return node.frame is not None and node.certain < node.size * _CERTAIN


def _write_hover(box: _Box, whole: int, unit: MemoryUnit) -> str:
    """Return the tooltip of a box: file and line, size, and the part of the size that certainly belongs to the code."""
    node = box.node
    lines = [plotly_text(box.place), f"{unit.label(node.size)}, {100 * node.size / whole:.1f} % of the peak"]
    if node.certain == node.size:
        lines.append("all of it certain")
    elif node.frame is not None or node.certain:
        lines.append(f"{unit.label(node.certain)} of it certain")
    return BREAK.join(filter(None, lines))


def _make_boxes(root: Node) -> list[_Box]:
    """Return the boxes of the flame graph, outer boxes before inner boxes; small boxes are merged."""
    large = [root]
    for node in large:  # the list grows in this loop, outer levels first, so that of equal nodes the outer nodes stay
        large += [child for child in node.children.values() if child.size >= root.size * _SMALLEST_BOX]
    drawn = {id(node) for node in keep_largest(large, _MOST_NODES, lambda node: node.size)}
    boxes: list[_Box] = []
    waiting = [_Box(root, None, 1)]
    while waiting:
        box = waiting.pop()
        number = len(boxes)
        boxes.append(box)
        shown = []
        rest = []
        for child in box.node.sorted_children:
            if id(child) in drawn:
                shown.append(_Box(child, number, box.level + 1))
            else:
                rest.append(child)
        if rest:
            merged = Node(
                size=sum(child.size for child in rest),
                certain=sum(child.certain for child in rest),
                label=f"… {len(rest):,} more",
            )
            boxes.append(_Box(merged, number, box.level + 1))
        waiting += reversed(shown)
    return boxes
