from __future__ import annotations

import pytest

from nncftools.marks.collecting import narrow
from nncftools.session.model import Mark, OwnMemory, Rise
from nncftools.session.session import Session
from tests.made_up import MIB, mib, process, session

Reading = tuple[float, int]
"""Seconds and MiB."""


def run(rise: tuple[float, float, int], *readings: Reading, pid: int = 100) -> Session:
    """Return a session whose process had a rise, and read its own mark when it marked operations."""
    risen = Rise(from_s=rise[0], to_s=rise[1], high_water_mark=rise[2] * MIB)
    of = session({"rss": mib(100, 100, 100)}, processes=[process(rises=[risen], high_water_mark=rise[2] * MIB)])
    of.marks = [
        Mark(name="A", start_s=at_s, end_s=at_s, pid=pid, own_start=OwnMemory(high_water_mark=size * MIB))
        for at_s, size in readings
    ]
    return of


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([], (0.2, 0.6)),
        ([(0.3, 100)], (0.3, 0.6)),
        ([(0.5, 400)], (0.2, 0.5)),
        ([(0.3, 100), (0.4, 400), (0.5, 400)], (0.3, 0.4)),
        ([(0.1, 100), (0.9, 400)], (0.2, 0.6)),
        ([(0.3, 700), (0.5, 700)], (0.2, 0.6)),
    ],
    ids=["none", "before the rise", "after the rise", "on both sides", "outside", "of a program before exec"],
)
def test_narrowed(readings: list[Reading], expected: tuple[float, float]) -> None:
    """A rise lies after the last reading below the mark, and before the first one that reached it; so does the peak."""
    of = run((0.2, 0.6, 400), *readings)
    narrow(of)
    (rise,) = of.processes[0].rises
    peak = of.peaks["rss"]

    assert (rise.from_s, rise.to_s) == expected
    assert (peak.low, peak.rose_from_s, peak.rose_to_s) == (400 * MIB, *expected)


def test_of_another_process() -> None:
    """What another process read says nothing."""
    of = run((0.2, 0.6, 400), (0.3, 400), pid=101)
    narrow(of)

    assert of.processes[0].rises[0].to_s == 0.6


def test_without_a_rise() -> None:
    """Where the sampler reads no marks, a higher mark that the process read is a rise between two readings."""
    of = run((0.0, 0.0, 1), (0.3, 100), (0.6, 400), (0.9, 400))
    of.processes = [process()]
    narrow(of)

    assert of.processes[0].rises == [Rise(from_s=0.3, to_s=0.6, high_water_mark=400 * MIB)]
    assert of.peaks["rss"].low == 400 * MIB
