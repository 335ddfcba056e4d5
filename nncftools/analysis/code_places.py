"""Places in code as people read them: the package of a file, a short path, a name for a frame.

Also which function of the script itself was at work while memory rose.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import takewhile
from pathlib import PurePath

from nncftools.session.model import Frame, Snapshots
from nncftools.units import printable, shortened

Stack = tuple[Frame, ...]
"""The outermost frame first."""
OWN, PYTHON = "", "python"
"""The packages of the program's own files, and of the standard library."""
SEPARATOR = " › "
_SITE = re.compile(r".*/(?:site|dist)-packages/")
_STANDARD = re.compile(r".*/lib(?:64)?/python\d(?:\.\d+)?/")
_FROZEN = re.compile(r"<frozen ([\w.]+)>")
_KEPT_PARTS = 2
_LONGEST = 60
_BRIEF = 28
_CALLING_FILES = ("/torch/nn/modules/module.py", "/torch/utils/_contextlib.py", "/transformers/modeling_layers.py")
_CALLING = {"_wrapped_call_impl", "_call_impl", "_slow_forward", "decorate_context", "__call__"}
"""Functions of PyTorch and transformers that stand between a caller and each ``forward``."""
_SCRIPT_FOLDERS = {"bin", "Scripts"}
"""Where pip installs console scripts, whose names have no ending; they are no code of the user."""
_TYPED_FILES = ("<string>", "<stdin>", "<ipython-input")
_OUR_PACKAGE = "/nncftools/"
_SPAWNING_FILE = "/multiprocessing/spawn.py"
"""It is called by a line that nobody typed."""
_IMPORTING_FILES = ("/importlib/__init__.py", "/_distutils_hack/__init__.py", "/transformers/utils/import_utils.py")
_IMPORTING = ("find_spec", "exec_module", "create_module", "<module>")
"""Functions of our hook while it imports a module."""
_WRAPPERS = {"wrapper", "wrapped"}
"""What decorators of libraries put before a function."""
_LOCALS, _MODULE = ".<locals>", "<module>"


class FrameRange(Frame, frozen=True, array_like=True):
    """A frame that stood somewhere between two lines."""

    last_line: int = 0


def package_of(file: str) -> str:
    """Return the package that a file belongs to: ``torch``, ``python`` for the standard library, empty for others."""
    if inside := _SITE.match(file):
        return file[inside.end() :].partition("/")[0].removesuffix(".py")
    return PYTHON if _STANDARD.match(file) or _FROZEN.match(file) else OWN


@lru_cache(maxsize=4096)
def is_own(file: str) -> bool:
    """Return whether a file is the user's own code: no library, no console script, and not this package.

    What the user typed has no file: `python -c`, standard input, and the cells of a notebook.
    """
    if package_of(file) != OWN:
        return False
    if file.startswith("<"):
        return file.startswith(_TYPED_FILES)
    is_console_script = PurePath(file).parent.name in _SCRIPT_FOLDERS and not file.endswith(".py")
    return _OUR_PACKAGE not in file and not is_console_script


def is_of_user(frame: Frame) -> bool:
    """Return whether a frame is the user's own code; methods that libraries generate have no file either."""
    is_generated = frame.file.startswith("<") and frame.function.rpartition(".")[2].startswith("__")
    return is_own(frame.file) and not is_generated


def own_places(stack: Sequence[Frame]) -> list[int]:
    """Return the indexes of the frames of a stack that are the user's own code.

    What the user typed calls everything else; below a library, code without a file is what the library generated. The
    body of a comprehension is part of its function.
    """
    places: list[int] = []
    for place, frame in enumerate(stack):
        is_typed = frame.file.startswith("<")
        is_started = stack[place + 1 : place + 2] and stack[place + 1].file.endswith(_SPAWNING_FILE)
        if not is_of_user(frame) or (is_typed and (is_started or len(places) < place)):
            continue
        if frame.function.endswith("comp>") and places and stack[places[-1]].file == frame.file:
            continue
        places.append(place)
    return places


def deepest_own(stack: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame of the user's own code; None without own code."""
    places = own_places(stack)
    return stack[places[-1]] if places else None


def source_of(snapshots: Snapshots, frame: Frame) -> str:
    """Return the text of a frame's line; empty for unknown, and for a range of lines."""
    if last_line(frame):
        return ""
    return snapshots.sources.get(frame.file, {}).get(frame.line, "")


def imported_package(stack: Sequence[Frame]) -> str:
    """Return the package that the innermost frames import; empty if the stack imports nothing below its own code.

    A module of the program itself that is imported is own code. So only what follows the last own frame counts.
    """
    package = ""
    is_imported = False
    places = own_places(stack)
    for frame in reversed(stack[places[-1] + 1 :] if places else stack):
        is_imported = is_imported or is_importing(frame)
        inner = package_of(frame.file)
        if not package and inner not in {OWN, PYTHON}:
            package = inner
        if is_imported and package:
            return package
    return PYTHON if is_imported else ""


def is_importing(frame: Frame) -> bool:
    """Return whether a frame belongs to a machinery that imports modules."""
    if frame.file.startswith("<frozen importlib") or frame.file.endswith(_IMPORTING_FILES):
        return True
    return _OUR_PACKAGE in frame.file and frame.function.endswith(_IMPORTING)


def short_file(file: str) -> str:
    """Return a path from its package on; of other files, the name and the folder."""
    inside = _SITE.match(file) or _STANDARD.match(file)
    if inside:
        return file[inside.end() :]
    return file if file.startswith("<") else "/".join(file.split("/")[-_KEPT_PARTS:])


def brief_label(frame: Frame, before: Frame | None = None, *, has_function: bool = True, is_short: bool = False) -> str:
    """Return a frame as a short text: ``openvino/…/ts_decoder.py:105 trace``, or ``import torch`` for a module's code.

    ``before`` is the frame that is named before it: a file is not repeated. With ``is_short``, a file of the user has
    no folder, and a method of a library has no file: ``Model.forward``.
    """
    if module := module_of(frame):
        return f"import {shortened(printable(module), _LONGEST)}"
    function = shortened(printable(frame.function).replace(_LOCALS, ""), _LONGEST)
    if is_short and "." in frame.function and _LOCALS not in frame.function and not is_own(frame.file):
        return function
    file, line = "", line_text(frame)
    if before is None or before.file != frame.file or module_of(before):
        parts = printable(short_file(frame.file)).split("/")
        whole = "/".join(parts)
        is_whole = len(whole) <= _BRIEF or len(parts) <= _KEPT_PARTS
        is_name = is_short and package_of(frame.file) == OWN
        file = parts[-1] if is_name else whole if is_whole else f"{parts[0]}/…/{parts[-1]}"
    place = f"{shortened(file, _LONGEST)}{line}"
    is_place = place and (not has_function or frame.function == _MODULE)
    return place if is_place else f"{place} {function}".strip()


def line_text(frame: Frame) -> str:
    """Return the line of a frame after a colon, or the range of its lines: ``:5``, ``:5-7``; empty for no line."""
    if not frame.line:
        return ""
    return f":{frame.line}-{last_line(frame)}" if last_line(frame) else f":{frame.line}"


def last_line(frame: Frame) -> int:
    """Return the last line of a frame that stood somewhere in a range of lines; 0 for one line."""
    return frame.last_line if isinstance(frame, FrameRange) else 0


def module_of(frame: Frame) -> str:
    """Return the module whose code runs while it is imported; empty for a function, or a file of the program."""
    if frame.function != _MODULE or package_of(frame.file) == OWN or frame.file.startswith("<"):
        return ""
    return short_file(frame.file).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def what_runs(frame: Frame) -> str:
    """Return the function, or the module that is imported; a question mark for unknown."""
    module = module_of(frame)
    return f"import {module}" if module else frame.function or "?"


def reported_frames(stack: Sequence[Frame]) -> list[tuple[int, Frame]]:
    """Return the frames of a stack that say something about the program, and their places; all if there are none.

    The others only pass a call on: those of Python's import system, of a decorator, or of the calls of modules.
    """
    every, last = list(enumerate(stack)), len(stack) - 1
    return [(place, frame) for place, frame in every if not _passes_on(frame, is_innermost=place == last)] or every


def _passes_on(frame: Frame, *, is_innermost: bool) -> bool:
    if is_importing(frame) or _OUR_PACKAGE in frame.file:
        return True
    name = frame.function.rpartition(".")[2]
    if name in _WRAPPERS and not is_innermost:
        return package_of(frame.file) not in {OWN, PYTHON}
    return name in _CALLING and frame.file.endswith(_CALLING_FILES)


def shared_depth(*stacks: Sequence[Hashable]) -> int:
    """Return how many outer frames stacks share; without lines, they are given by the codes of their frames."""
    return sum(1 for _ in takewhile(lambda codes: len(set(codes)) == 1, zip(*stacks, strict=False)))


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
    places = defaultdict[str, list[int]](list)
    for place, label in enumerate(labels):
        places[label].append(place)
    return [same for same in places.values() if len(same) > 1]


def _place_label(stack: Sequence[Frame], *, is_short: bool = False) -> str:
    """Return a frame; one of the standard library or of ``torch.nn`` with the nearest caller that is of neither."""
    callers = [frame for frame in stack[:-1] if not _is_tool(frame)] if _is_tool(stack[-1]) else []
    return SEPARATOR.join(brief_label(frame, is_short=is_short) for frame in (*callers[-1:], stack[-1]))


def _is_tool(frame: Frame) -> bool:
    return package_of(frame.file) == PYTHON or "/torch/nn/" in frame.file


def library_text(function: str, file: str) -> str:
    """Return a function of a library with its package: ``numpy ones``; of the standard library, its name."""
    name, package = function.rpartition(".")[2], package_of(file)
    return name if package in {OWN, PYTHON} else f"{package} {name}"


def best_frame(stack: Sequence[Frame]) -> Frame | None:
    """Return the deepest frame of the user's own code; without own code, as ``innermost_frame`` does."""
    return deepest_own(stack) or innermost_frame(stack)


def innermost_frame(stack: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame that is not of the standard library, if there is one; None for an empty stack."""
    shown = [frame for _, frame in reported_frames(stack)]
    known = (frame for frame in reversed(shown) if package_of(frame.file) != PYTHON)
    return next(known, shown[-1] if shown else None)


def calling_place(stack: Sequence[Frame]) -> int | None:
    """Return the index of the frame that called the library of the innermost frame; None if there is none."""
    package = package_of(stack[-1].file)
    skipped = {package, PYTHON} - {OWN}
    above = range(len(stack) - 2, -1, -1)
    return next((index for index in above if package_of(stack[index].file) not in skipped), None)
