"""Finds the code that holds the memory of a build-up: the tree of frames, the largest places, and rows to show.

A build-up is the memory at a moment: the bytes that each stack, or each program that does not run Python, took. Every
output that shows code is a view of the tree. A frame is a function at a line, so two lines of a function are two places
in the code. Memory without a stack, and memory of a program that does not run Python, have nodes next to the outermost
frames.

A row of the table of memory is the innermost frame of the user's own code. If a program has no own code, the rows are
frames of libraries. All imports share a row, and all pages that forked copies share have another row. The last row is
everything else. The rows sum to the whole memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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
    main_library,
    module_of,
    own_functions,
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

_SMALL = 0.05
"""A part of the memory with a smaller share of the peak is not shown by name, so at most 20 parts have names."""
_HALF = 0.5
"""If the calls in a line of code hold at least this share of the memory of the line, the output names the called
functions instead of the line. The called functions tell more about the memory.
"""
_LEAST_DOUBT = 16 << 20
"""Bytes. The memory that counts for a place in the code may have been freed earlier, and another function may hold this
memory. The output names the other function only if at least this many bytes are in doubt.
"""

WITHOUT_STACK = {NOT_SEEN: "not seen", SHARED: "shared with the parent"}
"""Names of memory without a stack: ``{kind: name}``."""


@dataclass(eq=False)
class Node:
    """A node in the tree of calls: a frame, with the bytes that the frame and all inner calls took."""

    frame: Frame | None = None
    """The frame; None for the root, for a program, and for memory without a stack."""
    parent: Node | None = None
    kind: str = SEEN
    """``seen``: the node is a frame. ``program``: the node is a program that does not run Python. ``not_seen``: no
    stack was seen. ``shared``: memory that a forked copy may share with the parent.
    """
    program: str = ""
    """The name of the program if ``kind`` is ``program``; otherwise empty."""
    processes: set[int | None] = field(default_factory=set)
    """The ``id`` of each process that took memory in this frame. None stands for a process that the session does not
    list.
    """
    size: int = 0
    certain: int = 0
    """The bytes of ``size`` that certainly belong to this frame and the calls in this frame."""
    own: int = 0
    """The bytes of ``size`` that this frame took itself, not in the functions that it called."""
    own_certain: int = 0
    file_size: int = 0
    """The bytes of ``size`` in pages of mapped files or of shared memory."""
    levels: Counter[tuple[bool, Memory, int]] = field(default_factory=Counter)
    """The bytes by certainty, kind of memory and age: ``{(is_uncertain, memory, epoch): bytes}``. ``epoch`` is the
    number of times that the process had freed memory of this kind before the bytes were taken. Any later fall of memory
    may have freed the bytes.
    """
    doubt: int = 0
    """The bytes of ``size`` that may have been freed. A process freed memory, but no reading shows which memory. If the
    memory of this node was freed, functions that ran later took these bytes.
    """
    later: Counter[Stack] = field(default_factory=Counter)
    """The functions that ran after the code of this node, and that may hold the bytes of the field ``doubt``:
    ``{the user's own functions in a stack: bytes}``."""
    label: str = ""
    """The name to show for a node without a frame, or for a result of ``held_by``. Empty for all other nodes."""
    children: dict[Hashable, Node] = field(default_factory=dict)

    @property
    def sorted_children(self) -> list[Node]:
        """The children, the largest child first."""
        return sorted(self.children.values(), key=lambda node: -node.size)

    @property
    def stack(self) -> list[Frame]:
        """The frames from the outermost frame to this frame."""
        frames: list[Frame] = []
        node: Node | None = self
        while node is not None:
            if node.frame is not None:
                frames.append(node.frame)
            node = node.parent
        return frames[::-1]

    @property
    def or_later(self) -> str:
        """A later function that may have taken the bytes of this node, such as ``b.py convert``; empty if none.

        Some memory was freed, but no reading shows whose memory. If the memory of this node was freed, a function that
        ran later took at least half of the bytes in ``size``. If several later functions called each other, the result
        is the outermost of these functions that is not in the stack of this node.
        """
        functions = own_functions(self.stack)
        sizes = Counter[Stack]()
        for stack, size in self.later.items():
            depth = min(shared_depth(functions, stack), len(stack) - 1)
            sizes[stack[depth : depth + 1]] += size
        later = max(sizes, key=sizes.__getitem__, default=())
        least = max(_LEAST_DOUBT, self.size * _HALF)
        if later in {(), functions[-1:]} or self.doubt < least:
            return ""
        return brief_label(*later, is_short=True)

    @property
    def text(self) -> str:
        """The name of a node without a frame: ``2 × cc1plus, started by torch/…/cpp_extension.py:2112 run_ninja``."""
        several = self.kind == PROGRAM and len(self.processes) > 1
        return f"{len(self.processes):,} × {self.label}" if several else self.label


def tree_of(build_up: BuildUp, *, by_line: bool = True) -> Node:
    """Return the root of the tree. Frames that only pass calls on are left out.

    If ``by_line`` is false, all lines of a function are the same node. A program is then a single node, even if
    different code started the program.
    """
    root = Node(size=build_up.size)
    for part in build_up.parts:
        certain = part.still if by_line else part.certain
        node = root
        for depth, frame, key in _find_path(part, by_line=by_line):
            if key not in node.children:
                node.children[key] = Node(frame, node)
            node = node.children[key]
            node.size += part.size
            is_certain = depth < certain or (frame is None and part.is_certain)
            _add_part(node, part, is_certain=is_certain)
        _add_part(root, part, is_certain=part.is_certain)
        if part.kind != SEEN:
            node.kind = part.kind
            node.program = part.program
            node.label = str(key)
        node.processes.add(part.process)
        node.own += part.size
        node.own_certain += part.size if certain >= len(part.stack) else 0
    for memory, freed in build_up.freed.items():
        _take_doubts(root, memory, freed, by_line=by_line)
    return root


def _add_part(node: Node, part: Part, *, is_certain: bool) -> None:
    node.file_size += part.file_size
    node.certain += part.size if is_certain else 0
    node.levels[not is_certain, (part.process, part.memory), part.epoch] += part.size


def _find_path(part: Part, *, by_line: bool) -> Iterator[tuple[int, Frame | None, Hashable]]:
    """Yield depth, frame and key for each frame of a part; the key finds the frame's node in the tree.

    For memory without a stack, the frame is None, and the key is a label.
    """
    if part.kind == SEEN:
        for depth, frame in reported_frames(part.stack):
            yield depth, frame, frame if by_line else frame.code
    elif part.kind in WITHOUT_STACK:
        yield 0, None, WITHOUT_STACK[part.kind]
    else:
        yield 0, None, running_text(part if by_line else part._replace(stack=()))


def _take_doubts(root: Node, memory: Memory, freed: Sequence[Freed], *, by_line: bool) -> None:
    """Add the bytes of each node that may have been freed to ``Node.doubt``.

    ``freed`` lists each fall of the process's memory. No reading shows which memory was freed. The memory that was
    taken last is assumed to be freed: ``Freed.parts`` lists this memory, and no node counts these bytes. In truth,
    older memory may have been freed. So each node may have lost more bytes: up to the size of the fall, minus the bytes
    that this node is already assumed to have lost.
    """
    nodes = [root]
    for node in nodes:
        nodes += node.children.values()
    for epoch, fall in enumerate(freed):
        every = Counter[Stack]()
        removed = defaultdict[int, Counter[Stack]](Counter)
        for part, size in fall.parts:
            functions = own_functions(part.stack)
            every[functions] += round(size)
            node = root
            for _, _, key in _find_path(part, by_line=by_line):
                if key not in node.children:
                    break
                node = node.children[key]
                removed[id(node)][functions] += round(size)
        nodes = [node for node in nodes if node.certain or node.size >= _LEAST_DOUBT]
        for node in nodes:
            own_parts = removed[id(node)]
            if _put_in_doubt(node, memory, epoch, round(fall.size) - own_parts.total()):
                node.later += every - own_parts


def _put_in_doubt(node: Node, memory: Memory, epoch: int, limit: int) -> bool:
    """Increase ``node.doubt`` by the bytes that a fall of memory may have freed, at most by ``limit`` bytes.

    Return whether ``node.doubt`` increased. ``epoch`` is the index of the fall. Only bytes that were taken before the
    fall count. Bytes that certainly belong to the node are used first.
    """
    remaining = limit
    for level in sorted(node.levels, key=itemgetter(0)):
        is_likely, level_memory, level_epoch = level
        if remaining > 0 and level_memory == memory and level_epoch <= epoch:
            part = min(remaining, node.levels[level])
            node.levels[level] -= part
            node.doubt += part
            node.certain -= 0 if is_likely else part
            remaining -= part
    node.own_certain = min(node.own_certain, node.certain)
    return remaining < limit


def held_by(root: Node, most: int = 20) -> list[Node]:
    """Return the places in the code and the programs that hold the most memory, the largest first.

    The result has at most ``most`` nodes. All labels are different.
    """
    large = _find_holders(root)[:most]
    stacks = [node.stack for node in large if node.frame is not None]
    labels = iter(place_labels(stacks))
    labelled = []
    for node in large:
        label = node.text if node.frame is None else next(labels)
        labelled.append(replace(node, label=label))
    return labelled


def _find_holders(root: Node) -> list[Node]:
    """Return the places in the code (a function at a line) and the programs that hold the memory, without overlap.

    A place is divided into its large calls if the calls hold at least half of the memory of the place. In a library,
    the calls must also hold at least half of the bytes that certainly belong to the place. This second condition does
    not apply to the standard library and to entry points (the outermost frame of a program or thread).

    Then some lines of a function are joined: lines whose calls took more than half of the memory of the line. All lines
    of an imported module are joined. The largest place comes first, but if programs that do not run Python hold at
    least half of all memory, these programs come first.
    """
    least = max(1.0, root.size * _SMALL)
    large: list[Node] = []
    waiting = list(_find_parts(root, least))
    while waiting:
        node = waiting.pop()
        parts = list(_find_parts(node, min(least, node.size * _HALF)))
        is_own = node.frame is not None and is_of_user(node.frame)
        is_certain = is_own or sum(part.certain for part in parts) >= node.certain * _HALF
        is_divided = sum(part.size for part in parts) >= node.size * _HALF
        if is_divided and (is_certain or _is_entry(node, root)):
            waiting += parts
            if node.own >= least:
                large.append(_own_part(node, parts))
        elif node.kind in {SEEN, PROGRAM}:
            large.append(node)
    in_programs = sum(node.size for node in root.children.values() if node.kind == PROGRAM)
    programs_first = in_programs >= root.size * _HALF
    holders = _join(large, _function_or_line)
    return sorted(holders, key=lambda node: (programs_first and node.kind != PROGRAM, -node.size))


def _own_part(node: Node, parts: Iterable[Node]) -> Node:
    """Return a copy of a node without the memory of the calls that its code made. ``parts`` are the large calls."""
    own_files = node.file_size - sum(part.file_size for part in parts)
    own_files = min(max(0, own_files), node.own)
    doubt = node.doubt - (node.size - node.own)  # all other memory may be in doubt
    return replace(node, size=node.own, certain=node.own_certain, file_size=own_files, doubt=doubt)


def _function_or_line(node: Node) -> Hashable:
    frame = node.frame
    if frame is None:
        return id(node)
    only_calls = node.own < node.size * _HALF and frame.function != "<module>"
    return (id(node.parent), frame.code) if only_calls or module_of(frame) else id(node)


def _join(places: Iterable[Node], key: Callable[[Node], Hashable]) -> Iterator[Node]:
    """Yield places. Places with equal keys are joined."""
    groups = defaultdict[Hashable, list[Node]](list)
    for place in places:
        groups[key(place)].append(place)
    return map(_join_lines, groups.values())


def _join_lines(lines: Sequence[Node]) -> Node:
    """Join the lines of a function to a single place."""
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


def _find_parts(node: Node, least: float) -> Iterator[Node]:
    """Yield the calls in the code of a node that hold at least ``least`` bytes.

    Lines of a function that hold fewer bytes are joined, and yielded if they hold enough bytes together. Lines of a
    script are not joined, because there is no function to name. The import of a module is divided into the code of
    other packages, not into code of the same package or of the standard library.
    """
    parts = list(node.children.values())
    if node.frame is not None and module_of(node.frame):
        packages = {package_of(node.frame.file), PYTHON}
        waiting = parts
        parts = []
        while waiting:
            child = waiting.pop()
            if child.frame is not None and package_of(child.frame.file) in packages:
                waiting += child.children.values()
            else:
                parts.append(child)

    def large_or_function(child: Node) -> Hashable:
        frame = child.frame
        if frame is None or child.size >= least or (frame.function == "<module>" and is_of_user(frame)):
            return id(child)
        return frame.code

    return (part for part in _join(parts, large_or_function) if part.size >= least)


def _is_entry(node: Node, root: Node) -> bool:
    """Return whether a frame starts a program or a thread, or is in the standard library."""
    if node.frame is None or node.parent is root:
        return True
    package = package_of(node.frame.file)
    return package == PYTHON or (package == OWN and node.frame.function in {"<module>", "main"})


CODE = "code"
IMPORTS = "imports"
SHARED_PAGES = "shared_pages"
REST = "rest"
_MOST = 4
_MOSTLY = 0.95
_SMALL_REST = 0.01
"""If the memory outside all rows is a smaller share of the whole, there is no separate row for this memory."""
LABELS = {IMPORTS: "Python and imports", SHARED_PAGES: "shared pages, counted again", REST: "everything else"}
_LINES = "other lines"
_WITH_REST = "Python, imports and everything else"


class Holder(NamedTuple):
    """A row of a table of memory: a name and bytes."""

    label: str
    """The name of this row of the table. The name is the same in every output format."""
    size: int
    certain: int
    """The bytes of ``size`` that certainly belong to this row."""
    kind: str = CODE
    source: str = ""
    """The source code of the line; empty if unknown."""
    parts: Sequence[tuple[str, int]] = ()
    """The largest parts of a row that is neither a place in the code nor a program, such as the packages of all
    imports: ``[(name, bytes)]``. Empty for other rows.
    """
    stack: Stack = ()
    """The stack with the most memory of the row, the outermost frame first."""
    program: str = ""
    """The name of the program if the row is a program that does not run Python; otherwise empty."""
    or_later: str = ""
    """A later function that may have taken the bytes of this row; empty if there is none. The memory of this row may
    have been freed. In this case, the later function took at least half of the bytes in ``size``.
    """

    @property
    def is_code(self) -> bool:
        """Whether the row is a place in the code, or a program."""
        return self.kind == CODE

    @property
    def is_likely(self) -> bool:
        """Whether less than 95 % of the bytes are certain. False if the row does not say who took the memory."""
        return self.kind in {CODE, IMPORTS} and self.certain < self.size * _MOSTLY


Function = tuple[Stack, tuple[str, str]]
"""The callers of a function, and the function: its name and file."""


class _Rows(NamedTuple):
    """All rows of a table of memory: the bytes that each stack or program took up to a moment."""

    rows: list[Holder]
    others: Counter[str]
    """The bytes that have no separate row in the table: ``{name: bytes}``."""
    size: int


def peak_holders(session: Session, most: int = _MOST) -> list[Holder]:
    """Return the rows of the table of memory at the RSS peak; empty if there are no stacks.

    The result has at most ``most`` rows, the largest first, and a row for everything else.
    """
    rows = session.once(_rows_of_peak)
    return [] if rows is None else _add_rest(rows, most)


def _rows_of_peak(session: Session) -> _Rows | None:
    build_up = of_peak(session)
    return None if build_up is None else _make_rows(build_up, session)


def holders(build_up: BuildUp, session: SessionData, most: int = _MOST) -> list[Holder]:
    """Return the rows of the table of memory: at most ``most`` rows, the largest first, and a row for everything else.

    The rows sum to all memory.
    """
    return _add_rest(_make_rows(build_up, session), most)


def _make_rows(build_up: BuildUp, session: SessionData) -> _Rows:
    snapshots = session.snapshots or Snapshots()
    imports = Counter[str]()
    certain = 0
    others = Counter[str]()
    code: list[Part] = []
    shared = 0
    for part in build_up.parts:
        package = imported_with(part, snapshots)
        if package:
            imports[package] += part.size
            outer = part._replace(stack=part.stack[: part.still])
            if imported_with(outer, snapshots):
                certain += part.size
        elif part.kind == NOT_SEEN:
            others[WITHOUT_STACK[NOT_SEEN]] += part.size
        elif part.kind == SHARED:
            shared += part.size
        else:
            code.append(_keep_own(part))
    rows = _make_code_rows(build_up, _find_lines(code), session)
    if imports:
        packages = imports.most_common()
        size = imports.total()
        rows.append(Holder(LABELS[IMPORTS], size, certain, IMPORTS, parts=packages))
    if shared:
        rows.append(Holder(LABELS[SHARED_PAGES], shared, 0, SHARED_PAGES))
    rows.sort(key=lambda row: -row.size)
    return _Rows(rows, others, build_up.size)


def _keep_own(part: Part) -> Part:
    """Return a part with only the frames of the user's code. If there are no such frames, return the part unchanged.

    If a function calls itself, only the innermost frame stays.
    """
    places: list[int] = []
    for place in own_places(part.stack):
        frame = part.stack[place]
        if places and part.stack[places[-1]].code == frame.code:
            places.pop()
        places.append(place)
    if not places or part.kind != SEEN:
        return part
    return part._replace(
        stack=tuple(part.stack[place] for place in places),
        certain=sum(place < part.certain for place in places),
        still=sum(place < part.still for place in places),
    )


def _find_lines(code: Sequence[Part]) -> list[Part]:
    """Return the parts, with likely lines in place of uncertain lines.

    The likely line is the line of the same function that took the most memory. If the number of an uncertain line is
    unknown (0), the function moved on while memory rose: the likely line is the largest of the lines that also moved.
    An uncertain line stays if the likely line took less memory. If its number is unknown in this case, the other lines
    lose their numbers: they share a row.
    """
    certain = defaultdict[Function, Counter[Frame]](Counter)
    moving = defaultdict[Function, Counter[Frame]](Counter)
    uncertain = Counter[Stack]()
    for part in code:
        for frame in part.stack[-1:]:
            function = part.stack[:-1], frame.code
            if frame.line and not last_line(frame):
                certain[function][frame] += part.size
                if part.still < len(part.stack):
                    moving[function][frame] += part.size
            else:
                uncertain[part.stack] += part.size
    moved: dict[Stack, Stack] = {}
    for stack, size in uncertain.items():
        *outer, frame = stack
        function = tuple(outer), frame.code
        sizes = moving[function] or certain[function]
        possible = list(sizes)
        if frame.line:
            sizes = certain[function]
            possible = [line for line in sizes if frame.line <= line.line <= last_line(frame)]
        best = max(possible, key=sizes.__getitem__, default=frame)
        if certain[function][best] >= size:
            moved[stack] = (*outer, best)
        elif not frame.line:
            moved |= {(*outer, line): stack for line in possible}
    placed = []
    for part in code:
        stack = moved.get(part.stack, part.stack)
        placed.append(part._replace(stack=stack))
    return placed


def _make_code_rows(build_up: BuildUp, code: Sequence[Part], session: SessionData) -> list[Holder]:
    stacks = defaultdict[Frame | None, Counter[Stack]](Counter)
    for part in build_up.parts:
        stacks[deepest_own(part.stack)][part.stack] += part.size
    rows: dict[str, Holder] = {}
    for node in held_by(tree_of(build_up._replace(parts=code))):
        label = node.label
        source = ""
        stack = tuple(node.stack)
        if node.frame is not None and node.frame in stacks:
            inner = stacks[node.frame]
            stack = max(inner, key=inner.__getitem__)
            source = source_of(session.snapshots or Snapshots(), node.frame)
            label += "" if source else main_library(inner, node.size)
        if node.file_size >= node.size * _HALF:
            file = file_held(session, build_up.at_s, build_up.size, node.file_size)
            label = f"{mapped_file_text(file)}, read in {label}" if file else label
        row = Holder(
            label,
            node.size,
            node.certain,
            source=source,
            stack=stack,
            program=node.program,
            or_later=node.or_later,
        )
        if label in rows:
            size = row.size + rows[label].size
            row = row._replace(size=size, certain=row.certain + rows[label].certain)
        rows[label] = row
    return list(rows.values())


def _add_rest(every: _Rows, most: int) -> list[Holder]:
    """Return at most ``most`` rows, the largest first, and a row for everything else.

    If none of these rows has ``is_code`` (a place in the code, or a program), the largest row with ``is_code`` replaces
    the smallest row.
    """
    rows = list(every.rows)
    others = Counter(every.others)
    rest = every.size - sum(row.size for row in rows)
    others[_LINES] += rest - others.total()
    kinds = [row.kind for row in rows]
    if 0 < rest < every.size * _SMALL_REST and IMPORTS in kinds:  # the rest is too small for a row
        index = kinds.index(IMPORTS)
        size = rows[index].size + rest
        rows[index] = rows[index]._replace(label=_WITH_REST, size=size)
        others.clear()
    shown = rows[:most]
    code = [row for row in rows if row.is_code][:1]
    if code and code[0] not in shown:
        shown[-1:] = code
    for row in rows:
        if row not in shown:
            others[_LINES if row.is_code else row.label] += row.size
    rest = every.size - sum(row.size for row in shown)
    if rest > 0:
        parts = [(name, size) for name, size in others.most_common() if size > 0]
        row = Holder(LABELS[REST], rest, 0, REST)
        shown.append(row._replace(parts=parts) if len(parts) > 1 else row)
    return shown
