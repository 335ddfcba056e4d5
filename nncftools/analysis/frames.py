"""The build-up of a peak as a tree of frames: the few places that hold most, and their names.

Every output that shows code is a view of this tree. A frame is a function at a line: two lines of one function are two
places. What programs without Python hold, and what has no stack, stands beside the outermost frames.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TypeVar

from nncftools.analysis.build_up import NOT_SEEN, PROGRAM, SEEN, SHARED, BuildUp, Freed, Part
from nncftools.analysis.code_places import (
    OWN,
    PYTHON,
    SEPARATOR,
    brief_label,
    deepest_own,
    is_of_user,
    module_of,
    own_places,
    package_of,
    reported_frames,
)
from nncftools.analysis.rise_owners import Stack, shared_depth
from nncftools.session.model import Frame
from nncftools.units import printable, shortened

_SMALL = 0.05
"""A smaller part of the peak is not named: there are at most 20 larger ones."""
_HALF = 0.5
"""A place is divided into its parts if these hold half of it; then they say more than the place does."""
_LEAST_DOUBT = 16 << 20
"""Of a place that later functions may hold less of, none of them is named."""
_PROGRAM_NAME = 40

_Item = TypeVar("_Item")

Memory = tuple[int | None, str]
"""The ``id`` of a process, and a kind of its memory."""
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

    def child(self, key: Hashable, frame: Frame | None) -> Node:
        """Return a part of this node, which is added if it is new."""
        if key not in self.children:
            self.children[key] = Node(frame, self)
        return self.children[key]


def tree_of(build_up: BuildUp, *, by_line: bool = True) -> Node:
    """Return the root of the tree; frames that only pass calls on are left out.

    Without ``by_line``, the lines of a function are one place, and it does not matter who started a program.
    """
    root = Node(size=build_up.size)
    for part in build_up.parts:
        certain = part.still if by_line else part.certain
        node = root
        for depth, frame, key in _path(part, by_line=by_line):
            node = node.child(key, frame)
            node.size += part.size
            node.file_size += part.file_size
            is_certain = depth < certain or (frame is None and part.is_certain)
            _add(node, part, is_certain=is_certain)
        root.file_size += part.file_size
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
    places = [root, *_below(root)]
    for epoch, fall in enumerate(freed):
        every = Counter[Stack]()
        gone = defaultdict[int, Counter[Stack]](Counter)
        for part, size in fall.parts:
            functions = _functions(part.stack)
            every[functions] += round(size)
            node: Node | None = root
            for _, _, key in _path(part, by_line=by_line):
                node = node.children.get(key) if node is not None else None
                if node is not None:
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


def _below(root: Node) -> Iterator[Node]:
    waiting = list(root.children.values())
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.children.values()


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
        is_less_certain = not is_own and sum(part.certain for part in parts) < node.certain * _HALF
        if sum(part.size for part in parts) >= node.size * _HALF and (not is_less_certain or _is_entry(node, root)):
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
    return sorted(_lines_as_one(large), key=lambda node: (programs_first and node.kind != PROGRAM, -node.size))


def _lines_as_one(places: Iterable[Node]) -> Iterator[Node]:
    def function_or_line(node: Node) -> Hashable:
        frame, only_calls = node.frame, node.own < node.size * _HALF
        is_function = frame is not None and (module_of(frame) or (only_calls and frame.function != "<module>"))
        return (id(node.parent), frame.code) if frame is not None and is_function else id(node)

    return map(_function, _grouped(places, function_or_line))


def _grouped(items: Iterable[_Item], key: Callable[[_Item], Hashable]) -> list[list[_Item]]:
    groups: dict[Hashable, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _function(lines: Sequence[Node]) -> Node:
    """Return lines of a function as one place."""
    first, size, certain = lines[0], sum(line.size for line in lines), sum(line.certain for line in lines)
    if len(lines) == 1 or first.frame is None:
        return first
    file_size = sum(line.file_size for line in lines)
    function = Node(Frame(*first.frame.code, 0), first.parent, size=size, certain=certain, file_size=file_size)
    for line in lines:
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
        if child.size >= least or child.frame is None:
            return id(child)
        is_script = child.frame.function == "<module>" and is_of_user(child.frame)
        return id(child) if is_script else child.frame.code

    return (of for of in map(_function, _grouped(below, large_or_function)) if of.size >= least)


def _is_entry(node: Node, root: Node) -> bool:
    """Return whether a frame starts a program or a thread, or is of the standard library."""
    if node.frame is None or node.parent is root:
        return True
    package = package_of(node.frame.file)
    return package == PYTHON or (package == OWN and node.frame.function in {"<module>", "main"})


def place_labels(stacks: Sequence[Sequence[Frame]], *, is_short: bool = False) -> list[str]:
    """Return a name for the innermost frame of each stack: ``torch/jit/_trace.py:455 trace``.

    With ``is_short``, ``_trace.py:455 trace`` or ``Model.forward``. Places with the same name get the whole one, then
    the first frame in which the stacks differ.
    """
    labels = [_place_label(stack, is_short=is_short) for stack in stacks]
    for same in _equal(labels):
        for index in same:
            labels[index] = _place_label(stacks[index])
    for same in _equal(labels):
        depth = shared_depth(*([frame.code for frame in stacks[index]] for index in same))
        for index in same:
            if depth < len(stacks[index]) - 1:
                labels[index] = f"{brief_label(stacks[index][depth])}{SEPARATOR}{labels[index]}"
    return labels


def _equal(labels: Sequence[str]) -> list[list[int]]:
    return [same for same in _grouped(range(len(labels)), labels.__getitem__) if len(same) > 1]


def _place_label(stack: Sequence[Frame], *, is_short: bool = False) -> str:
    """Return a frame; one of the standard library or of ``torch.nn`` with the nearest caller that is of neither."""
    callers = [frame for frame in stack[:-1] if not _is_tool(frame)] if _is_tool(stack[-1]) else []
    return SEPARATOR.join(brief_label(frame, is_short=is_short) for frame in (*callers[-1:], stack[-1]))


def _is_tool(frame: Frame) -> bool:
    return package_of(frame.file) == PYTHON or "/torch/nn/" in frame.file


def best_frame(stack: Sequence[Frame]) -> Frame | None:
    """Return the deepest frame of the user's own code; without own code, as ``innermost_frame`` does."""
    return deepest_own(stack) or innermost_frame(stack)


def innermost_frame(stack: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame that is not of the standard library, if there is one; None for an empty stack."""
    shown = [frame for _, frame in reported_frames(stack)]
    known = (frame for frame in reversed(shown) if package_of(frame.file) != PYTHON)
    return next(known, shown[-1] if shown else None)


def running_text(top: Part) -> str:
    """Return where the program stood: ``torch/jit/_trace.py:455 _check_trace, called by openvino/…/ts_decoder.py:9``.

    The caller is the frame that called the library; in the program itself the frame above. Empty without frames.
    """
    if top.kind == PROGRAM:
        name = shortened(printable(top.program), _PROGRAM_NAME) or "a program without Python"
        return ", ".join(filter(None, (name, _starter(top.stack))))
    stack = [frame for _, frame in reported_frames(top.stack)]
    if (frame := innermost_frame(stack)) is None:
        return ""
    caller = calling_place(stack[: stack.index(frame) + 1])
    text = brief_label(frame)
    return text if caller is None else f"{text}, called by {brief_label(stack[caller], has_function=False)}"


def calling_place(stack: Sequence[Frame]) -> int | None:
    """Return the index of the frame that called the library of the innermost frame; None if there is none."""
    package = package_of(stack[-1].file)
    skipped = {package, PYTHON} - {OWN}
    above = range(len(stack) - 2, -1, -1)
    return next((index for index in above if package_of(stack[index].file) not in skipped), None)


def _starter(stack: Sequence[Frame]) -> str:
    """Return who started a program, and for which call into another library."""
    if (frame := innermost_frame(stack)) is None:
        return ""
    entry = next((of for of in stack if package_of(of.file) not in {OWN, PYTHON}), frame)
    package, text = package_of(entry.file), f"started by {brief_label(frame)}"
    if package == package_of(frame.file):
        return text
    function = f"{package}/…/{shortened(printable(entry.function), _PROGRAM_NAME)}"
    return f"{text}, for {brief_label(entry) if module_of(entry) else function}"
