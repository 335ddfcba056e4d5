"""Judge whose memory nncf-tools says it is by random programs: ``python -m benchmarks.owners --random 40``."""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.owner_programs.certainty import Size, Sizes, place_of, sizes_of
from benchmarks.owner_programs.generator import MIB
from benchmarks.owner_programs.recording import Place, Truth, record, session_of, truth_of
from nncftools.analysis.build_up import BuildUp, of_peak
from nncftools.analysis.frames import holders
from nncftools.analysis.session import Session

LEAST_EXCESS = 8 * MIB
_MOST_ROWS = 20
_SHOWN = 0.05
"""Smaller rows are not judged."""
_MODULE = "<module>"
_RULES = """\
- A range of lines, or a function without a line, counts for the lines in it, up to what they have, and never for more
  than its bytes. The rest counts as said of the line in it that has most; without one, the range is a wrong line.
- Nothing that is only said of a range is certain for a line.
- What rose there: rises of RSS that no fall took away. Freed memory that the process keeps for later has no addresses.
- Functions and lines are judged by a figure if it, or what is said, has at least 16 MiB."""


class Row(NamedTuple):
    """A row of the report."""

    label: str
    share: float
    """Of the peak."""
    place: str
    """The own code that it names; empty without own code."""
    is_right: bool


def rows_of(found: BuildUp, session: Session, truth: Truth) -> list[Row]:
    """Return the rows of the report of a recording that name a stack."""
    folder = pathlib.Path(session.cwd)
    rows = []
    for holder in holders(found, session, _MOST_ROWS):
        if holder.stack and holder.size >= _SHOWN * found.size:
            places = (place_of(frame, folder) for frame in reversed(holder.stack))
            place = next((place for place in places if place), None)
            is_right = place is not None and took_memory(place, truth)
            text = "" if place is None else place.text
            rows.append(Row(holder.label, holder.size / found.size, text, is_right))
    return rows


def took_memory(place: Place, truth: Truth) -> bool:
    """Return whether a place is a function, or an imported module, in which memory was taken.

    The code of a script is neither: there the place must be the line that took memory, or a range with this line.
    """
    for taken in truth.taken.values():
        entry, innermost = taken.stack[0], taken.stack[-1]
        is_script = innermost.code == entry.code and innermost.function == _MODULE
        is_precise = not is_script or (place.line > 0 and place.covers(innermost))
        if place.code == innermost.code and is_precise:
            return True
    return False


class Judged(NamedTuple):
    """What came of one program."""

    seed: int
    rows: Sequence[Row]
    sizes: Sizes | None


def judge(seed: int, folder: pathlib.Path, *, is_slow: bool = False) -> Judged:
    """Record a program, unless the folder has its recording, and judge what is said about it."""
    record(seed, folder, is_slow=is_slow)
    session, truth = session_of(folder), truth_of(folder / "truth.log")
    found = of_peak(session)
    rows = [] if found is None else rows_of(found, session, truth)
    return Judged(seed, rows, None if found is None else sizes_of(session, found, truth))


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
        "functions, above that and what is left of their freed memory": _excess(functions, "excess_if_kept"),
        "lines, above that and what is left of their freed memory": _excess(lines, "excess_if_kept"),
        "part of the peak whose innermost own function is certain, mean": f"{certain:.0%}",
        "largest holder right": _share([of.is_largest_right for of in known]),
        "functions within 10 % or 8 MiB of what they hold": _close(functions, "is_held"),
        "functions within that of what rose there": _close(functions, "is_risen"),
        "lines within that of what they hold": _close(lines, "is_held"),
        "lines within that of what rose there": _close(lines, "is_risen"),
        "lines within that of what rose there, without ranges": _close(lines, "is_risen_by_line"),
    }


def _share(right: Sequence[bool]) -> str:
    return f"{sum(right)} of {len(right)} ({sum(right) / max(1, len(right)):.0%})"


def _close(sizes: Sequence[Sequence[Size]], question: str) -> str:
    answers = [getattr(size, question) for size in chain(*sizes)]
    return _share([answer for answer in answers if answer is not None])


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


def judge_programs(
    seeds: Iterable[int], jobs: int, keep: pathlib.Path | None, output: pathlib.Path | None, *, is_slow: bool
) -> None:
    """Record programs or take their kept recordings, print the tables, and write all of it as JSON."""
    with tempfile.TemporaryDirectory() as made, concurrent.futures.ThreadPoolExecutor(jobs) as executor:
        folder = (keep or pathlib.Path(made)).resolve()

        def judge_one(seed: int) -> Judged:
            return judge(seed, folder / f"{'slow-' if is_slow else ''}{seed}", is_slow=is_slow)

        programs = list(executor.map(judge_one, seeds))
    tables = {"names": names(programs), "certainty": certainty(programs)}
    for title, figures in tables.items():
        _print_table(title, figures)
    print(f"\n{_RULES}\n")
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
