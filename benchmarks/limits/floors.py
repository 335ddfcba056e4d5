"""How close the floor of a recording is to the smallest limit with which a program works."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from benchmarks import machine
from nncftools.analysis.session import Session
from nncftools.limits.needs import needs
from tests.memory_group import MemoryGroup

MIB = 1 << 20
ROOT = pathlib.Path(__file__).parent.parent.parent
NEEDS = ROOT / "benchmarks" / "workloads" / "needs.py"
KINDS = {
    "anonymous": "300 MiB anonymous",
    "two": "two processes of 150 MiB",
    "copied": "a file of 300 MiB, mapped privately and written",
    "read": "200 MiB anonymous, a file of 300 MiB read 5 times",
    "spike": "the same after 400 MiB that were freed",
    "dirty": "a file of 300 MiB, mapped shared and written",
}
_CLOSE, _EXACT = 0.03, 0.002
_SMALL = 8 * MIB
"""A difference that says nothing: pages that are written back cannot be dropped meanwhile."""


def judge(folder: pathlib.Path, runs: int) -> int:
    """Print a row for each program; return how many floors are wrong."""
    print("| program | floor, MiB | comfortable, MiB | smallest limit that works, MiB | difference |")
    print("|---|---:|---:|---:|---:|")
    wrong = 0
    file = folder / "model.bin"
    file.write_bytes(b"\0" * (300 * MIB))
    for kind, told in KINDS.items():
        for _ in range(runs):
            floor, comfortable = _recorded(kind, file, folder)
            least = smallest(kind, file, floor)
            difference = (floor - least) / least
            is_wrong = abs(floor - least) > max(least * _CLOSE, _SMALL)
            wrong += is_wrong
            sizes = " | ".join(f"{size / MIB:.1f}" for size in (floor, comfortable, least))
            print(f"| {told} | {sizes} | {difference:+.1%}{' WRONG' if is_wrong else ''} |", flush=True)
    return wrong


def _recorded(kind: str, file: pathlib.Path, folder: pathlib.Path) -> tuple[int, int]:
    """Return floor and comfortable amount of a recording."""
    output = folder / "run.json"
    words = [sys.executable, "-m", "nncftools", "monitor", "-q", "--force", "-o", str(output), "--"]
    subprocess.run([*words, sys.executable, str(NEEDS), kind, str(file)], check=True, cwd=ROOT, stdout=subprocess.PIPE)
    found = needs(Session.load(output))
    assert found is not None
    return found.floor, found.comfortable


def smallest(kind: str, file: pathlib.Path, guess: int, most_s: float | None = None) -> float:
    """Return the smallest limit with which a program works, by bisection; it may not take longer than ``most_s``."""
    low, high = 0.0, max(guess * 1.25, guess + 32 * MIB)
    while not _works(kind, file, high, most_s):
        low, high = high, high * 1.5
    while high - low > max(high * _EXACT, MIB / 2):
        middle = (low + high) / 2
        if _works(kind, file, middle, most_s):
            high = middle
        else:
            low = middle
    return high


def _works(kind: str, file: pathlib.Path, limit: float, most_s: float | None) -> bool:
    machine.drop_from_cache(file)
    with MemoryGroup("floor", int(limit)) as group:
        words = [sys.executable, str(NEEDS), kind, str(file)]
        entering = ["sh", "-c", f'{group.enter}; exec "$0" "$@"', *words]
        try:
            run = subprocess.run(entering, capture_output=True, check=False, timeout=most_s)
        except subprocess.TimeoutExpired:
            return False
        return run.returncode == 0 and group.oom_kills() == 0
