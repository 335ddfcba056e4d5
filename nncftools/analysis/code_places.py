"""Makes readable names for places in code: the package of a file, a short path, a label for a frame.

``own_places`` finds the functions of the user's own code in a stack.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePath

from nncftools.session.model import Frame, Snapshots
from nncftools.units import printable, shortened

Stack = tuple[Frame, ...]
"""Frames, the outermost frame first."""
OWN = ""
"""The package name of the program's own files."""
PYTHON = "python"
"""The package name of the standard library."""
SEPARATOR = " › "
_SITE = re.compile(r".*/(?:site|dist)-packages/")
_STANDARD = re.compile(r".*/lib(?:64)?/python\d(?:\.\d+)?/")
_FROZEN = re.compile(r"<frozen ([\w.]+)>")
_KEPT_PARTS = 2
_LONGEST = 60
_BRIEF = 28
_CALLING_FILES = ("/torch/nn/modules/module.py", "/torch/utils/_contextlib.py", "/transformers/modeling_layers.py")
_CALLING = {"_wrapped_call_impl", "_call_impl", "_slow_forward", "decorate_context", "__call__"}
"""Functions of PyTorch and transformers that are on the stack between a caller and ``forward``."""
_SCRIPT_FOLDERS = {"bin", "Scripts"}
"""Folders where pip installs console scripts. Console scripts have no file name ending, and are not the user's code."""
_TYPED_FILES = ("<string>", "<stdin>", "<ipython-input")
_OUR_PACKAGE = "/nncftools/"
_SPAWNING_FILE = "/multiprocessing/spawn.py"
"""If the code of ``python -c`` calls this file, the process was started by multiprocessing, not by the user."""
_IMPORTING_FILES = ("/importlib/__init__.py", "/_distutils_hack/__init__.py", "/transformers/utils/import_utils.py")
_IMPORTING = ("find_spec", "exec_module", "create_module", "<module>")
"""Functions of the import hook of nncf-tools that run while a module is imported."""
_WRAPPERS = {"wrapper", "wrapped"}
"""Names of the functions that decorators of libraries put around a function."""
_LOCALS = ".<locals>"
_MODULE = "<module>"


class FrameRange(Frame, frozen=True, array_like=True):
    """A frame whose line is only known to be between ``line`` and ``last_line``."""

    last_line: int = 0


def package_of(file: str) -> str:
    """Return the package of a file: ``torch``; ``python`` for the standard library; empty for other files."""
    inside = _SITE.match(file)
    if inside:
        return file[inside.end() :].partition("/")[0].removesuffix(".py")
    return PYTHON if _STANDARD.match(file) or _FROZEN.match(file) else OWN


@lru_cache(maxsize=4096)
def is_own(file: str) -> bool:
    """Return whether a file is the user's own code: not of a library, not a console script, and not of nncf-tools.

    Code that was entered without a file is own code, too: ``python -c``, standard input, and the cells of a notebook.
    """
    if package_of(file) != OWN:
        return False
    if file.startswith("<"):
        return file.startswith(_TYPED_FILES)
    is_console_script = PurePath(file).parent.name in _SCRIPT_FOLDERS and not file.endswith(".py")
    return _OUR_PACKAGE not in file and not is_console_script


def is_of_user(frame: Frame) -> bool:
    """Return whether a frame is the user's own code.

    Methods that libraries generate have no file, and are not own code.
    """
    name = frame.function.rpartition(".")[2]
    is_generated = frame.file.startswith("<") and name.startswith("__")
    return is_own(frame.file) and not is_generated


def own_places(stack: Sequence[Frame]) -> list[int]:
    """Return the indexes of the frames with the user's own code.

    Code without a file is own code only if all callers (the outer frames) are own code, because libraries also generate
    code without a file. The body of a comprehension is left out: the function around the comprehension has a frame.
    """
    places: list[int] = []
    for place, frame in enumerate(stack):
        if not is_of_user(frame):
            continue
        if frame.file.startswith("<"):
            is_spawned = place + 1 < len(stack) and stack[place + 1].file.endswith(_SPAWNING_FILE)
            if is_spawned or len(places) < place:
                continue
        outer = stack[places[-1]].file if places else None
        if frame.function.endswith("comp>") and outer == frame.file:
            continue
        places.append(place)
    return places


def own_functions(stack: Sequence[Frame]) -> Stack:
    """Return the functions in a stack that are the user's own code, without line numbers.

    If no function is the user's own code, return all functions.
    """
    places = own_places(stack) or range(len(stack))
    return tuple(Frame(*stack[place].code, 0) for place in places)


def deepest_own(stack: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame of the user's own code; None if there is no own code."""
    places = own_places(stack)
    return stack[places[-1]] if places else None


def source_of(snapshots: Snapshots, frame: Frame) -> str:
    """Return the source code of a frame's line; empty if unknown, or if the frame has a range of lines."""
    if last_line(frame):
        return ""
    return snapshots.sources.get(frame.file, {}).get(frame.line, "")


def imported_package(stack: Sequence[Frame]) -> str:
    """Return the name of the package that was being imported; empty if there was no import.

    The innermost frame of the user's own code and all outer frames are skipped. A module of the user's program is own
    code, even during the import of the module.
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
    """Return whether a frame is part of an import system, either of Python or of a library."""
    if frame.file.startswith("<frozen importlib") or frame.file.endswith(_IMPORTING_FILES):
        return True
    return _OUR_PACKAGE in frame.file and frame.function.endswith(_IMPORTING)


def short_file(file: str) -> str:
    """Return the path of a file, beginning with the package. For a file outside packages, return folder and name."""
    inside = _SITE.match(file) or _STANDARD.match(file)
    if inside:
        return file[inside.end() :]
    if file.startswith("<"):
        return file
    return "/".join(file.split("/")[-_KEPT_PARTS:])


def brief_label(frame: Frame, before: Frame | None = None, *, has_function: bool = True, is_short: bool = False) -> str:
    """Return a frame as a short text: ``openvino/…/ts_decoder.py:105 trace``, or ``import torch`` for a module's code.

    ``before`` is the frame whose text comes before this text. If both frames have the same file, the file is left out.
    With ``is_short``, a file of the user has no folder, and a method of a library has no file: ``Model.forward``.
    """
    module = module_of(frame)
    if module:
        return f"import {shortened(printable(module), _LONGEST)}"
    function = shortened(printable(frame.function).replace(_LOCALS, ""), _LONGEST)
    is_method = "." in frame.function and _LOCALS not in frame.function
    if is_short and is_method and not is_own(frame.file):
        return function
    place = line_text(frame)
    if before is None or before.file != frame.file or module_of(before):
        place = shortened(_brief_file(frame.file, is_short=is_short), _LONGEST) + place
    is_place = place and (not has_function or frame.function == _MODULE)
    return place if is_place else f"{place} {function}".strip()


def _brief_file(file: str, *, is_short: bool) -> str:
    path = printable(short_file(file))
    parts = path.split("/")
    if is_short and package_of(file) == OWN:
        return parts[-1]
    is_brief = len(path) <= _BRIEF or len(parts) <= _KEPT_PARTS
    return path if is_brief else f"{parts[0]}/…/{parts[-1]}"


def line_text(frame: Frame) -> str:
    """Return the line of a frame, or the range of lines, after a colon: ``:5``, ``:5-7``; empty if there is no line."""
    if not frame.line:
        return ""
    return f":{frame.line}-{last_line(frame)}" if last_line(frame) else f":{frame.line}"


def last_line(frame: Frame) -> int:
    """Return the last line number of a frame with a range of lines; 0 if the frame has a single line, or no line."""
    return frame.last_line if isinstance(frame, FrameRange) else 0


def module_of(frame: Frame) -> str:
    """Return the module whose import runs the code of a frame; empty for a function, or for a file of the program."""
    if frame.function != _MODULE or package_of(frame.file) == OWN or frame.file.startswith("<"):
        return ""
    return short_file(frame.file).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def what_runs(frame: Frame) -> str:
    """Return the function of a frame, or ``import MODULE``; a question mark if unknown."""
    module = module_of(frame)
    return f"import {module}" if module else frame.function or "?"


def reported_frames(stack: Sequence[Frame]) -> list[tuple[int, Frame]]:
    """Return the frames that say something about the program, with their indexes. If there are none, return all frames.

    Frames that only pass a call on are left out: frames of an import system or a decorator, and frames between a caller
    and ``forward``.
    """
    reported = []
    for index, frame in enumerate(stack):
        is_innermost = index == len(stack) - 1
        if not _passes_on(frame, is_innermost=is_innermost):
            reported.append((index, frame))
    return reported or list(enumerate(stack))


def _passes_on(frame: Frame, *, is_innermost: bool) -> bool:
    if is_importing(frame) or _OUR_PACKAGE in frame.file:
        return True
    name = frame.function.rpartition(".")[2]
    if name in _WRAPPERS and not is_innermost:
        return package_of(frame.file) not in {OWN, PYTHON}
    return name in _CALLING and frame.file.endswith(_CALLING_FILES)


def shared_depth(*stacks: Sequence[Hashable]) -> int:
    """Return the number of outer frames that all stacks share, or of first characters that all texts share.

    To ignore line numbers, pass ``frame.code`` for each frame.
    """
    depth = 0
    for codes in zip(*stacks, strict=False):
        if len(set(codes)) > 1:
            break
        depth += 1
    return depth


def place_labels(stacks: Sequence[Sequence[Frame]]) -> list[str]:
    """Return a name for the innermost frame of each stack: ``_trace.py:455 trace`` or ``Model.forward``.

    If short names are equal, long names are used: ``torch/jit/_trace.py:455 trace``. If long names are equal, each name
    begins with the outermost frame that differs between the stacks.
    """
    labels = [_label_place(stack, is_short=True) for stack in stacks]
    for same in _find_equal(labels):
        for index in same:
            labels[index] = _label_place(stacks[index])
    for same in _find_equal(labels):
        depth = shared_depth(*([frame.code for frame in stacks[index]] for index in same))
        for index in same:
            if depth < len(stacks[index]) - 1:
                labels[index] = f"{brief_label(stacks[index][depth])}{SEPARATOR}{labels[index]}"
    return labels


def _find_equal(labels: Sequence[str]) -> list[list[int]]:
    indexes = defaultdict[str, list[int]](list)
    for index, label in enumerate(labels):
        indexes[label].append(index)
    return [same for same in indexes.values() if len(same) > 1]


def _label_place(stack: Sequence[Frame], *, is_short: bool = False) -> str:
    """Return a name for the innermost frame.

    If this frame is of the standard library or ``torch.nn``, the name begins with the nearest caller outside of both:
    ``CALLER › FRAME``.
    """
    frames = [stack[-1]]
    if _is_tool(stack[-1]):
        callers = [frame for frame in stack[:-1] if not _is_tool(frame)]
        frames = [*callers[-1:], stack[-1]]
    return SEPARATOR.join(brief_label(frame, is_short=is_short) for frame in frames)


def _is_tool(frame: Frame) -> bool:
    return package_of(frame.file) == PYTHON or "/torch/nn/" in frame.file


def library_text(function: str, file: str) -> str:
    """Return the package and the function of a library: ``numpy ones``.

    For the standard library, return only the function.
    """
    name = function.rpartition(".")[2]
    package = package_of(file)
    return name if package in {OWN, PYTHON} else f"{package} {name}"


def main_library(stacks: Mapping[Stack, int], size: int) -> str:
    """Return the library function that took at least half of ``size`` bytes: `` (numpy ones)``; empty if there is none.

    ``stacks`` has the bytes of each stack: ``{stack: bytes}``.
    """
    names = Counter[str]()
    for stack, part in stacks.items():
        if not is_of_user(stack[-1]):
            name = library_text(*stack[-1].code)
            names[shortened(printable(name), _LONGEST)] += part
    for name, largest in names.most_common(1):
        if name and largest >= size / 2:
            return f" ({name})"
    return ""


def best_frame(stack: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame of the user's own code.

    If there is no own code, return the innermost frame outside the standard library, or else the innermost frame. None
    for an empty stack.
    """
    return deepest_own(stack) or innermost_frame(stack)


def innermost_frame(stack: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame outside the standard library, or else the innermost frame; None for an empty stack."""
    shown = [frame for _, frame in reported_frames(stack)]
    outside = [frame for frame in shown if package_of(frame.file) != PYTHON]
    return next(reversed(outside or shown), None)


def calling_place(stack: Sequence[Frame]) -> int | None:
    """Return the index of the frame that called the library of the innermost frame; None if there is no such frame."""
    skipped = {package_of(stack[-1].file), PYTHON} - {OWN}
    for index in range(len(stack) - 2, -1, -1):
        if package_of(stack[index].file) not in skipped:
            return index
    return None
