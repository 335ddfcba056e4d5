"""Record a random program, and read the log of what it really took."""

from __future__ import annotations

import math
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

from benchmarks.owner_programs.generator import generate
from nncftools.analysis.session import Session

_LONGEST_S = 120
MEASURED = -1
"""The size of a thing in the log whose size is by how much RSS rose."""


class Place(NamedTuple):
    """A line of the program's own code, a range of lines, or a function without a line."""

    file: str
    line: int
    """0 for a function without a line."""
    function: str
    last: int = 0
    """The last line of a range; 0 for a line."""

    @property
    def code(self) -> Place:
        """The function, whatever the line."""
        return self._replace(line=0, last=0)

    @property
    def is_range(self) -> bool:
        """Whether it may be any of several lines."""
        return self.length > 1

    @property
    def length(self) -> float:
        """The number of lines; infinite for a function."""
        return max(1, self.last - self.line + 1) if self.line else math.inf

    def covers(self, other: Place) -> bool:
        """Return whether a place is in this one."""
        is_inside = not self.line or self.line <= other.line <= max(self.line, self.last)
        return self.code == other.code and is_inside

    @property
    def text(self) -> str:
        """The place in words."""
        lines = f":{self.line}" if self.line else ""
        lines += f"-{self.last}" if self.last else ""
        return f"{self.file}{lines} {self.function}"


class Taken(NamedTuple):
    """An allocation; moments are those of the monotonic clock in nanoseconds."""

    stack: tuple[Place, ...]
    """The program's own frames, the outermost first."""
    size: int
    from_ns: float
    until_ns: float
    """It takes memory from the one to the other moment."""
    ends_ns: float
    rss: int
    """What all processes held when it began."""


class Reading(NamedTuple):
    """The RSS of a process, and which of its allocations were under way until then."""

    at_ns: int
    process: int
    rss: int
    taking: tuple[str, ...]


class Truth(NamedTuple):
    """All that a program logged."""

    taken: dict[str, Taken]
    readings: list[Reading]

    def by_process(self) -> dict[int, list[Reading]]:
        """Return the readings of each process."""
        processes: dict[int, list[Reading]] = {}
        for reading in self.readings:
            processes.setdefault(reading.process, []).append(reading)
        return processes


def record(seed: int, folder: pathlib.Path, *, is_slow: bool = False) -> None:
    """Write a program into a folder and record it, unless the folder has its recording."""
    if (folder / "s.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    generate(seed, is_slow=is_slow).write(folder)
    (folder / "truth.log").unlink(missing_ok=True)
    environment = {**os.environ, "OWNERS_TRUTH": str(folder / "truth.log")}
    profile = [sys.executable, "-m", "nncftools", "profile", "-q", "--force", "-o", "s.json", "--"]
    command = [*profile, sys.executable, "main.py"]
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=_LONGEST_S)


def session_of(folder: pathlib.Path) -> Session:
    """Return the recording of a program."""
    return Session.load(folder / "s.json")


def truth_of(file: pathlib.Path) -> Truth:
    """Return what a program logged."""
    taken: dict[str, Taken] = {}
    readings: list[Reading] = []
    rss: dict[int, int] = {}
    taking: dict[int, dict[str, int]] = {}
    lines = [line.split("\t") for line in file.read_text("utf-8").splitlines()]
    last_lines = {fields[1]: number for number, fields in enumerate(lines)}
    for number, (event, process_text, time_text, rss_text, token, size_text, stack) in enumerate(lines):
        process, at_ns = int(process_text), int(time_text)
        under_way = taking.setdefault(process, {})
        rss[process] = int(rss_text)
        readings.append(Reading(at_ns, process, rss[process], tuple(under_way)))
        if event == "takes":
            taken[token] = Taken(_stack(stack), 0, at_ns, math.inf, math.inf, sum(rss.values()))
            under_way[token] = rss[process]
        elif event == "lives":
            risen = rss[process] - under_way.pop(token)
            size = risen if int(size_text) == MEASURED else int(size_text)
            taken[token] = taken[token]._replace(size=max(0, size), until_ns=at_ns)
        elif event == "ends":
            taken[token] = taken[token]._replace(ends_ns=at_ns)
        if number == last_lines[process_text]:
            del rss[process]
    truth = Truth(taken, readings)
    for process, of_process in truth.by_process().items():
        last_ns = of_process[-1].at_ns
        for token, one in taken.items():
            if token.startswith(f"{process}."):
                taken[token] = one._replace(ends_ns=min(one.ends_ns, last_ns))
    return truth


def _stack(text: str) -> tuple[Place, ...]:
    fields = (place.split(":") for place in text.split(";"))
    return tuple(Place(file, int(line), function) for file, line, function in fields)
