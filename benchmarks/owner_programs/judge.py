"""Judge whose memory nncf-tools says it is by random programs: ``python -m benchmarks.owners --random 40``."""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.owner_programs.recording import Place, Truth, record, truth_of

_SHOWN = 0.05
"""Smaller rows are not judged."""
_MODULE = "<module>"


class Row(NamedTuple):
    """A row of the report."""

    label: str
    share: float
    """Of the peak."""
    place: str
    """The own code that it names; empty without own code."""
    is_right: bool


def own_place(file: str, function: str, line: int | None, folder: pathlib.Path) -> Place | None:
    """Return a frame of the program's own files; None for any other frame."""
    path = pathlib.Path(file)
    if path.parent not in {folder, pathlib.Path()} or path.name in {"", "truth.py"} or file.startswith("<"):
        return None
    return Place(path.name, line or 0, function)


def rows_of(folder: pathlib.Path, truth: Truth) -> list[Row]:
    """Return the rows of the report of a recording that name a stack."""
    command = [sys.executable, "-m", "nncftools", "report", "--format", "json", "s.json"]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE)
    build_up = json.loads(done.stdout)["peak"]["build_up"]
    if build_up is None:
        return []
    right = {allocation.stack[-1] for allocation in truth.taken.values()}
    right |= {place.code for place in right if place.function != _MODULE}
    large = (holder for holder in build_up["holders"] if holder["size"] >= _SHOWN * build_up["size"])
    return [_row(holder, build_up["size"], right, folder) for holder in large if holder["frames"]]


def _row(holder: Mapping[str, Any], size: int, right: set[Place], folder: pathlib.Path) -> Row:
    """Return a row: right if its deepest own frame is a function that took memory, or such a line of a module."""
    frames = (own_place(frame["file"], frame["function"], frame["line"], folder) for frame in holder["frames"])
    place = next((place for place in reversed(list(frames)) if place), None)
    is_right = place is not None and (place in right or place.code in right)
    text = "" if place is None else f"{place.file}:{place.line} {place.function}"
    return Row(holder.get("label") or holder["text"], holder["size"] / size, text, is_right)


class Judged(NamedTuple):
    """What came of one program."""

    seed: int
    rows: Sequence[Row]


def judged(seed: int, folder: pathlib.Path) -> Judged:
    """Record a program and judge what is said about it."""
    record(seed, folder)
    truth = truth_of(folder / "truth.log")
    return Judged(seed, rows_of(folder, truth))


def _share(right: int, every: int) -> str:
    return f"{right} of {every} ({right / max(every, 1):.0%})"


def names(programs: Sequence[Judged]) -> dict[str, str]:
    """Return how many rows name the own code that took memory."""
    rows = [row for program in programs for row in program.rows]
    first = [program.rows[0] for program in programs if program.rows]
    all_right = sum(all(row.is_right for row in program.rows) for program in programs)
    return {
        "rows of 5 % and more that name own code which took memory": _share(
            sum(row.is_right for row in rows), len(rows)
        ),
        "first rows that do": _share(sum(row.is_right for row in first), len(programs)),
        "programs all of whose rows do": _share(all_right, len(programs)),
    }


def print_table(title: str, figures: Mapping[str, str]) -> None:
    """Print figures with their names."""
    print(f"\n| {title} | |\n|---|---:|")
    for name, figure in figures.items():
        print(f"| {name} | {figure} |")


def judge_programs(seeds: Iterable[int], jobs: int, keep: pathlib.Path | None, output: pathlib.Path | None) -> None:
    """Record programs or take their kept recordings, print the tables, and write all of it as JSON."""
    with tempfile.TemporaryDirectory() as made, concurrent.futures.ThreadPoolExecutor(jobs) as executor:
        folder = (keep or pathlib.Path(made)).resolve()
        programs = list(executor.map(lambda seed: judged(seed, folder / str(seed)), seeds))
    print_table("names", names(programs))
    wrong = [(program.seed, row) for program in programs for row in program.rows if not row.is_right]
    print("".join(f"\n- {seed}: {row.share:.0%} {row.label} [{row.place or 'no own code'}]" for seed, row in wrong))
    if output is not None:
        every = [{"seed": program.seed, "rows": [row._asdict() for row in program.rows]} for program in programs]
        output.write_text(json.dumps({"names": names(programs), "programs": every}, indent=1) + "\n", "utf-8")
