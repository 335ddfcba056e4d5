"""What burners share: they hold what they hold until the recording has sampled it, and measure themselves."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

MOST_S = 240
_MARKS, _JOURNAL = ".marks.jsonl", ".journal.jsonl"


def until_sampled(samples: int = 2) -> None:
    """Return when so many more samples were taken: with two, one was begun after this call."""
    with _journal() as journal:
        journal.seek(0, os.SEEK_END)
        rest = ""
        for _ in fills():
            *lines, rest = (rest + journal.read()).split("\n")
            samples -= sum(line.startswith("[") for line in lines)
            if samples <= 0:
                return


def until_first_sample() -> None:
    """Return when the recording has taken a sample, which may have been long ago."""
    with _journal() as journal:
        for _ in fills():
            journal.seek(0)
            if "\n[" in journal.read():
                return


def until_file(*paths: str) -> None:
    """Return when all these files exist."""
    for _ in fills():
        if all(map(os.path.exists, paths)):
            return


def touched(mib: float | str) -> bytearray:
    """Return so many mebibytes, all of whose pages were written to."""
    held = bytearray(int(float(mib) * 2**20))
    held[::4096] = b"x" * len(held[::4096])
    return held


def own(name: str) -> int:
    """Return a size of this process in bytes, by its name in proc(5): VmRSS, VmHWM."""
    with open("/proc/self/status") as status:  # noqa: PTH123 — as small as possible
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(f"{name}:"))


def write(path: str, *figures: float) -> None:
    """Append a line of figures to a file, at once."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(file, f"{' '.join(map(str, figures))}\n".encode())
    os.close(file)


def _journal() -> TextIO:
    """Open the journal, which is in the folder of the marks log."""
    marks = os.environ["NNCF_TOOLS_MARKS"]
    if not marks.endswith(_MARKS):
        sys.exit(f"no journal stands beside {marks}")
    return open(marks[: -len(_MARKS)] + _JOURNAL)  # noqa: PTH123 — as small as possible; closed by the callers


def fills() -> Iterator[None]:
    """Yield again and again, and end the program when what it waits for never comes."""
    deadline = time.monotonic() + MOST_S
    while time.monotonic() < deadline:
        yield
        time.sleep(0.005)
    sys.exit("waited in vain")
