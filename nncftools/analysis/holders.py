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

from nncftools.analysis.build_up import NOT_SEEN, SEEN, SHARED, BuildUp, Part
from nncftools.analysis.code_places import PYTHON, imported_package, is_of_user, package_of, source_of
from nncftools.analysis.frames import Node, held_by, tree_of
from nncftools.analysis.memory_kinds import file_held, is_weights
from nncftools.session.model import Frame, SessionData, Snapshots
from nncftools.units import printable, shortened

CODE, IMPORTS, SHARED_PAGES, REST = "code", "imports", "shared_pages", "rest"
_MOST = 4
_SMALL = 0.01
"""A rest that is a smaller part of the memory has no row of its own."""
_HALF = 0.5
_LONGEST_FILE = 40
_LABELS = {IMPORTS: "Python and imports", SHARED_PAGES: "shared pages, counted again", REST: "everything else"}
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
    stack: Sequence[Frame] = ()
    """The frames that name the row, the outermost first."""
    program: str = ""
    """The name of a program without Python."""

    @property
    def is_code(self) -> bool:
        """Whether it is a place in the code, or a program."""
        return self.kind == CODE


def holders(build_up: BuildUp, session: SessionData, most: int = _MOST) -> list[Holder]:
    """Return at most ``most`` rows, the largest first, and one for everything else; they sum to the build-up."""
    snapshots = session.snapshots or Snapshots()
    imports = Counter[str]()
    others = Counter[str]()
    code: list[Part] = []
    for part in build_up.parts:
        package = _imported(part, snapshots)
        if package:
            imports[package] += part.size
        elif part.kind == NOT_SEEN:
            others["not seen"] += part.size
        elif part.kind == SHARED:
            others[SHARED] += part.size
        else:
            code.append(_of_user(part))
    shared = others.pop(SHARED, 0)
    rows = list(_rows(build_up, code, session))
    if imports:
        size = imports.total()
        rows.append(Holder(_LABELS[IMPORTS], size, size, IMPORTS, parts=imports.most_common()))
    if shared:
        rows.append(Holder(_LABELS[SHARED_PAGES], shared, 0, SHARED_PAGES))
    rows.sort(key=lambda row: -row.size)
    return _with_rest(rows, most, others, build_up.size)


def _imported(part: Part, snapshots: Snapshots) -> str:
    """Return the package that a part of the memory was imported with; empty if it was not imported."""
    if part.is_start:
        return PYTHON
    if part.kind != SEEN:
        return ""
    if package := imported_package(part.stack):
        return package
    own = next((frame for frame in reversed(part.stack) if is_of_user(frame)), None)
    statements = [] if own is None else source_of(snapshots, own).split(";")
    matches = [_IMPORT.match(statement.strip()) for statement in statements]
    last = matches[-1] if matches and all(matches) else None
    return "" if last is None else last[1]


def _of_user(part: Part) -> Part:
    """Return a part whose stack has only the frames of the user's code, if there are any.

    Of a function that calls itself, it has the innermost frame. The line of a frame is certain if what it called is:
    then the frame stood still.
    """
    places: list[int] = []
    for place, frame in enumerate(part.stack):
        if not is_of_user(frame):
            continue
        if places and part.stack[places[-1]].code == frame.code:
            places.pop()
        places.append(place)
    if not places or part.kind != SEEN:
        return part
    certain = sum(place + 1 < part.certain for place in places)
    return part._replace(stack=tuple(part.stack[place] for place in places), certain=certain)


def _rows(build_up: BuildUp, code: Sequence[Part], session: SessionData) -> Iterator[Holder]:
    snapshots = session.snapshots or Snapshots()
    called = _called(build_up)
    sums: dict[str, Holder] = {}
    for node in held_by(tree_of(build_up._replace(parts=code))):
        source = "" if node.frame is None else source_of(snapshots, node.frame)
        label = node.label if source else f"{node.label}{_library(node, called)}"
        if node.file_size >= node.size * _HALF:
            file = file_held(session, build_up.at_s, build_up.size, node.file_size)
            label = f"{_file_text(file)}, read in {label}" if file else label
        row = Holder(label, node.size, node.certain, CODE, source, (), node.stack, node.program)
        before = sums.get(label)
        if before is not None:
            row = row._replace(size=row.size + before.size, certain=row.certain + before.certain)
        sums[label] = row
    yield from sums.values()


def _file_text(file: str) -> str:
    """Return the name of a mapped file, and that its pages are not lost memory."""
    kind = "weights; Linux can free them" if is_weights(file) else "a mapped file; Linux can free it"
    return f"{shortened(printable(PurePath(file).name), _LONGEST_FILE)} ({kind})"


def _called(build_up: BuildUp) -> Mapping[Frame, Counter[str]]:
    """Return the functions of libraries that own frames called, with their bytes."""
    called: dict[Frame, Counter[str]] = {}
    for part in build_up.parts:
        own = next((place for place in range(len(part.stack) - 1, -1, -1) if is_of_user(part.stack[place])), None)
        if own is not None and part.stack[own + 1 :]:
            last = part.stack[-1]
            package = package_of(last.file)
            function = last.function.rpartition(".")[2]
            name = function if package == PYTHON else f"{package} {function}"
            called.setdefault(part.stack[own], Counter())[name] += part.size
    return called


def _library(node: Node, called: Mapping[Frame, Counter[str]]) -> str:
    """Return the function of a library that took most of a row: `` (numpy ones)``; empty if no function did."""
    if node.frame is None or not (largest := called.get(node.frame, Counter()).most_common(1)):
        return ""
    name, size = largest[0]
    return f" ({name})" if size >= node.size * _HALF else ""


def _with_rest(rows: Sequence[Holder], most: int, others: Counter[str], whole: int) -> list[Holder]:
    shown = list(rows[:most])
    rest = whole - sum(row.size for row in shown)
    for row in rows[most:]:
        others["other lines" if row.kind == CODE else _LABELS[row.kind]] += row.size
    others["other lines"] += rest - others.total()
    imports = next((place for place, row in enumerate(shown) if row.kind == IMPORTS), None)
    if rest < whole * _SMALL and imports is not None:
        row = shown[imports]
        label = _WITH_REST if rest else row.label
        shown[imports] = row._replace(label=label, size=row.size + rest)
    elif rest > 0:
        parts = [(name, size) for name, size in others.most_common() if size > 0]
        shown.append(Holder(_LABELS[REST], rest, 0, REST, parts=parts))
    return shown
