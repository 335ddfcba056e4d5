"""What the live view costs: ``python -m benchmarks.live`` prints a Markdown table.

A journal of a million samples (10 ms apart) is written, then followed while it grows by a hundred samples a second, and
drawn twice a second: CPU time of this process, in percent of one core. The same for a day of samples half a second
apart, read as fast as possible, with an operation every ten seconds and processes that come and go: resident memory
after an hour and at the end. The share of samples is that of ``monitor -i 0.01`` in a terminal, with ``--live`` and
without, the runs in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING

from benchmarks.machine import description
from nncftools import Session
from nncftools.live.figures import Machine, ViewSettings
from nncftools.live.follower import Follower
from nncftools.live.layout import Drawing

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = 1_000_000
INTERVAL_S = 0.01
FRAME_S = 0.5
WATCHED_S = 30.0
DAY_S = 24 * 3600
SIZES = ((80, 24), (120, 40), (200, 60))
COLUMNS = ["rss", "system", "cpu_user", "cpu_system", "read_bytes", "write_bytes", "processes"]
_MIB = 2**20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What the live view costs.")
    parser.add_argument("--runs", type=int, default=3, help="recordings with and without the view")
    runs: int = parser.parse_args().runs
    print(f"{description()}\n\n| | |\n|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        journal = pathlib.Path(folder, "run.journal.jsonl")
        _write_journal(journal)
        begin_s = time.process_time()
        with Follower(journal) as follower:
            follower.read()
            print(f"| reading {SAMPLES:,} samples, once | {time.process_time() - begin_s:.1f} s CPU |")
            for size in SIZES:
                what = f"drawing at {1 / FRAME_S:g} frames a second, {size[0]}×{size[1]}"
                print(f"| {what} | {_cost(follower, journal, size):.1%} of one core |")
        hour, day = _memory_over_a_day(pathlib.Path(folder, "day.journal.jsonl"))
        print(f"| memory after an hour, after a day | {hour:.1f} MiB, {day:.1f} MiB |")
        shares: dict[str, list[float]] = {"with --live": [], "without": []}
        for run in range(runs):
            for name, found in shares.items():
                found.append(_share(pathlib.Path(folder, f"{run}-{name}.json"), live=name != "without"))
        for name, found in shares.items():
            each = ", ".join(f"{share:.1%}" for share in found)
            print(f"| samples taken of those due at 10 ms, {name} | {statistics.median(found):.1%} ({each}) |")


def _header() -> str:
    facts = {"format": "nncf-tools-journal", "version": 1, "command": ["work"], "host": {"memory": 16 << 30}}
    plan = {"pid": None, "interval_s": INTERVAL_S, "columns": COLUMNS, "source": "proc"}
    start = {"start": {"utc": "2026-11-21T07:00:00Z", "monotonic_ns": 0, "pid": 1}}
    return f"{json.dumps({**facts, 'plan': plan})}\n{json.dumps(start)}\n"


def _row(at_s: float) -> str:
    rss = int((1000 + at_s * 0.1 + (at_s * 7) % 300) * _MIB)
    system, read = rss + (2 << 30), int(at_s * 1e6)
    return f"[{at_s:.6f},{rss},{system},{at_s * 1.5:.2f},{at_s * 0.1:.2f},{read},{read // 3},3]\n"


def _write_journal(path: pathlib.Path) -> None:
    with path.open("w", encoding="ascii") as file:
        file.write(_header())
        file.writelines(_row(number * INTERVAL_S) for number in range(SAMPLES))


def _cost(follower: Follower, journal: pathlib.Path, size: tuple[int, int]) -> float:
    """Return the share of one core that reading and drawing take."""
    drawing, look = Drawing(Machine(is_here=False)), ViewSettings()
    at_s = follower.run.latest_s
    drawing.frame(follower.run, look, *size)
    spent_s = 0.0
    begin_s = time.monotonic()
    with journal.open("a", encoding="ascii") as file:
        while time.monotonic() - begin_s < WATCHED_S:
            for _ in range(round(FRAME_S / INTERVAL_S)):
                at_s += INTERVAL_S
                file.write(_row(at_s))
            file.flush()
            begin_cpu_s = time.process_time()
            follower.read()
            drawing.frame(follower.run, look, *size)
            spent_s += time.process_time() - begin_cpu_s
            time.sleep(FRAME_S)
    return spent_s / (time.monotonic() - begin_s)


def _memory_over_a_day(journal: pathlib.Path) -> tuple[float, float]:
    """Return this process's resident memory after an hour and after a day of samples, in MiB."""
    marks = journal.with_name("day.marks.jsonl")
    journal.write_text(_header())
    marks.touch()
    drawing, look = Drawing(Machine(is_here=False)), ViewSettings()
    found = []
    with Follower(journal) as follower:
        for hour in range(DAY_S // 3600):
            with journal.open("a", encoding="ascii") as rows, marks.open("a", encoding="ascii") as entries:
                rows.writelines(_hour(hour * 3600))
                entries.writelines(_marks_of_an_hour(hour * 3600))
            follower.read()
            for size in SIZES:
                drawing.frame(follower.run, look, *size)
            found.append(_resident())
    return found[0], found[-1]


def _hour(begin_s: int) -> Iterator[str]:
    for number in range(7200):
        at_s = begin_s + number / 2
        yield _row(at_s)
        if number % 20 == 0:
            identity = int(at_s)
            yield json.dumps({"process": {"id": identity, "pid": identity, "name": "worker"}}) + "\n"
            yield json.dumps({"process": {"id": identity - 30, "end_s": at_s}}) + "\n"


def _marks_of_an_hour(begin_s: int) -> Iterator[str]:
    for at_s in range(begin_s, begin_s + 3600, 10):
        where = {"op": at_s, "pid": 1, "tid": 1}
        yield json.dumps({"name": f"Step {at_s % 7}", "event": "begin", "start_s": at_s, **where}) + "\n"
        yield json.dumps({"event": "end", "start_s": at_s + 9, **where}) + "\n"


def _resident() -> float:
    return int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096 / _MIB


def _share(output: pathlib.Path, *, live: bool) -> float:
    """Return the share of samples that were taken of a command that computes and prints, in a terminal."""
    program = "import time\nend = time.monotonic() + 10\nwhile time.monotonic() < end: print(sum(range(300000)))"
    options = ["--live"] if live else []
    command = [sys.executable, "-m", "nncftools", "monitor", "-q", "-i", "0.01", "-o", str(output), *options, "--"]
    outer, inner = pty.openpty()
    reader = threading.Thread(target=_drain, args=(outer,))
    environment = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(
        [*command, sys.executable, "-c", program], stdin=inner, stdout=inner, stderr=inner, env=environment
    ):
        os.close(inner)
        reader.start()
    reader.join()
    os.close(outer)
    facts = Session.load(output).sampler
    return (facts.taken or 0) / ((facts.taken or 0) + (facts.missed or 0))


def _drain(outer: int) -> None:
    try:
        while os.read(outer, 1 << 16):
            pass
    except OSError:  # the last writer has closed it
        pass


if __name__ == "__main__":
    main()
