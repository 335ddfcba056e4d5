"""Which code held more, or less, at the peak of one run than at that of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from nncftools.analysis.build_up import NOT_SEEN, PROGRAM, SEEN, SHARED, BuildUp, Part
from nncftools.analysis.code_places import (
    OWN,
    PYTHON,
    imported_package,
    is_own,
    package_of,
    short_file,
)
from nncftools.analysis.frames import WITHOUT_STACK, Node, place_labels, tree_of
from nncftools.session.model import Frame

Code = tuple[str, str]
"""A function and its file. The file is the same in another environment. A program without Python has its name and an
empty text; so has memory without a stack."""
CodePath = tuple[Code, ...]
"""A function of the user's own code, and below it those of libraries; lines do not matter. Code that no own code called
has all its callers."""
_EXPRESSION = ".<locals>.<"
"""What follows is a lambda or a comprehension: it is part of the function around it."""
_SITE, _STANDARD = "/site-packages/", "/lib/python3/"
_IMPORTS = "Python and imports"
_PLAIN = {
    WITHOUT_STACK[NOT_SEEN]: "code that no stack shows",
    WITHOUT_STACK[SHARED]: "shared pages, counted again",
}
_SMALLEST = 0.005
"""A place that holds less, as a share of the peak, is not compared."""
_LEAST_CHANGE = 0.01
"""A smaller change, as a share of the larger peak, is none."""
_EXPLAINED = 0.7
"""A place is divided if its parts explain this much of its change."""


class HeldSize(NamedTuple):
    """What a place held, in bytes: the likely size, and its bounds."""

    size: float = 0.0
    low: float = 0.0
    """What certainly belongs there."""
    high: float = 0.0
    """What may belong there: also what belongs to callers with certainty and to no function in them, and the unseen."""
    below: float = 0.0
    """What may belong to a place in it that was not seen."""


Sizes = Mapping[CodePath, HeldSize]


class GrownStack(NamedTuple):
    """A place in the code and the bytes that it held at both peaks; of groups, the medians."""

    label: str
    owner: str
    """The function of the user's own code; where there is none, the same as ``label``."""
    function: str
    file: str
    """From the package on; empty for what has no stack."""
    base: float
    new: float
    is_within_bounds: bool
    """Whether both may have held the same: not all of it is certain."""

    @property
    def change(self) -> float:
        """How much more it held in ``new``."""
        return self.new - self.base


def places(build_up: BuildUp) -> dict[CodePath, HeldSize]:
    """Return what each function held at its place in the stacks, without those that held less than 0.5 %."""
    build_up = build_up._replace(parts=[_from_own_code(part) for part in build_up.parts])
    root = tree_of(build_up, by_line=False)
    root.certain = build_up.sum_of(SEEN)
    unseen = build_up.sum_of(NOT_SEEN)
    sizes: dict[CodePath, HeldSize] = {(): HeldSize(below=unseen + _anywhere_in(root))}
    waiting: list[tuple[CodePath, Node]] = [((), root)]
    while waiting:
        above, node = waiting.pop()
        for child in node.children.values():
            if child.size < root.size * _SMALLEST:
                continue
            name, below = child.program or child.text, sizes[above].below
            code = _PLAIN.get(name, name), ""
            held = HeldSize(child.size, child.size, child.size)
            if child.frame is not None:
                code = child.frame.function.partition(_EXPRESSION)[0], _file(child.frame.file)
                held = HeldSize(child.size, child.certain, child.certain + below, below + _anywhere_in(child))
            here = (*above, code)
            before = sizes.get(here, HeldSize())  # a comprehension, or a file of the same name in another folder
            sizes[here] = HeldSize(*map(sum, zip(before, held, strict=True)))
            waiting.append((here, child))
    return sizes


def _from_own_code(part: Part) -> Part:
    """Return a part whose stack begins at its deepest frame of own code; imports are like a program."""
    if part.is_start or (part.kind == SEEN and imported_package(part.stack)):
        return Part(part.size, PROGRAM, part.process, program=_IMPORTS)
    own = next((place for place in range(len(part.stack) - 1, -1, -1) if is_own(part.stack[place].file)), 0)
    return part._replace(stack=part.stack[own:], certain=max(0, part.certain - own))


def _anywhere_in(node: Node) -> int:
    """Return the bytes that certainly belong to a place, and to no function that it called with certainty."""
    of_children = sum(child.certain for child in node.children.values() if child.kind == SEEN)
    return node.certain - node.own_certain - of_children


def _file(file: str) -> str:
    """Return a file by a name that is the same in any environment: of own code its own, else from the package on."""
    folder = {OWN: "/", PYTHON: _STANDARD}.get(package_of(file), _SITE)
    return file.rpartition("/")[2] if is_own(file) else f"{folder}{short_file(file)}"


def grown(base: Sequence[Sizes], new: Sequence[Sizes], most: int) -> list[GrownStack]:
    """Return the ``most`` places that changed most, the largest change first; they do not overlap.

    A place is divided into its parts as long as a few of these explain most of its change.
    """
    base, new = ([_renamed(run, new[0]) for run in runs] for runs in (base, new))
    paths = list(dict.fromkeys(path for run in (*base, *new) for path in run))
    sides = zip(paths, _medians(base, paths), _medians(new, paths), strict=True)
    divided = _divided({path: _change(path, *sizes) for path, *sizes in sides})
    largest = sorted(divided, key=lambda place: -abs(place[1].change))[:most]
    return list(_labelled(largest))


def _labelled(places: Sequence[tuple[CodePath, GrownStack]]) -> Iterator[GrownStack]:
    """Yield the places with their names."""
    owners = [path[:1] if is_own(path[0][1]) else path for path, _ in places]
    stacks = list(dict.fromkeys(owners))
    frames = [[Frame(*code, 0) for code in stack] for stack in stacks]
    labels = dict(zip(stacks, place_labels(frames, is_short=True), strict=True))
    for owner, (path, of) in zip(owners, places, strict=True):
        called = "" if path == owner else f" ({_library_function(*path[-1])})"
        yield of._replace(label=f"{labels[owner]}{called}", owner=labels[owner])


def _library_function(function: str, file: str) -> str:
    name, package = function.rpartition(".")[2], package_of(file)
    return name if package == PYTHON else f"{package} {name}"


def _medians(runs: Sequence[Sizes], paths: Sequence[CodePath]) -> list[HeldSize]:
    """Return what each place held; a run without a place may have held there what was not seen in its caller."""
    every = [dict(run) for run in runs]
    for run in every:
        for path in paths:
            below = run[path[:-1]].below
            run.setdefault(path, HeldSize(high=below, below=below))
    return [HeldSize(*map(median, zip(*(run[path] for run in every), strict=True))) for path in paths]


def _change(path: CodePath, base: HeldSize, new: HeldSize) -> GrownStack:
    function, file = path[-1] if path else ("", "")
    is_within_bounds = max(base.low, new.low) <= min(base.high, new.high)
    return GrownStack("", "", function, short_file(file), base.size, new.size, is_within_bounds)


def _renamed(run: Sizes, reference: Sizes) -> Sizes:
    """Return a run whose own functions have the files of the reference: a script may have another name.

    A function that only one of them has is the one of the same name that only the other has; of several, the largest is
    the largest.
    """
    theirs = _only_in(reference, run)
    names = {path: theirs[key] for key, path in _only_in(run, reference).items() if key in theirs}
    return {(*names.get(path[:1], path[:1]), *path[1:]): held for path, held in run.items()}


def _only_in(run: Sizes, other: Sizes) -> dict[tuple[str, int], CodePath]:
    """Return the functions of scripts and of other own code that the other run lacks, by name and rank in size."""
    own = [path for path in run if len(path) == 1 and package_of(path[0][1]) == OWN and path not in other]
    ranks = Counter[str]()
    found: dict[tuple[str, int], CodePath] = {}
    for path in sorted(own, key=lambda path: -run[path].size):
        function = path[0][0]
        ranks[function] += 1
        found[function, ranks[function]] = path
    return found


def _divided(changes: Mapping[CodePath, GrownStack]) -> Iterator[tuple[CodePath, GrownStack]]:
    """Yield the places to name; callers come before what they call."""
    children = {path: list[CodePath]() for path in changes}
    largest = {path: abs(of.change) for path, of in changes.items()}  # what grew here may have shrunk below
    for path in reversed([path for path in changes if path]):
        children[path[:-1]].append(path)
        largest[path[:-1]] = max(largest[path[:-1]], largest[path])
    outermost = [changes[path] for path in children[()]]
    least = max(sum(of.base for of in outermost), sum(of.new for of in outermost)) * _LEAST_CHANGE
    waiting: list[CodePath] = [()]
    while waiting:
        path = waiting.pop()
        of, large = changes[path], [child for child in children[path] if largest[child] >= least]
        explained = sum(changes[child].change for child in large)
        changed = sum(abs(changes[child].change) for child in large)
        unsure = sum(abs(changes[child].change) for child in large if changes[child].is_within_bounds)
        is_explained = large and abs(of.change - explained) <= max(abs(of.change), changed) * (1 - _EXPLAINED)
        if not path or (is_explained and (of.is_within_bounds or unsure * 2 <= changed)):
            waiting += reversed(large)
        elif abs(of.change) >= least:
            yield path, of
