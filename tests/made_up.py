"""Small sessions and journals for tests, with figures that are easy to follow."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from array import array
from math import nan
from typing import TYPE_CHECKING, Any

import pytest

from nncftools.analysis.operation import Operation
from nncftools.analysis.peaks import Bracket, Figures, peaks
from nncftools.analysis.session import Session
from nncftools.session.model import Exit, Host, Mark, Process, SamplerFacts, Start
from nncftools.session.nesting import find_parents
from nncftools.session.samples import TIME, Samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Column = Sequence[float | None]

MIB = 2**20
UTC = "2026-11-21T07:00:00.000000+00:00"
RSS_MIB: Column = (100, 300, 200)


def mib(*sizes: float | None) -> list[int | None]:
    """Return sizes in MiB as bytes."""
    return [None if size is None else int(size * MIB) for size in sizes]


def rows(table: str) -> list[Any]:
    """Return the lines of a table as parameters, with cells between bars; the lines after ``long`` have this mark."""
    quick, _, slow = table.partition("\nlong\n")
    found = [pytest.param(*_cells(line)) for line in quick.strip("\n").splitlines()]
    return found + [pytest.param(*_cells(line), marks=pytest.mark.long) for line in slow.splitlines()]


def cases(table: str) -> list[Any]:
    """Return the lines of a table as parameters; the first cell is the name of the case."""
    return [pytest.param(*cells, id=name) for name, *cells in map(_cells, table.strip("\n").splitlines())]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r" \|(?: |$)", line)]


def read_numbers(text: str) -> list[float | None]:
    """Return numbers from a text such as ``1 - 2.5``; ``-`` is unknown."""
    return [None if word == "-" else float(word) for word in text.split()]


def samples(time_s: Sequence[float], **columns: Column) -> Samples:
    """Return columns as in a recording: None becomes NaN."""
    given: dict[str, Column] = {TIME: time_s, **columns}
    return Samples(
        {name: array("d", (nan if value is None else value for value in column)) for name, column in given.items()}
    )


def process(number: int = 0, **fields: Any) -> Process:  # noqa: ANN401 — any field of a process
    """Return a process that lives through the whole recording of ``session``."""
    given = {"pid": 100 + number, "name": "work", "command": ["work"], "start_s": 0.0, "end_s": 1.0}
    return Process(id=number, **{**given, **fields})


def marks(text: str, **fields: Any) -> list[Mark]:  # noqa: ANN401 — any field of a mark
    """Return operations from a text such as ``Export 0-0.9, Export/trace 0.1-0.2, Saving 0.9``.

    A path says which operations are around one. Without an end, an operation is ended by the next one.
    """
    found = []
    for operation in text.split(", "):
        path, _, span = operation.rpartition(" ")
        start, _, end = span.partition("-")
        ends = {"end_s": float(end)} if end else {}
        name = path.rpartition("/")[2]
        found.append(Mark(**{"name": name, "start_s": float(start), "depth": path.count("/"), **ends, **fields}))
    return found


def nested(operations: Sequence[Operation]) -> Sequence[Operation]:
    """Return operations, in the order of their starts, with the operation around each."""
    for operation, parent in zip(operations, find_parents([(of, of.end_s) for of in operations]), strict=True):
        operation.parent = None if parent is None else operations[parent]
    return operations


def session(columns: Mapping[str, Column] | None = None, **fields: Any) -> Session:  # noqa: ANN401 — any field of a session
    """Return a complete run with one sample every half second: by default RSS of 100, 300 and 200 MiB."""
    of = dict(columns) if columns is not None else {"rss": mib(*RSS_MIB)}
    number = len(next(iter(of.values()), ()))
    time_s = of.pop(TIME, [place / 2 for place in range(number)])
    taken = samples([value for value in time_s if value is not None], **of)
    given: dict[str, Any] = {
        "tool_version": "0.1.0",
        "name": "run",
        "command": ["work", "--fast"],
        "start": Start(utc=UTC, monotonic_ns=5),
        "duration_s": taken.time_s[-1] if len(taken) else 0.0,
        "exit": Exit(code=0),
        "host": Host(name="box"),
        "sampler": SamplerFacts(interval_s=0.5, achieved_interval_s=0.5, missed=0, longest_gap_s=0.5),
        "samples": taken,
        "totals": {"cpu_user": 0.5, "cpu_system": 0.25, "read_bytes": 4096, "write_bytes": 0},
        "processes": [process()],
    }
    of_fields = Session(**{**given, **fields})
    if "peaks" not in fields:
        of_fields.peaks = peaks(of_fields)
    return of_fields


def header(columns: Sequence[str] = ("rss",), **fields: Any) -> dict[str, Any]:  # noqa: ANN401 — any key of the header
    """Return the first line of a journal."""
    plan = {"argv": ["work"], "pid": None, "interval_s": 0.5, "columns": list(columns), "source": "proc"}
    facts = {"format": "nncf-tools-journal", "version": 1, "name": "run", "command": ["work"], "cwd": "/", "host": {}}
    return {**facts, "plan": plan, **fields}


START = {"start": {"utc": UTC, "monotonic_ns": 5, "pid": 100}}
FIRST_PROCESS = {"process": {"id": 0, "pid": 100, "name": "work", "command": ["work"], "start_s": 0.0}}


def figures(
    *, rss: Sequence[float | None] = (), cpu: Sequence[float | None] = (), **spent: float | None
) -> dict[str, Figures]:
    """Return the figures of an operation: RSS at its start, its end and its peak; CPU spent and peak; counters."""

    def peak(value: float | None) -> Bracket | None:
        return None if value is None else Bracket(value, None, 0, 0)

    found = {column: Figures(spent=value) for column, value in spent.items()}
    if rss:
        found["rss"] = Figures(rss[0], rss[1], peak(rss[2]))
    if cpu:
        found["cpu"] = Figures(spent=cpu[0], peak=peak(cpu[1]))
    return found


END = {"end": {"duration_s": 1.25, "totals": {"cpu_user": 0.5}, "exit": {"code": 3, "signal": None}, "sampler": {}}}


def journal(*lines: object, first: object = None) -> bytes:
    """Return a journal: header, start, one process, then ``lines``; bytes are inserted unchanged."""
    of = (header() if first is None else first, START, FIRST_PROCESS, *lines)
    return b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in of)


@contextlib.contextmanager
def full_disk(free: int = 100) -> Iterator[None]:
    """Make every write beyond ``free`` bytes of a file fail as on a full disk.

    Programs started inside it write no compiled modules: before Python 3.13.1 the import system truncates such a file
    on a full disk, and every later import of the module fails (https://github.com/python/cpython/issues/126606).
    """
    resource = pytest.importorskip("resource", reason="no file size limit on this system")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, hard))
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        yield
    finally:
        del os.environ["PYTHONDONTWRITEBYTECODE"]
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
