from __future__ import annotations

import json

import pytest

from nncftools.live.follower import Growth, GrowthLog
from nncftools.redaction import Redaction
from nncftools.session.model import Frame

NAMES = ("main", "load", "run")


def line(key: str, value: object) -> bytes:
    """Return a line of the log."""
    return json.dumps({key: value}, separators=(",", ":")).encode() + b"\n"


def look(at_ns: int, stacks: dict[int, int | None], process: int = 0, faults: dict[int, int] | None = None) -> bytes:
    """Return a line of a look at a process."""
    figures = {"faults": faults or {}, "ticks": {}, "lost": 0}
    return line("look", {"process": process, "t_ns": at_ns, "stacks": stacks, **figures})


FRAMES = b"".join(line("frame", [number, name, "/a/b.py", number]) for number, name in enumerate(NAMES))
STACKS = line("stack", [0, [0, 1]]) + line("stack", [1, [0, 2]]) + line("stack", [2, [0]])


def grown(*lines: bytes) -> Growth | None:
    """Return where memory grew after some lines."""
    log = GrowthLog(Redaction(()))
    for data in lines:
        log.take(data)
    return log.last


def test_last_look() -> None:
    """Memory grew last where the latest look saw a process."""
    found = grown(FRAMES + STACKS, look(5, {7: 0}), look(9, {8: 1}, process=1))

    assert found == Growth(Frame("run", "/a/b.py", 2), 9)


def test_thread_that_touched_most() -> None:
    """Of several threads, the one that touched most new memory counts; if none did, nothing is known."""
    assert grown(FRAMES, STACKS, look(5, {7: 0, 8: 1}, faults={7: 1, 8: 3})) == Growth(Frame("run", "/a/b.py", 2), 5)
    assert grown(FRAMES, STACKS, look(5, {7: 0, 8: 1})) is None


def test_function_that_has_returned() -> None:
    """If a function has only returned since the look before, memory grew in it."""
    assert grown(FRAMES, STACKS, look(5, {7: 0}), look(9, {7: 2})) == Growth(Frame("load", "/a/b.py", 1), 9)


def test_unchanged_stack() -> None:
    """A stack that did not change is not written again, and still counts."""
    assert grown(FRAMES, STACKS, look(5, {7: 0}), look(9, {})) == Growth(Frame("load", "/a/b.py", 1), 9)


@pytest.mark.parametrize(
    "damaged", [b"\xff\n", b"{\n", b'{"look":{"process":0}}\n', b'{"look":[]}\n', look(7, {7: 99})]
)
def test_damaged_line(damaged: bytes) -> None:
    """A damaged look is left out."""
    assert grown(FRAMES, STACKS, look(5, {7: 0}), damaged) == Growth(Frame("load", "/a/b.py", 1), 5)


def test_damaged_stack() -> None:
    """After a damaged stack nothing more is named: numbers may mean others."""
    assert grown(FRAMES, b'{"stack":[0,\n', STACKS, look(5, {7: 0})) is None
