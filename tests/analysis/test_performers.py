from __future__ import annotations

import pytest

from nncftools.analysis.peak_text import Performers
from nncftools.session.model import Mark
from nncftools.session.session import Session
from tests.made_up import mib, process, session


def run(*spans: tuple[int | None, float, float]) -> Session:
    """Return a session with an operation for each PID and span."""
    of = session({"rss": mib(1, 2, 3)}, processes=[process(0, name="python"), process(1, name="worker")])
    of.marks = [Mark(name="A", start_s=start_s, end_s=end_s, pid=pid) for pid, start_s, end_s in spans]
    return of


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(100, 0, 0.5), (101, 0.4, 0.9)], ["python, pid 100", "worker, pid 101"]),
        ([(100, 0, 0.4), (101, 0.4, 0.9)], ["", ""]),
        ([(100, 0, 0.5), (100, 0.1, 0.9)], ["", ""]),
        ([(100, 0, 0.5), (None, 0.1, 0.9)], ["", ""]),
        ([(100, 0, 0.9), (101, 0.1, 0.2), (101, 0.3, 0.4)], ["python, pid 100", *["worker, pid 101"] * 2]),
        ([(100, 0, 0.9), (555, 0.1, 0.2)], ["python, pid 100", "pid 555"]),
    ],
    ids=["parallel", "one after the other", "one process", "from outside", "several", "unknown process"],
)
def test_of(spans: list[tuple[int | None, float, float]], expected: list[str]) -> None:
    """The process is named where operations of several processes ran at the same time."""
    of = run(*spans)
    performers = Performers(of)

    assert [performers.of(operation) for operation in of.operations] == expected


def test_many_processes_at_once() -> None:
    """Each of 20,000 operations that overlap is told apart by its process, in time that grows with their number."""
    number = 20_000
    marks = [
        Mark(name="a", start_s=place / number / 2, end_s=place / number / 2 + 0.4, pid=place) for place in range(number)
    ]
    of = session(marks=marks)
    performers = Performers(of)

    assert [performers.of(operation) for operation in of.operations[:2]] == ["pid 0", "pid 1"]
