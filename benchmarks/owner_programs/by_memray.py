"""Judge whose memory it is by memray, which logs each allocation: ``python -m benchmarks.owners --memray MODEL``.

Each watches a run of its own, for memray takes memory, too. Compared is anonymous memory at the peak, with what memray
logged at its highest heap. Imports are one row: memray does not see what a library takes while it is loaded.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.owner_programs.generator import MIB
from nncftools.analysis.build_up import BuildUp, of_peak
from nncftools.analysis.code_places import brief_label
from nncftools.analysis.session import Session
from nncftools.session.model import Frame

_SIZES = pathlib.Path(__file__).parent.parent / "workloads" / "memray_sizes.py"
_EXPORT = ("export", "openvino", "--task", "text-generation-with-past", "--weight-format")
_CLOSE, _CLOSE_BYTES = 0.1, 20 * MIB
_MOST_ROWS = 15
_IMPORT = "_find_and_load"
"""The function of Python that is in the stack of each import."""

Function = tuple[str, int]
"""The file, and the first line; imports have no file."""
Stacks = Sequence[tuple[int, Sequence[Frame], int]]
"""Bytes, the frames, and how many of the outer frames the bytes are counted for."""
_IMPORTS: Function = ("", 0)


class Size(NamedTuple):
    """What a function holds, itself or in what it calls, in bytes."""

    label: str
    said: int
    certain: int
    held: int
    """By memray."""

    @property
    def is_close(self) -> bool:
        """Return whether both are the same within 10 % or 20 MiB."""
        return abs(self.said - self.held) <= max(_CLOSE_BYTES, _CLOSE * self.held)


def print_table(model: pathlib.Path, real: pathlib.Path) -> bool:
    """Print what functions hold in an export of a model; return whether all rows are close."""
    environment = {
        **os.environ,
        "PATH": f"{real.absolute() / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "CI": "true",
        "HF_HUB_OFFLINE": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        sizes = judge_export(model.absolute(), "int8", environment, pathlib.Path(folder))
    print("| function | said, MiB | certain | memray, MiB | difference |")
    print("|---|---:|---:|---:|---:|")
    for size in sizes:
        said, certain, held = (round(value / MIB) for value in (size.said, size.certain, size.held))
        print(f"| {size.label} | {said} | {certain} | {held} | {said - held:+}{'' if size.is_close else ' (!)'} |")
    return all(size.is_close for size in sizes)


def judge_export(
    model: pathlib.Path, weight_format: str, environment: Mapping[str, str], folder: pathlib.Path
) -> list[Size]:
    """Record an export of a model, and memray's log of it; return the imports and the functions that hold most."""
    log, recording = folder / "memray.bin", folder / "session.json"
    where = subprocess.run(["which", "optimum-cli"], env=environment, check=True, capture_output=True, text=True)
    program = where.stdout.strip()
    ours = [sys.executable, "-m", "nncftools", "profile", "-q", "--no-plot", "-o", str(recording), "--", program]
    memray = ["python", "-m", "memray", "run", "--quiet", "-o", str(log), program]
    for number, words in enumerate((ours, memray)):
        export = [*words, *_EXPORT, weight_format, "--model", str(model), str(folder / f"out{number}")]
        subprocess.run(export, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = of_peak(Session.load(recording))
    assert found is not None
    command = ["python", str(_SIZES), str(log)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    held = [(size, [Frame(*frame) for frame in frames], len(frames)) for size, frames in json.loads(done.stdout)]
    return list(compare(found, held))


def compare(found: BuildUp, held: Stacks) -> Iterator[Size]:
    """Yield the imports, and the functions that hold most; of those that hold the same, the innermost one."""
    said = [(part.size - part.file_size, part.stack, len(part.stack)) for part in found.parts]
    certain = [(part.size - part.file_size, part.stack, part.certain) for part in found.parts]
    said_sizes, certain_sizes, held_sizes = sizes_of(said), sizes_of(certain), sizes_of(held)
    labels = {_IMPORTS: "all imports"}
    depths = {_IMPORTS: 0}
    for _, stack, _ in said:
        for depth, frame in enumerate(stack):
            labels[_function(frame)] = brief_label(Frame(frame.function, frame.file, 0))
            depths.setdefault(_function(frame), depth)
    places = {}
    for function in sorted(said_sizes, key=lambda function: (function != _IMPORTS, depths[function])):
        same = (said_sizes[function] // MIB, held_sizes[function] // MIB)
        places[same] = function
    largest = sorted(places.values(), key=lambda function: -said_sizes[function])[:_MOST_ROWS]
    for function in largest:
        yield Size(labels[function], said_sizes[function], certain_sizes[function], held_sizes[function])


def sizes_of(stacks: Stacks) -> Counter[Function]:
    """Return the bytes of each function outside imports; those inside belong to the imports."""
    sizes = Counter[Function]()
    for size, stack, depth in stacks:
        functions = {_function(frame) for frame in stack[:depth] if not _is_runner(frame)}
        imports = [number for number, frame in enumerate(stack) if frame.function == _IMPORT]
        if imports:
            functions = {_IMPORTS} if depth > imports[0] else set()
        for function in functions:
            sizes[function] += size
    return sizes


def _is_runner(frame: Frame) -> bool:
    return frame.file.startswith("<") or "/memray/" in frame.file


@functools.cache
def _function(frame: Frame) -> Function:
    """Return the innermost function around the line of a frame: memray names no classes."""
    starts = (start for start, end in _functions_in(frame.file) if start <= frame.line <= end)
    return frame.file, max(starts, default=0)


@functools.cache
def _functions_in(file: str) -> list[tuple[int, int]]:
    """Return the first and the last line of each function in a file."""
    if not file.endswith(".py"):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escape sequences in libraries
        tree = ast.parse(pathlib.Path(file).read_bytes())
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return [(node.lineno, node.end_lineno or node.lineno) for node in functions]
