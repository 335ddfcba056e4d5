"""Who holds the memory of a build-up: a few rows that sum to the whole, named by the user's own code.

A row is the deepest frame of the user's own code; a program without own code has the frames of its libraries. All
imports are one row, and so are the pages that forked copies share. The last row is everything else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from msgspec.structs import astuple

from nncftools.analysis.build_up import NOT_SEEN, SEEN, SHARED, BuildUp, Part, of_peak
from nncftools.analysis.code_places import (
    OWN,
    PYTHON,
    deepest_own,
    imported_package,
    is_of_user,
    last_line,
    own_places,
    package_of,
    source_of,
)
from nncftools.analysis.frames import held_by, tree_of
from nncftools.analysis.rise_owners import Stack
from nncftools.analysis.session import Session
from nncftools.session.model import Frame, MappingGroup, MappingsMoment, SessionData, Snapshots
from nncftools.units import printable, shortened

_FAR_S = 10.0
"""Mappings that were read this long before or after the peak are as unlike it as those of twice its size."""
_SAME_SIZE, _SAME_TIME_S = 0.02, 0.2
"""Mappings that are nearer than both are those of the moment: reading them takes up to 0.1 s."""
_OTHER_SIZE = 0.25
_MOST_OF_FILE = 0.5
_WEIGHTS = ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".onnx_data", ".onnx.data"
"""The endings of files with the weights of a model."""


class Kinds(NamedTuple):
    """The resident memory of the largest processes at one moment, in bytes."""

    at_s: float
    total: int
    """The RSS of all processes."""
    groups: Sequence[MappingGroup]
    """Each kind, and each large file, once for all processes; the largest first."""
    is_of_moment: bool
    """Whether it is so near to the moment asked for that it stands for it."""
    is_other_memory: bool
    """Whether there was so much more or less memory that it says nothing about that moment."""

    @property
    def not_read(self) -> int:
        """The bytes of processes whose mappings were not read."""
        return max(0, self.total - sum(group.rss for group in self.groups))


def near(session: SessionData, at_s: float, size: int) -> Kinds | None:
    """Return what memory was near a moment at which RSS was ``size`` bytes; None when no mappings were read."""
    moments = session.snapshots.mappings if session.snapshots is not None else []
    if not moments or size <= 0:
        return None

    def distance(moment: MappingsMoment) -> float:
        far_s = abs(moment.time_s - at_s)
        return abs(moment.total - size) / size + (far_s / _FAR_S if far_s > _SAME_TIME_S else 0.0)

    best = min(moments, key=distance)
    off, far_s = abs(best.total - size), abs(best.time_s - at_s)
    is_of_moment = off <= size * _SAME_SIZE and far_s <= _SAME_TIME_S
    return at(best)._replace(is_of_moment=is_of_moment, is_other_memory=off > size * _OTHER_SIZE)


def at(moment: MappingsMoment) -> Kinds:
    """Return what memory was at a moment at which mappings were read."""
    sums: dict[tuple[str, str], list[int]] = {}
    for kind, file, *sizes in (astuple(group) for process in moment.processes for group in process.groups):
        sums[kind, file] = [sum(both) for both in zip(sums.get((kind, file), [0] * len(sizes)), sizes, strict=True)]
    groups = sorted((MappingGroup(*key, *sizes) for key, sizes in sums.items()), key=lambda group: -group.rss)
    total = max(moment.total, sum(group.rss for group in groups))  # it may grow between the helper's poll and this
    return Kinds(moment.time_s, total, groups, is_of_moment=True, is_other_memory=False)


def file_held(session: SessionData, at_s: float, size: int, file_size: int) -> str:
    """Return the path of the mapped file that most of ``file_size`` bytes of files are pages of.

    They are a part of ``size`` bytes of RSS at a moment. Of the files, and of all libraries together, that hold at
    least half of the bytes, the one nearest in size counts. Empty if that is no single file, or if no mappings were
    read near the moment.
    """
    kinds = near(session, at_s, size)
    if kinds is None or kinds.is_other_memory or file_size <= 0:
        return ""
    large = [group for group in kinds.groups if group.pages_of_file >= file_size * _MOST_OF_FILE]
    nearest = min(large, key=lambda group: abs(group.pages_of_file - file_size), default=None)
    return "" if nearest is None else nearest.file


def is_weights(path: str) -> bool:
    """Return whether the name of a file ends like those of the weights of models."""
    return path.lower().endswith(_WEIGHTS)


CODE, IMPORTS, SHARED_PAGES, REST = "code", "imports", "shared_pages", "rest"
_MOST = 4
_SMALL = 0.01
"""A rest that is a smaller part of the memory has no row of its own."""
_HALF = 0.5
_LONGEST_FILE, _LONGEST_NAME = 40, 60
_LABELS = {IMPORTS: "Python and imports", SHARED_PAGES: "shared pages, counted again", REST: "everything else"}
_LINES = "other lines"
_WITH_REST = "Python, imports and everything else"
_IMPORT = re.compile(r"(?:import|from)\s+(\w+)")


class Holder(NamedTuple):
    """A row: its name and its bytes."""

    label: str
    """The name that every output shows."""
    size: int
    certain: int
    """The part of ``size`` that certainly belongs to this row."""
    kind: str = CODE
    source: str = ""
    """The text of the line, if it is known."""
    parts: Sequence[tuple[str, int]] = ()
    """Names and bytes of the largest parts of a row that is not code."""
    stack: Stack = ()
    """The frames of its largest part, the outermost first."""
    program: str = ""
    """The name of a program without Python."""
    or_later: str = ""
    """The function that ran later and may hold most of this memory instead; empty for none."""

    @property
    def is_code(self) -> bool:
        """Whether it is a place in the code, or a program."""
        return self.kind == CODE


def peak_holders(session: Session, most: int = _MOST) -> list[Holder]:
    """Return who held the RSS peak, as ``holders`` does; empty without stacks."""
    return [] if (build_up := of_peak(session)) is None else _with_rest(*session.once(_of_peak), most, build_up.size)


def _of_peak(session: Session) -> tuple[list[Holder], Counter[str]]:
    build_up = of_peak(session)
    assert build_up is not None
    return _every(build_up, session)


def holders(build_up: BuildUp, session: SessionData, most: int = _MOST) -> list[Holder]:
    """Return at most ``most`` rows, the largest first, and one for everything else; they sum to the build-up."""
    return _with_rest(*_every(build_up, session), most, build_up.size)


def _every(build_up: BuildUp, session: SessionData) -> tuple[list[Holder], Counter[str]]:
    """Return all rows, the largest first, and by name what else there is."""
    snapshots = session.snapshots or Snapshots()
    imports = Counter[str]()
    others = Counter[str]()
    code: list[Part] = []
    shared = 0
    for part in build_up.parts:
        package = _imported(part, snapshots)
        if package:
            imports[package] += part.size
        elif part.kind == NOT_SEEN:
            others["not seen"] += part.size
        elif part.kind == SHARED:
            shared += part.size
        else:
            code.append(_of_user(part))
    rows = list(_rows(build_up, _placed(code), session))
    if imports:
        size = imports.total()
        rows.append(Holder(_LABELS[IMPORTS], size, size, IMPORTS, parts=imports.most_common()))
    if shared:
        rows.append(Holder(_LABELS[SHARED_PAGES], shared, 0, SHARED_PAGES))
    rows.sort(key=lambda row: -row.size)
    return rows, others


def _imported(part: Part, snapshots: Snapshots) -> str:
    """Return the package that a part of the memory was imported with; empty if it was not imported."""
    if part.is_start:
        return PYTHON
    if part.kind != SEEN:
        return ""
    if package := imported_package(part.stack):
        return package
    own = deepest_own(part.stack)
    statements = [] if own is None else source_of(snapshots, own).split(";")
    matches = [_IMPORT.match(statement.strip()) for statement in statements]
    last = matches[-1] if matches and all(matches) else None
    return "" if last is None else last[1]


def _of_user(part: Part) -> Part:
    """Return a part whose stack has only the frames of the user's code, if there are any.

    Of a function that calls itself, it has the innermost frame.
    """
    places: list[int] = []
    for place in own_places(part.stack):
        frame = part.stack[place]
        if places and part.stack[places[-1]].code == frame.code:
            places.pop()
        places.append(place)
    if not places or part.kind != SEEN:
        return part
    certain = sum(place < part.certain for place in places)
    still = sum(place < part.still for place in places)
    return part._replace(stack=tuple(part.stack[place] for place in places), certain=certain, still=still)


def _placed(code: Sequence[Part]) -> list[Part]:
    """Return parts of which those without a certain line have the line of their function that took more than they did.

    Where no line did, all lines of this function have none: they are one row.
    """
    known: dict[tuple[Stack, tuple[str, str]], Counter[Frame]] = {}
    unknown = Counter[Stack]()
    for part in code:
        if not part.stack:
            continue
        frame = part.stack[-1]
        if frame.line and not last_line(frame):
            known.setdefault((part.stack[:-1], frame.code), Counter())[frame] += part.size
        else:
            unknown[part.stack] += part.size
    moved: dict[Stack, Stack] = {}
    for stack, size in unknown.items():
        above, frame = stack[:-1], stack[-1]
        lines = known.get((above, frame.code), Counter[Frame]())
        possible = [line for line in lines if not frame.line or frame.line <= line.line <= last_line(frame)]
        best = max(possible, key=lines.__getitem__, default=frame)
        if lines[best] >= size:
            moved[stack] = (*above, best)
        elif not frame.line:
            moved |= {(*above, line): stack for line in possible}
    return [part._replace(stack=moved.get(part.stack, part.stack)) for part in code]


def _rows(build_up: BuildUp, code: Sequence[Part], session: SessionData) -> Iterator[Holder]:
    snapshots = session.snapshots or Snapshots()
    stacks = _stacks(build_up)
    sums: dict[str, Holder] = {}
    for node in held_by(tree_of(build_up._replace(parts=code))):
        label, source, stack = node.label, "", tuple(node.stack)
        if node.frame is not None and (below := stacks.get(node.frame)):
            stack = max(below, key=below.__getitem__)
            source = source_of(snapshots, node.frame)
            label += "" if source else _library(below, node.size)
        if node.file_size >= node.size * _HALF:
            file = file_held(session, build_up.at_s, build_up.size, node.file_size)
            label = f"{_file_text(file)}, read in {label}" if file else label
        row = Holder(label, node.size, node.certain, CODE, source, (), stack, node.program, node.or_later)
        if label in sums:
            row = row._replace(size=row.size + sums[label].size, certain=row.certain + sums[label].certain)
        sums[label] = row
    yield from sums.values()


def _file_text(file: str) -> str:
    """Return the name of a mapped file, and that its pages are not lost memory."""
    kind = "weights; Linux can free them" if is_weights(file) else "a mapped file; Linux can free it"
    return f"{shortened(printable(PurePath(file).name), _LONGEST_FILE)} ({kind})"


def _stacks(build_up: BuildUp) -> Mapping[Frame, Counter[Stack]]:
    """Return the whole stacks with their bytes, by the deepest frame of the user's code."""
    stacks: dict[Frame, Counter[Stack]] = {}
    for part in build_up.parts:
        own = deepest_own(part.stack)
        if own is not None:
            stacks.setdefault(own, Counter())[part.stack] += part.size
    return stacks


def _library(stacks: Mapping[Stack, int], size: int) -> str:
    """Return the function of a library that took most of a row: `` (numpy ones)``; empty if none did."""
    names = Counter[str]()
    for stack, part in stacks.items():
        last = stack[-1]
        if not is_of_user(last):
            package = package_of(last.file)
            function = last.function.rpartition(".")[2]
            name = function if package in {PYTHON, OWN} else f"{package} {function}"
            names[shortened(printable(name), _LONGEST_NAME)] += part
    (name, most), *_ = names.most_common(1) or [("", 0)]
    return f" ({name})" if name and most >= size * _HALF else ""


def _with_rest(every: Sequence[Holder], named: Counter[str], most: int, whole: int) -> list[Holder]:
    """Return the first rows, of which one is the largest code, and one row for everything else."""
    rows, others = list(every), Counter(named)
    beside = whole - sum(row.size for row in rows)
    others[_LINES] += beside - others.total()
    imports = next((place for place, row in enumerate(rows) if row.kind == IMPORTS), None)
    if imports is not None and beside < whole * _SMALL:  # too little for a row
        label = _WITH_REST if beside else rows[imports].label
        rows[imports] = rows[imports]._replace(label=label, size=rows[imports].size + beside)
        others.clear()
    code = [row for row in rows if row.is_code][:1]
    shown = rows[:most] if not code or code[0] in rows[:most] else [*rows[: most - 1], *code]
    for row in rows:
        if row not in shown:
            others[_LINES if row.is_code else row.label] += row.size
    rest = whole - sum(row.size for row in shown)
    if rest > 0:
        parts = [(name, size) for name, size in others.most_common() if size > 0]
        shown.append(Holder(_LABELS[REST], rest, 0, REST, parts=parts if len(parts) > 1 else ()))
    return shown
