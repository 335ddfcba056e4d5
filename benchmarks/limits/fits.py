"""How close the limits that ``fit`` finds are to the smallest with which a program works, and is fast."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from benchmarks import machine
from benchmarks.limits import floors
from benchmarks.limits.floors import KINDS, MIB, NEEDS, ROOT
from nncftools.cli.fit_runs import GIVE_UP
from nncftools.cli.fit_search import Fit
from tests.memory_group import MemoryGroup

if TYPE_CHECKING:
    import pathlib

REREAD = "reread"
_REREAD_SIZE = 600 * MIB
_CLOSE, _CLOSE_FAST, _EXACT, _SMALLEST = 0.03, 0.05, 0.01, 4 * MIB
_MOST_RUNS = 8
_SHORTEST_S = 2.0
"""No run is given up earlier."""
_CLIFF = 1.5
"""With a little less than the file, reading it takes about twice as long, which is more than storage varies."""


def judge(folder: pathlib.Path, runs: int) -> int:
    """Print a row for each program; return how many limits are wrong."""
    print(
        "| program | works from, MiB | smallest that works, MiB | difference | full speed from, MiB | runs | time, s |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    wrong = 0
    file = folder / "model.bin"
    file.write_bytes(b"\0" * (300 * MIB))
    for kind, told in KINDS.items():
        for _ in range(runs):
            wrong += _judge_floor(kind, told, file, folder)
    file.write_bytes(b"\0" * _REREAD_SIZE)
    for _ in range(runs):
        wrong += _judge_cliff(file, folder)
    return wrong


def _judge_floor(kind: str, told: str, file: pathlib.Path, folder: pathlib.Path) -> bool:
    fit, seconds = _fitted(kind, file, folder)
    assert fit.free is not None
    most_s = max(_SHORTEST_S, fit.free.duration_s * GIVE_UP)
    smallest = floors.smallest(kind, file, fit.free.floor, most_s)
    found = fit.works_from or 0
    is_wrong = abs(found - smallest) > max(smallest * _CLOSE, _SMALLEST) or fit.runs > _MOST_RUNS
    difference = (found - smallest) / smallest
    _print(told, f"{found / MIB:.1f} | {smallest / MIB:.1f} | {difference:+.1%}", fit, seconds, is_wrong=is_wrong)
    return is_wrong


def _judge_cliff(file: pathlib.Path, folder: pathlib.Path) -> bool:
    fit, seconds = _fitted(REREAD, file, folder)
    assert fit.free is not None
    most_s = fit.free.duration_s * _CLIFF
    low, high = _REREAD_SIZE * 0.8, _REREAD_SIZE * 1.2
    while high - low > high * _EXACT:
        middle = (low + high) / 2
        low, high = (low, middle) if _seconds(file, middle) <= most_s else (middle, high)
    found = fit.fast_from or 0
    is_wrong = abs(found - high) > high * _CLOSE_FAST or fit.runs > _MOST_RUNS
    told = f"a file of 600 MiB read ten times; full speed in truth from {high / MIB:.1f}"
    works = 0 if fit.works_from is None else fit.works_from / MIB
    _print(told, f"{works:.1f} | – | {(found - high) / high:+.1%}", fit, seconds, is_wrong=is_wrong)
    return is_wrong


def _print(told: str, figures: str, fit: Fit, seconds: float, *, is_wrong: bool) -> None:
    fast = "–" if fit.fast_from is None else f"{fit.fast_from / MIB:.1f}"
    print(f"| {told} | {figures} | {fast} | {fit.runs} | {seconds:.0f} |{' WRONG' if is_wrong else ''}", flush=True)


def _fitted(kind: str, file: pathlib.Path, folder: pathlib.Path) -> tuple[Fit, float]:
    output = folder / "fit"
    words = [sys.executable, "-m", "nncftools", "fit", "--force", "-o", str(output), "--"]
    machine.drop_from_cache(file)
    begun_s = time.monotonic()
    subprocess.run([*words, sys.executable, str(NEEDS), kind, str(file)], check=True, cwd=ROOT, capture_output=True)
    seconds = time.monotonic() - begun_s
    return msgspec.json.decode((output / "fit.json").read_bytes(), type=Fit), seconds


def _seconds(file: pathlib.Path, limit: float) -> float:
    """Return how long reading takes under a limit."""
    machine.drop_from_cache(file)
    with MemoryGroup("fast", int(limit)) as group:
        words = [sys.executable, str(NEEDS), REREAD, str(file)]
        begun_s = time.monotonic()
        subprocess.run(["sh", "-c", f'{group.enter}; exec "$0" "$@"', *words], check=True)
        return time.monotonic() - begun_s
