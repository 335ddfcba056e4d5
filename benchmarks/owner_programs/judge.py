"""Judge whose memory nncf-tools says it is by random programs: ``python -m benchmarks.owners --random 40``."""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.owner_programs.certainty import Size, Sizes, sizes_of
from benchmarks.owner_programs.generator import MIB
from benchmarks.owner_programs.recording import Place, Truth, own_place, record, session_of, truth_of

LEAST_EXCESS = 8 * MIB
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
    label = holder.get("label") or holder["text"]
    return Row(label, holder["size"] / size, "" if place is None else place.text, is_right)


class Judged(NamedTuple):
    """What came of one program."""

    seed: int
    rows: Sequence[Row]
    sizes: Sizes | None


def judge(seed: int, folder: pathlib.Path) -> Judged:
    """Record a program and judge what is said about it."""
    record(seed, folder)
    truth = truth_of(folder / "truth.log")
    return Judged(seed, rows_of(folder, truth), sizes_of(session_of(folder), truth, folder))


def names(programs: Sequence[Judged]) -> dict[str, str]:
    """Return how many rows name the own code that took memory."""
    return {
        "rows of 5 % and more that name own code which took memory": _share(
            [row.is_right for program in programs for row in program.rows]
        ),
        "first rows that do": _share([program.rows[0].is_right for program in programs if program.rows]),
        "programs all of whose rows do": _share([all(row.is_right for row in program.rows) for program in programs]),
    }


def certainty(programs: Sequence[Judged]) -> dict[str, str]:
    """Return how much is wrongly certain, how much is certain, and how many sizes are right."""
    known = [program.sizes for program in programs if program.sizes is not None]
    certain = fmean([of.certain for of in known] or [0.0])
    functions, lines = [of.functions for of in known], [of.lines for of in known]
    return {
        "functions certain by more than 8 MiB above what they hold": _excess(functions, "excess"),
        "lines certain by more than 8 MiB above what they hold": _excess(lines, "excess"),
        "functions, above what they hold by the rule for freed memory, too": _excess(functions, "excess_by_rule"),
        "lines, above what they hold by the rule for freed memory, too": _excess(lines, "excess_by_rule"),
        "part of the peak whose innermost own function is certain, mean": f"{certain:.0%}",
        "largest holder right": _share([of.is_largest_right for of in known]),
        "functions within 10 % or 8 MiB of what they hold": _close(functions, "is_held"),
        "functions within that of what rose there": _close(functions, "is_risen"),
        "lines within that of what they hold": _close(lines, "is_held"),
        "lines within that of what rose there": _close(lines, "is_risen"),
    }


def _share(right: Sequence[bool]) -> str:
    return f"{sum(right)} of {len(right)} ({sum(right) / max(1, len(right)):.0%})"


def _close(sizes: Sequence[Sequence[Size]], question: str) -> str:
    return _share([getattr(size, question) for size in chain(*sizes) if size.is_large])


def _excess(sizes: Sequence[Sequence[Size]], figure: str) -> str:
    wrong = [
        [getattr(size, figure) for size in of_program if getattr(size, figure) > LEAST_EXCESS] for of_program in sizes
    ]
    places = list(chain(*wrong))
    return f"{len(places)} ({sum(places) / MIB:.0f} MiB, in {sum(map(bool, wrong))} programs)"


def _faults(program: Judged) -> Iterator[str]:
    """Yield the rows and sizes of a program that are wrong."""
    for row in program.rows:
        if not row.is_right:
            yield f"row {row.label}: {row.share:.0%}, names {row.place or 'no own code'}"
    sizes = [] if program.sizes is None else [*program.sizes.functions, *program.sizes.lines]
    for size in sizes:
        if size.excess > LEAST_EXCESS:
            held = f"holds {size.held / MIB:.0f}, {size.rose / MIB:.0f} rose there"
            yield f"{size.place.text}: {size.certain / MIB:.0f} MiB certain, {held}"


def _print_table(title: str, figures: Mapping[str, str]) -> None:
    print(f"\n| {title} | |\n|---|---:|")
    for name, figure in figures.items():
        print(f"| {name} | {figure} |")


def judge_programs(seeds: Iterable[int], jobs: int, keep: pathlib.Path | None, output: pathlib.Path | None) -> None:
    """Record programs or take their kept recordings, print the tables, and write all of it as JSON."""
    with tempfile.TemporaryDirectory() as made, concurrent.futures.ThreadPoolExecutor(jobs) as executor:
        folder = (keep or pathlib.Path(made)).resolve()
        programs = list(executor.map(lambda seed: judge(seed, folder / str(seed)), seeds))
    tables = {"names": names(programs), "certainty": certainty(programs)}
    for title, figures in tables.items():
        _print_table(title, figures)
    print()
    for program in programs:
        for fault in _faults(program):
            print(f"- {program.seed}: {fault}")
    if output is not None:
        document = {**tables, "programs": [_document(program) for program in programs]}
        output.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def _document(program: Judged) -> dict[str, Any]:
    rows = [row._asdict() for row in program.rows]
    sizes = program.sizes
    if sizes is None:
        return {"seed": program.seed, "rows": rows, "sizes": None}
    places = {"functions": sizes.functions, "lines": sizes.lines}
    documents = {name: [{**of._asdict(), "place": of.place.text} for of in every] for name, every in places.items()}
    return {"seed": program.seed, "rows": rows, "sizes": {**sizes._asdict(), **documents}}
