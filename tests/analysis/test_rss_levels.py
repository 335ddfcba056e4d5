"""Which rises are left of a process's memory, by the addresses that came and went."""

from __future__ import annotations

import pytest

from nncftools.analysis.rss_levels import BLOCK, FILE, HEAP, levels_at
from nncftools.session.model import RangeChange, StackWindow, ThreadStacks, WatchedProcess
from tests.analysis.made_snapshots import read_levels
from tests.made_up import MIB

RANGES = {"A": 0x7F0000000, "B": 0x7F1000000}
"""The first pages of two ranges of addresses."""


def watched(levels: str, *ranges: str, heap: int = 0) -> WatchedProcess:
    """Return a process by its levels in MiB, readings of addresses, and its heap in MiB.

    ``2.0 +B=110 -A=100``: at 2 s, 110 MiB of B had come, and 100 MiB of A had gone.
    """
    points = read_levels(levels)
    of = WatchedProcess(pid=1, time_s=[at_s for at_s, _ in points], rss=[size * MIB for _, size in points])
    of.apart_s = [0.0] * len(points)
    for reading in ranges:
        at_s, *changes = reading.split()
        found: dict[str, list[int]] = {"+": [], "-": []}
        for change in changes:
            name, _, size = change[1:].partition("=")
            found[change[0]] += [RANGES[name], int(size) * (MIB // 4096)]
        of.ranges.append(RangeChange(float(at_s), found["+"], found["-"], heap * MIB))
    return of


def left(of: WatchedProcess, at_s: float) -> str:
    """Return the rises that are left, as in ``0.5-1=50``: seconds and MiB; and ``?`` if a fall is not explained."""
    levels = levels_at(of, at_s)
    words = [f"{rise.from_s:.3g}-{rise.to_s:.3g}={rise.size / MIB:.0f}" for rise in levels.rises]
    return " ".join([*words, *["?"] * any(levels.falls.values())])


REBOUND = "0@0 100@1 100@2 180@3 180@4 80@4.1 80@5"
"""100 MiB are made, 80 are made from these, and the 100 are given back."""


EVEN = "0@0 50@1 150@2 150@4 50@4.1 50@5"
IN_TWO_STEPS = "0@0 50@1 150@2 150@4 120@4.1 50@4.4 50@5"


@pytest.mark.parametrize(
    "levels, ranges, expected",
    [
        (REBOUND, "", "0-0.8=80"),
        (REBOUND, "1.1 +A=100; 3.1 +B=80; 4.2 -A=100", "2-3=80"),
        ("0@0 100@1 100@2 60@2.1 60@3", "1.1 +A=100; 2.2 -A=40", "0-1=60"),
        ("0@0 100@1 50@2 50@3", "0.5 +A=50; 1.0 +B=50; 2.1 -A=50", "0.5-1=50"),
        (IN_TWO_STEPS, "1.0; 2.1 +A=100; 4.15 -A=100", "0-1=50"),
        (IN_TWO_STEPS, "1.0; 2.1 +A=100; 4.15 -A=100; 4.6", "0-1=50"),
        (EVEN, "1.0; 2.1 +A=100", "0-1=50 ?"),
        (EVEN, "1.0; 2.1 +A=100; 4.2", "1-1.5=50 ?"),
    ],
    ids=[
        *(
            "without addresses the last goes",
            "a rise whose addresses went",
            "a part of a range",
            "between two readings",
        ),
        *(
            "addresses went before RSS fell",
            "and another reading",
            "a block may be what a fall took",
            "unless it is read",
        ),
    ],
)
def test_rises_that_are_left(levels: str, ranges: str, expected: str) -> None:
    """A fall ends the rise whose addresses went, and else the last rise that may have gone."""
    of = watched(levels, *ranges.split("; ") if ranges else ())

    assert left(of, of.time_s[-1]) == expected


def test_memory_of_addresses() -> None:
    """A rise whose addresses came is a block."""
    of = watched(REBOUND, "1.1 +A=100", "3.1 +B=80", "4.2 -A=100")

    assert [rise.memory for rise in levels_at(of, 5.0).rises] == [BLOCK]


def test_filled_later() -> None:
    """A range that came whole belongs to the rises that fill it, also later ones without addresses of their own."""
    levels = "0@0 40@1 100@2 150@3 50@3.1 50@4"
    of = watched(levels, "1.1 +A=100", "2.1", "2.9 +B=50", "3.2 -A=100")

    later = [rise.size / MIB for rise in levels_at(of, 4.0).rises if rise.from_s >= 2.0]
    assert sum(later) == pytest.approx(45, abs=1)  # 5 of 105 came after the block was full


def test_replaced_between_two_readings() -> None:
    """If addresses went and as many came while RSS stayed, other memory may have taken the place since."""
    levels = "0@0 100@1 100@2 110@3"
    of = watched(levels, "1.1 +A=100", "2.0 +B=110 -A=100")

    found = levels_at(of, 3.0).rises
    assert [(rise.moved, round(rise.size / MIB)) for rise in found] == [(((1.1, 2.0),), 100), ((), 10)]


def test_fall_that_nothing_explains() -> None:
    """A fall without addresses puts all earlier rises on the heap in doubt, and says how much it was."""
    of = watched(REBOUND, "1.1", "3.1", "4.2")
    levels = levels_at(of, 5.0)

    assert [round(fall.size / MIB) for fall in levels.falls[HEAP]] == [100]
    assert levels.falls[BLOCK] == []
    assert [(rise.memory, rise.epoch) for rise in levels.rises] == [(HEAP, 0)]


def test_fall_after_the_last_reading_of_addresses() -> None:
    """Nobody knows which addresses went: blocks are in doubt, too."""
    of = watched(REBOUND, "1.1 +A=100", "3.1 +B=80")

    assert [round(fall.size / MIB) for fall in levels_at(of, 5.0).falls[BLOCK]] == [100]


def test_what_may_be_on_the_heap() -> None:
    """A rise belongs to the heap as far as that grew, and only beyond that to a block, which may be untouched."""
    of = watched("0@0 100@1 100@2", "1.1 +A=500", heap=70)

    assert {rise.memory: round(rise.size / MIB) for rise in levels_at(of, 2.0).rises} == {HEAP: 70, BLOCK: 30}


@pytest.mark.parametrize("threads", [1, 2])
def test_two_blocks_filled_at_once(threads: int) -> None:
    """Where threads fill two blocks, nobody knows which rise is left when one of these goes."""
    levels = "0@0 20@1 150@2 200@3 200@4 100@4.1 100@5"
    of = watched(levels, "0.5 +A=100", "1.0 +B=100", "3.0", "4.2 -A=100")
    stacks = [ThreadStacks(thread, [0.0], [0], [0]) for thread in range(threads)]
    of.windows = [StackWindow(time_s=[0.0], threads=stacks)]

    assert {rise.is_replaced for rise in levels_at(of, 5.0).rises} == {threads > 1}


def test_files_apart() -> None:
    """A file that is unmapped ends the rise of its pages, not the later rise of other memory."""
    of = watched("0@0 100@1 150@2 50@3 50@4", "2.1 +A=50")
    of.shared = [0, 100 * MIB, 100 * MIB, 0, 0]

    assert left(of, 4.0) == "1-2=50 ?"
    assert levels_at(of, 1.5).rises[0].memory == FILE


@pytest.mark.parametrize("at_s, mib", [(0.5, 50), (1, 100), (2.5, 140), (4.05, 130), (5, 80)])
def test_rises_sum_to_rss(at_s: float, mib: int) -> None:
    """At each moment the rises that are left sum to RSS, whatever addresses say."""
    of = watched(REBOUND, "1.1 +A=100", "3.1 +B=80", "4.2 -A=100")

    assert sum(rise.size for rise in levels_at(of, at_s).rises) / MIB == pytest.approx(mib, abs=0.5)
