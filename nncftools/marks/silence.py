"""Why a recording has no marks, as far as that is known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.session.model import Process

_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_LAST = re.compile(r"-[a-zA-Z]*[cm]")
"""The options after which the program's own words follow."""
_ISOLATING = re.compile(r"-[a-zA-Z]*([IES])")
_NAME = 16
_APART = {
    "user": "ran as another user, who may not write the marks log",
    "root": "had another root folder, without the marks log",
    "clock": "had another clock (a time namespace), so that its marks have no place in the recording",
}


def reason(processes: Sequence[Process], programs: int, outside: int) -> str:
    """Return why nothing was marked.

    ``programs`` is the number of Pythons that the hook ran in, ``outside`` that of marks which were not made between
    start and end of the recording.
    """
    found = [f"the times of {outside:,} marks are outside of the recording"] if outside else []
    by_way: dict[str, list[Process]] = {}
    for process, way in _known(processes):
        by_way.setdefault(way, []).append(process)
    for way, (first, *others) in by_way.items():
        more = f" and {len(others):,} more" if others else ""
        found.append(f"process {first.pid} ({shortened(printable(first.name), _NAME)}){more} {way}")
    known = "; ".join(found)
    if programs:
        ran = "1 Python program loaded the hook" if programs == 1 else f"{programs:,} Python programs loaded the hook"
        return f"{ran}, and {known}" if known else f"{ran} and called no catalogued function that could be marked"
    usual = "why is not known (usually python -I, -E or -S, a cleared environment, or another language)"
    return f"no Python program loaded the hook: {known or usual}"


def _known(processes: Sequence[Process]) -> Iterator[tuple[Process, str]]:
    """Yield the processes that could not mark, and why."""
    for process in processes:
        option = _isolating(process.command)
        if option:
            yield process, f"ran an isolated Python ({option}), which loads no hook"
        for way in process.apart:
            if way in _APART:
                yield process, _APART[way]


def _isolating(command: Sequence[str]) -> str:
    """Return the option that keeps the Python of a command from loading the hook; empty if there is none."""
    if not command or _PYTHON.fullmatch(command[0].rpartition("/")[2]) is None:
        return ""
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word == "-":
            return ""
        isolating = _ISOLATING.match(word)
        if isolating is not None and not word.startswith("--"):
            return f"-{isolating[1]}"
        if _LAST.match(word):
            return ""
        if word in _WITH_VALUE:
            next(words, None)
    return ""
