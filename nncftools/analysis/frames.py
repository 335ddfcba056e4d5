"""Who holds the memory of a build-up: its tree of frames, the places in it that hold most, and a few rows for people.

Every output that shows code is a view of the tree. A frame is a function at a line: two lines of one function are two
places. What programs without Python hold, and what has no stack, stands beside the outermost frames.

The rows sum to the whole. A row is the deepest frame of the user's own code; a program without own code has the frames
of its libraries. All imports are one row, and so are the pages that forked copies share. The last row is everything
else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

from nncftools.analysis.build_up import (
    NOT_SEEN,
    PROGRAM,
    SEEN,
    SHARED,
    BuildUp,
    Freed,
    Memory,
    Part,
    imported_with,
    of_peak,
    running_text,
)
from nncftools.analysis.code_places import (
    OWN,
    PYTHON,
    Stack,
    brief_label,
    deepest_own,
    is_of_user,
    last_line,
    library_text,
    module_of,
    own_places,
    package_of,
    place_labels,
    reported_frames,
    shared_depth,
    source_of,
)
from nncftools.analysis.rss_levels import file_held, mapped_file_text
from nncftools.analysis.session import Session
from nncftools.session.model import Frame, SessionData, Snapshots
from nncftools.units import printable, shortened

_SMALL = 0.05
"""A smaller part of the peak is not named: there are at most 20 larger ones."""
_HALF = 0.5
"""A place is divided into its parts if these hold half of it; then they say more than the place does."""
_LEAST_DOUBT = 16 << 20
"""Of a place that later functions may hold less of, none of them is named."""

WITHOUT_STACK = {NOT_SEEN: "not seen", SHARED: "shared with the parent"}
"""What has no stack, in words."""


@dataclass(eq=False)
class Node:
    """A frame at its place in the stacks, with all that was taken in it and in what it called; bytes."""

    frame: Frame | None = None
    """None for the whole, for a program, and for what has no stack."""
    parent: Node | None = None
    kind: str = SEEN
    """As of ``Part``."""
    program: str = ""
    """The name of a program."""
    processes: set[int | None] = field(default_factory=set)
    """Of a program: the ``id`` of each of its processes."""
    size: int = 0
    certain: int = 0
    """The part of ``size`` that certainly belongs here."""
    own: int = 0
    """The part of ``size`` that was taken here, not in what was called from here."""
    own_certain: int = 0
    file_size: int = 0
    """The part of ``size`` that is pages of mapped files or of shared memory."""
    levels: Counter[tuple[bool, Memory, int]] = field(default_factory=Counter)
    """The bytes that a later fall may have taken, by whether they are only likely, and by ``epoch`` as of ``Part``."""
    doubt: int = 0
    """The bytes that later functions may hold: memory fell, and nobody can say whose."""
    later: Counter[Stack] = field(default_factory=Counter)
    """By functions of the user's own code: the bytes that are taken to be gone in place of ``doubt``."""
    label: str = ""
    """The name of what is no frame, and of a place that ``held_by`` found."""
    children: dict[Hashable, Node] = field(default_factory=dict)

    @property
    def sorted_children(self) -> list[Node]:
        """The parts, the largest first."""
        return sorted(self.children.values(), key=lambda node: -node.size)

    @property
    def stack(self) -> list[Frame]:
        """The frames from the outermost one to this one."""
        frames: list[Frame] = []
        node: Node | None = self
        while node is not None:
            if node.frame is not None:
                frames.append(node.frame)
            node = node.parent
        return frames[::-1]

    @property
    def or_later(self) -> str:
        """The function that ran later and may hold most of this memory instead: ``b.py convert``; empty for none.

        Of the functions that called each other, it is the first one that this place does not have.
        """
        own = _functions(self.stack)
        sizes = Counter[Stack]()
        for stack, size in self.later.items():
            depth = min(shared_depth(own, stack), len(stack) - 1)
            sizes[stack[depth : depth + 1]] += size
        later = max(sizes, key=sizes.__getitem__, default=())
        if later in {(), own[-1:]} or self.doubt < max(_LEAST_DOUBT, self.size * _HALF):
            return ""
        return brief_label(*later, is_short=True)

    @property
    def text(self) -> str:
        """Of what is no frame: ``2 × cc1plus, started by torch/…/cpp_extension.py:2112 run_ninja``."""
        several = self.kind == PROGRAM and len(self.processes) > 1
        return f"{len(self.processes):,} × {self.label}" if several else self.label


def tree_of(build_up: BuildUp, *, by_line: bool = True) -> Node:
    """Return the root of the tree; frames that only pass calls on are left out.

    Without ``by_line``, the lines of a function are one place, and it does not matter who started a program.
    """
    root = Node(size=build_up.size)
    for part in build_up.parts:
        certain = part.still if by_line else part.certain
        node = root
        for depth, frame, key in _path(part, by_line=by_line):
            if key not in node.children:
                node.children[key] = Node(frame, node)
            node = node.children[key]
            node.size += part.size
            is_certain = depth < certain or (frame is None and part.is_certain)
            _add(node, part, is_certain=is_certain)
        _add(root, part, is_certain=part.is_certain)
        if part.kind != SEEN:
            node.kind, node.program, node.label = part.kind, part.program, str(key)
        node.processes.add(part.process)
        node.own += part.size
        node.own_certain += part.size if certain >= len(part.stack) else 0
    for memory, freed in build_up.freed.items():
        _take_doubts(root, memory, freed, by_line=by_line)
    return root


def _add(node: Node, part: Part, *, is_certain: bool) -> None:
    node.file_size += part.file_size
    node.certain += part.size if is_certain else 0
    node.levels[not is_certain, (part.process, part.memory), part.epoch] += part.size


def _path(part: Part, *, by_line: bool) -> Iterator[tuple[int, Frame | None, Hashable]]:
    """Yield the frames of a part with their depths and their keys in the tree; of what has no stack, its label."""
    if part.kind != SEEN:
        yield 0, None, WITHOUT_STACK.get(part.kind) or running_text(part if by_line else part._replace(stack=()))
        return
    for depth, frame in reported_frames(part.stack):
        yield depth, frame, frame if by_line else frame.code


def _take_doubts(root: Node, memory: Memory, freed: Sequence[Freed], *, by_line: bool) -> None:
    """Put in doubt what falls of a process's memory may have taken in place of what is said to be gone.

    A place is only in doubt for what a fall was larger than its own memory that is said to be gone.
    """
    places = [root]
    for place in places:
        places += place.children.values()
    for epoch, fall in enumerate(freed):
        every = Counter[Stack]()
        gone = defaultdict[int, Counter[Stack]](Counter)
        for part, size in fall.parts:
            functions = _functions(part.stack)
            every[functions] += round(size)
            node = root
            for _, _, key in _path(part, by_line=by_line):
                if key not in node.children:
                    break
                node = node.children[key]
                gone[id(node)][functions] += round(size)
        places = [node for node in places if node.certain or node.size >= _LEAST_DOUBT]
        for node in places:
            inside = gone[id(node)]
            if _doubt(node, memory, epoch, round(fall.size) - inside.total()):
                node.later += every - inside


def _functions(stack: Sequence[Frame]) -> Stack:
    """Return the functions of a stack that are the user's own code, without lines; all if there are none."""
    places = own_places(stack) or range(len(stack))
    return tuple(Frame(*stack[place].code, 0) for place in places)


def _doubt(node: Node, memory: Memory, epoch: int, most: int) -> bool:
    """Put at most so many bytes of a place in doubt, which came before a fall; return whether there were any.

    They are taken from what is certain first.
    """
    left = most
    for level in sorted(node.levels, key=itemgetter(0)):
        is_likely, of, when = level
        if left > 0 and of == memory and when <= epoch:
            part = min(left, node.levels[level])
            node.levels[level] -= part
            node.doubt += part
            node.certain -= 0 if is_likely else part
            left -= part
    node.own_certain = min(node.own_certain, node.certain)
    return left < most


def held_by(root: Node, most: int = 20) -> list[Node]:
    """Return the ``most`` places and programs that hold most, the largest first; no two have the same label."""
    large = _holders(root)[:most]
    labels = iter(place_labels([node.stack for node in large if node.frame is not None], is_short=True))
    return [replace(node, label=node.text if node.frame is None else next(labels)) for node in large]


def _holders(root: Node) -> list[Node]:
    """Return places that do not overlap.

    A place is divided as long as large parts hold half of it, and in a library half of what is certain. The entry point
    of a program says nothing: it is divided also if its parts are less certain. Lines of one function that only call
    what holds the memory are one place, and so are those of an imported module. Programs are first if they hold half of
    the memory.
    """
    least = max(1.0, root.size * _SMALL)
    large: list[Node] = []
    waiting = list(_parts(root, least))
    while waiting:
        node = waiting.pop()
        parts = list(_parts(node, min(least, node.size * _HALF)))
        is_own = node.frame is not None and is_of_user(node.frame)
        is_certain = is_own or sum(part.certain for part in parts) >= node.certain * _HALF
        if sum(part.size for part in parts) >= node.size * _HALF and (is_certain or _is_entry(node, root)):
            waiting += parts
            if node.own >= least:
                own_files = max(0, node.file_size - sum(part.file_size for part in parts))
                own = replace(node, size=node.own, certain=node.own_certain, file_size=min(own_files, node.own))
                own.doubt -= node.size - node.own  # all the rest may be in doubt
                large.append(own)
        elif node.kind in {SEEN, PROGRAM}:
            large.append(node)
    of_programs = sum(node.size for node in root.children.values() if node.kind == PROGRAM)
    programs_first = of_programs >= root.size * _HALF
    return sorted(
        _joined(large, _function_or_line), key=lambda node: (programs_first and node.kind != PROGRAM, -node.size)
    )


def _function_or_line(node: Node) -> Hashable:
    frame = node.frame
    if frame is None:
        return id(node)
    only_calls = node.own < node.size * _HALF and frame.function != "<module>"
    return (id(node.parent), frame.code) if only_calls or module_of(frame) else id(node)


def _joined(places: Iterable[Node], key: Callable[[Node], Hashable]) -> Iterator[Node]:
    """Yield places, of which those with the same key are one."""
    groups = defaultdict[Hashable, list[Node]](list)
    for place in places:
        groups[key(place)].append(place)
    return map(_function, groups.values())


def _function(lines: Sequence[Node]) -> Node:
    """Return lines of a function as one place."""
    first = lines[0]
    if len(lines) == 1 or first.frame is None:
        return first
    function = Node(Frame(*first.frame.code, 0), first.parent)
    for line in lines:
        function.size += line.size
        function.certain += line.certain
        function.file_size += line.file_size
        function.doubt += line.doubt
        function.later += line.later
    return function


def _parts(node: Node, least: float) -> Iterator[Node]:
    """Yield the large parts of a place; small lines of one function that are large together are one part.

    Small lines of a script have no function to name. What a module takes while it is imported is not divided by its own
    code, only by what it imports from others.
    """
    below = list(node.children.values())
    if node.frame is not None and module_of(node.frame):
        own, waiting, below = {package_of(node.frame.file), PYTHON}, below, []
        while waiting:
            child = waiting.pop()
            if child.frame is not None and package_of(child.frame.file) in own:
                waiting += child.children.values()
            else:
                below.append(child)

    def large_or_function(child: Node) -> Hashable:
        frame = child.frame
        if frame is None or child.size >= least or (frame.function == "<module>" and is_of_user(frame)):
            return id(child)
        return frame.code

    return (of for of in _joined(below, large_or_function) if of.size >= least)


def _is_entry(node: Node, root: Node) -> bool:
    """Return whether a frame starts a program or a thread, or is of the standard library."""
    if node.frame is None or node.parent is root:
        return True
    package = package_of(node.frame.file)
    return package == PYTHON or (package == OWN and node.frame.function in {"<module>", "main"})


CODE, IMPORTS, SHARED_PAGES, REST = "code", "imports", "shared_pages", "rest"
_MOST = 4
_SMALL_REST = 0.01
"""A rest that is a smaller part of the memory has no row of its own."""
_LONGEST_NAME = 60
LABELS = {IMPORTS: "Python and imports", SHARED_PAGES: "shared pages, counted again", REST: "everything else"}
_LINES = "other lines"
_WITH_REST = "Python, imports and everything else"


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
    rows = session.once(_rows_of_peak)
    return [] if rows is None else _with_rest(*rows, most)


def _rows_of_peak(session: Session) -> tuple[list[Holder], Counter[str], int] | None:
    build_up = of_peak(session)
    return None if build_up is None else _every(build_up, session)


def holders(build_up: BuildUp, session: SessionData, most: int = _MOST) -> list[Holder]:
    """Return at most ``most`` rows, the largest first, and one for everything else; they sum to the build-up."""
    return _with_rest(*_every(build_up, session), most)


def _every(build_up: BuildUp, session: SessionData) -> tuple[list[Holder], Counter[str], int]:
    """Return all rows, the largest first; by name what else there is; and the bytes of all together."""
    snapshots = session.snapshots or Snapshots()
    imports = Counter[str]()
    others = Counter[str]()
    code: list[Part] = []
    shared = 0
    for part in build_up.parts:
        package = imported_with(part, snapshots)
        if package:
            imports[package] += part.size
        elif part.kind == NOT_SEEN:
            others[WITHOUT_STACK[NOT_SEEN]] += part.size
        elif part.kind == SHARED:
            shared += part.size
        else:
            code.append(_of_user(part))
    rows = _rows(build_up, _placed(code), session)
    if imports:
        size = imports.total()
        rows.append(Holder(LABELS[IMPORTS], size, size, IMPORTS, parts=imports.most_common()))
    if shared:
        rows.append(Holder(LABELS[SHARED_PAGES], shared, 0, SHARED_PAGES))
    rows.sort(key=lambda row: -row.size)
    return rows, others, build_up.size


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
    known = defaultdict[tuple[Stack, tuple[str, str]], Counter[Frame]](Counter)
    unknown = Counter[Stack]()
    for part in code:
        for frame in part.stack[-1:]:
            if frame.line and not last_line(frame):
                known[part.stack[:-1], frame.code][frame] += part.size
            else:
                unknown[part.stack] += part.size
    moved: dict[Stack, Stack] = {}
    for stack, size in unknown.items():
        above, frame = stack[:-1], stack[-1]
        lines = known[above, frame.code]
        possible = [line for line in lines if not frame.line or frame.line <= line.line <= last_line(frame)]
        best = max(possible, key=lines.__getitem__, default=frame)
        if lines[best] >= size:
            moved[stack] = (*above, best)
        elif not frame.line:
            moved |= {(*above, line): stack for line in possible}
    return [part._replace(stack=moved.get(part.stack, part.stack)) for part in code]


def _rows(build_up: BuildUp, code: Sequence[Part], session: SessionData) -> list[Holder]:
    snapshots = session.snapshots or Snapshots()
    stacks = defaultdict[Frame | None, Counter[Stack]](Counter)
    for part in build_up.parts:
        stacks[deepest_own(part.stack)][part.stack] += part.size
    sums: dict[str, Holder] = {}
    for node in held_by(tree_of(build_up._replace(parts=code))):
        label, source, stack = node.label, "", tuple(node.stack)
        if node.frame is not None and node.frame in stacks:
            below = stacks[node.frame]
            stack = max(below, key=below.__getitem__)
            source = source_of(snapshots, node.frame)
            label += "" if source else _library(below, node.size)
        if node.file_size >= node.size * _HALF:
            file = file_held(session, build_up.at_s, build_up.size, node.file_size)
            label = f"{mapped_file_text(file)}, read in {label}" if file else label
        row = Holder(label, node.size, node.certain, CODE, source, (), stack, node.program, node.or_later)
        if label in sums:
            row = row._replace(size=row.size + sums[label].size, certain=row.certain + sums[label].certain)
        sums[label] = row
    return list(sums.values())


def _library(stacks: Mapping[Stack, int], size: int) -> str:
    """Return the function of a library that took most of a row: `` (numpy ones)``; empty if none did."""
    names = Counter[str]()
    for stack, part in stacks.items():
        last = stack[-1]
        if not is_of_user(last):
            names[shortened(printable(library_text(*last.code)), _LONGEST_NAME)] += part
    for name, most in names.most_common(1):
        if name and most >= size * _HALF:
            return f" ({name})"
    return ""


def _with_rest(every: Sequence[Holder], named: Counter[str], whole: int, most: int) -> list[Holder]:
    """Return the first rows, of which one is the largest code, and one row for everything else."""
    rows, others = list(every), Counter(named)
    beside = whole - sum(row.size for row in rows)
    others[_LINES] += beside - others.total()
    imports = next((place for place, row in enumerate(rows) if row.kind == IMPORTS), None)
    if imports is not None and beside < whole * _SMALL_REST:  # too little for a row
        label = _WITH_REST if beside else rows[imports].label
        rows[imports] = rows[imports]._replace(label=label, size=rows[imports].size + beside)
        others.clear()
    shown = rows[:most]
    code = [row for row in rows if row.is_code][:1]
    if code and code[0] not in shown:
        shown[-1:] = code
    for row in rows:
        if row not in shown:
            others[_LINES if row.is_code else row.label] += row.size
    rest = whole - sum(row.size for row in shown)
    if rest > 0:
        parts = [(name, size) for name, size in others.most_common() if size > 0]
        shown.append(Holder(LABELS[REST], rest, 0, REST, parts=parts if len(parts) > 1 else ()))
    return shown
