"""Judge whose memory nncf-tools says it is, and what saying so costs: ``python -m benchmarks.owners``.

Rows are programs that take 100, 200 and 300 MiB in three functions at 200 MiB a second. A part may differ from that
by 5 % and by what grows in 30 ms at each change of function; at most 2 % of all may be wrongly called certain. With
``--cost``: the helper's CPU time over a minute of growth and of sleep, and the CPU time of a program with and without
stacks, in pairs. The exit status is 1 if anything was wrong. With ``--random``, ``--seeds`` or ``--slow``: tables of
how right the rows and sizes are in random programs that know the truth. With ``--memray MODEL --real VENV``: what
functions hold in an export of this model, beside what memray logs in a second run.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple

from benchmarks import machine
from benchmarks.__main__ import positive
from benchmarks.owner_programs.by_memray import print_table
from benchmarks.owner_programs.judge import judge_programs
from nncftools.analysis.build_up import NOT_SEEN, SEEN, SHARED, BuildUp, of_peak
from nncftools.analysis.session import Session

MIB = 1 << 20
_ROOT = pathlib.Path(__file__).parent.parent
_PROGRAMS = pathlib.Path(__file__).parent / "workloads"
_CHANGE = 200 * 0.03
_SHARE = 0.05
_TRUTH = {"first": 100.0, "second": 200.0, "third": 300.0}
_FREED = {"second": 400.0, "grow_and_free": 0.0}
_IN_TURN = {"takes": 300.0, "computes": 0.0}
_ROWS = {
    "main": "main thread, pauses of 0.5 s",
    "main 0": "main thread, no pause",
    "threads": "threads, beside one that spins",
    "at_once": "three threads at once",
    "forked": "forked children",
    "spawned": "spawned children",
    "native": "native call that holds the GIL",
    "pool": "native pool, main waits",
    "mapped": "mapped files, read and copied",
    "freed": "300 taken and freed, then 400",
    "alternating": "two functions of 20 ms in turn",
    "bursts": "bursts of 30 MiB, other code in between",
    "short": "calls of 2 MiB, between calls of 10 ms",
    "stateless": "the same, in a loop without variables",
    "mapped_calls": "the same, called by map()",
    "sorting": "keys of a sort, whose comparisons compute",
    "event_loop": "callbacks of an event loop",
}
_FAST = {"alternating", "bursts", "short", "stateless", "mapped_calls", "sorting", "event_loop"}
"""These need not be told apart, but nothing wrong may be called certain."""
_UNCERTAIN = {*_FAST, "forked", "at_once"}
"""Of these, less may be certain: forked children share memory, and threads at once have likely shares."""
_CERTAIN, _EXCESS = 0.85, 0.02
_GROWS = "import time\nheld = []\nfor _ in range(1200):\n    held.append(bytearray(b'x') * (1 << 20)); time.sleep(0.05)"
_SLEEPS = "import time; time.sleep(60)"
_WORKS = (
    "held = []\n"
    "for number in range(300):\n"
    "    held.append(bytearray(b'x') * (1 << 20)); sum(range(200_000))\n"
    "import resource; print(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))"
)


class Judged(NamedTuple):
    """A run of a row."""

    told: str
    wrong: list[str]
    cpu_s: float | None


def run(words: list[str], folder: pathlib.Path, *options: str) -> tuple[Session, str]:
    """Record a command; return the session and what the command printed."""
    path = folder / "run.json"
    command = [sys.executable, "-m", "nncftools", "monitor", "-q", "--force", "-o", str(path), *options, "--", *words]
    done = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return Session.load(path), done.stdout


def judge(row: str, library: pathlib.Path, folder: pathlib.Path) -> Judged:
    """Record a row and compare it with the truth."""
    how, _, pause = row.partition(" ")
    words = [sys.executable, "-S", "-E", str(_PROGRAMS / "stacked.py"), how, pause or "0.5", str(library)]
    session, _ = run(words, folder, "--stacks")
    found = of_peak(session)
    if found is None or session.snapshots is None:
        return Judged("–", ["no build-up"], None)
    truth = _FREED if how == "freed" else _IN_TURN if how in _FAST else _TRUTH
    wrong, told = [], []
    for name, size in truth.items():
        whole, certain = _held(found, name), _held(found, name, certain=True)
        told.append(f"{whole:.0f} ({certain:.0f})")
        if how not in _FAST and abs(whole - size) > size * _SHARE + 2 * _CHANGE:
            wrong.append(f"{name}: {whole:.0f} instead of {size:.0f} MiB")
        if certain > size + _EXCESS * sum(truth.values()):
            wrong.append(f"{name}: {certain:.0f} of {size:.0f} MiB certain")
    certain = sum(part.size for part in found.parts if part.is_certain)
    sizes = (certain, found.sum_of(SEEN) - certain, found.sum_of(NOT_SEEN), found.sum_of(SHARED))
    if how not in _UNCERTAIN and certain < found.size * _CERTAIN:
        wrong.append(f"only {certain / found.size:.0%} certain")
    shares = (f"{size / found.size:.0%}" for size in sizes)
    return Judged(" | ".join([", ".join(told), *shares]), wrong, session.snapshots.cpu_s)


def _held(found: BuildUp, name: str, *, certain: bool = False) -> float:
    """Return the MiB of a function of the program."""
    sizes = (
        part.size
        for part in found.parts
        if any(frame.function.endswith(name) for frame in (part.stack[: part.certain] if certain else part.stack))
    )
    return sum(sizes) / MIB


def owners(rows: list[str], runs: int, folder: pathlib.Path) -> bool:
    """Print the table of rows; return whether all are right."""
    library = folder / "pool.so"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is not None:
        source = str(_PROGRAMS / "pool.c")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-pthread", source, "-o", str(library)], check=True)
    print("| memory taken in | MiB said (certain) | certain | likely | not seen | shared | helper | right |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    every = []
    for row in rows:
        if row == "pool" and compiler is None:
            print(f"| {_ROWS[row]} | left out: no C compiler | | | | | | |")
            continue
        judged = [judge(row, library, folder) for _ in range(runs)]
        worst = max(judged, key=lambda one: len(one.wrong))
        right = sum(not one.wrong for one in judged)
        cost = "–" if worst.cpu_s is None else f"{worst.cpu_s:.2f} s"
        print(f"| {_ROWS[row]} | {worst.told} | {cost} | {right} of {runs} |", flush=True)
        every += [f"{row}: {text}" for one in judged for text in one.wrong]
    print("".join(f"\n- {text}" for text in every))
    return not every


def cost(pairs: int, folder: pathlib.Path) -> bool:
    """Print what the helper costs itself, and what it costs the command; return whether both are in their limits."""
    for name, program, most_s in (("grows for a minute", _GROWS, 0.6), ("sleeps for a minute", _SLEEPS, 0.3)):
        session, _ = run([sys.executable, "-c", program], folder, "--stacks")
        spent_s = None if session.snapshots is None else session.snapshots.cpu_s
        print(f"helper beside a program that {name}: {spent_s} CPU s in {session.duration_s:.1f} s (limit {most_s})")
    ratios: dict[str, list[float]] = {"with stacks": [], "without": []}
    for _ in range(pairs):
        base = float(run([sys.executable, "-c", _WORKS], folder)[1])
        for name, options in (("with stacks", ["--stacks"]), ("without", [])):
            ratios[name].append(float(run([sys.executable, "-c", _WORKS], folder, *options)[1]) / base)
    for name, found in ratios.items():
        low, high = min(found), max(found)
        print(
            f"CPU time of the command {name}: {statistics.median(found):.3f} ({low:.2f} to {high:.2f}), {pairs} pairs"
        )
    return min(ratios["without"]) <= statistics.median(ratios["with stacks"]) <= max(ratios["without"])


def _seeds(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last or first) + 1)


def main() -> int:
    """Judge, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.owners", description="Judge whose memory it is.")
    parser.add_argument("--runs", type=positive, default=3, metavar="N", help="runs of a row, default 3")
    parser.add_argument("--only", action="append", choices=list(_ROWS), metavar="NAME", help=", ".join(_ROWS))
    parser.add_argument("--cost", action="store_true", help="measure what it costs, instead")
    parser.add_argument("--pairs", type=positive, default=20, metavar="N", help="pairs of runs, default 20")
    parser.add_argument("--random", type=positive, metavar="N", help="judge by the random programs 1 to N, instead")
    parser.add_argument("--seeds", type=_seeds, metavar="A:B", help="the same by the random programs A to B")
    parser.add_argument(
        "--slow", type=positive, metavar="N", help="judge by N programs of one thread that take memory once a second"
    )
    parser.add_argument("--memray", type=pathlib.Path, metavar="MODEL", help="judge an export by memray, instead")
    parser.add_argument("--real", type=pathlib.Path, metavar="VENV", help="with --memray: it has the real tools")
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="random programs at once, default 1")
    parser.add_argument(
        "--keep", type=pathlib.Path, metavar="DIR", help="keep their recordings, or judge kept ones again"
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write what came of them into a file")
    found = parser.parse_args()
    if found.memray is not None and found.real is None:
        parser.error("--memray needs --real VENV")
    print(f"{machine.description()}\n")
    last = found.slow or found.random
    if seeds := found.seeds or (last and range(1, last + 1)):
        judge_programs(seeds, found.jobs, found.keep, found.json, is_slow=found.slow is not None)
        return 0
    if found.memray is not None:
        return 0 if print_table(found.memray, found.real) else 1
    with tempfile.TemporaryDirectory() as folder:
        if found.cost:
            return 0 if cost(found.pairs, pathlib.Path(folder)) else 1
        return 0 if owners(found.only or list(_ROWS), found.runs, pathlib.Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
