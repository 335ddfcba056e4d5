"""Which rises are left of a process's memory, by the addresses that came and went."""

from __future__ import annotations

import pytest

from nncftools.analysis.rss_levels import IN_NO_DOUBT, levels_at
from nncftools.session.model import RangeChange, WatchedProcess
from tests.made_up import MIB

PAGES = MIB // 4096
A, B = 0x7F0000000, 0x7F1000000
"""The first pages of two ranges of addresses."""


def watched(points: list[tuple[float, int]], *ranges: tuple[float, list[int], list[int]]) -> WatchedProcess:
    """Return a process by its seconds and MiB, and the addresses that came and went: pages and MiB."""
    of = WatchedProcess(pid=1, time_s=[at_s for at_s, _ in points], rss=[mib * MIB for _, mib in points])
    of.apart_s = [0.0] * len(points)
    for at_s, came, went in ranges:
        sizes = [[size if place % 2 == 0 else size * PAGES for place, size in enumerate(of)] for of in (came, went)]
        of.ranges.append(RangeChange(at_s, *sizes))
    return of


def bands(of: WatchedProcess, at_s: float) -> list[tuple[float, float, int]]:
    """Return when each band rose, from second to second, and its MiB."""
    return [
        (round(band.from_s, 2), round(band.to_s, 2), round((band.high - band.low) / MIB))
        for band in levels_at(of, at_s).bands
    ]


REBOUND = [(0.0, 0), (1.0, 100), (2.0, 100), (3.0, 180), (4.0, 180), (4.1, 80), (5.0, 80)]
"""100 MiB are made, 80 are made from these, and the 100 are given back."""


def test_without_addresses_the_last_goes() -> None:
    """Where no addresses were read, what came last is taken to be freed, and nothing is in doubt."""
    levels = levels_at(watched(REBOUND), 5.0)

    assert bands(watched(REBOUND), 5.0) == [(0.0, 0.8, 80)]
    assert levels.falls == []
    assert [band.epoch for band in levels.bands] == [0]


def test_addresses_that_went() -> None:
    """A fall ends the rise whose addresses went, and leaves the later one."""
    of = watched(REBOUND, (1.1, [A, 100], []), (3.1, [B, 80], []), (4.2, [], [A, 100]))

    assert bands(of, 5.0) == [(2.0, 3.0, 80)]
    assert levels_at(of, 5.0).falls == []
    assert [band.epoch for band in levels_at(of, 5.0).bands] == [IN_NO_DOUBT]


def test_a_part_that_went() -> None:
    """Of a range that went in part, the rise keeps the other part."""
    of = watched([(0.0, 0), (1.0, 100), (2.0, 100), (2.1, 60), (3.0, 60)], (1.1, [A, 100], []), (2.2, [], [A, 40]))

    assert bands(of, 3.0) == [(0.0, 1.0, 60)]


def test_filled_later() -> None:
    """A range that came whole belongs to the rises that fill it, also later ones without addresses of their own."""
    points = [(0.0, 0), (1.0, 40), (2.0, 100), (3.0, 150), (3.1, 50), (4.0, 50)]
    of = watched(points, (1.1, [A, 100], []), (2.1, [], []), (2.9, [B, 50], []), (3.2, [], [A, 100]))

    assert min(from_s for from_s, *_ in bands(of, 4.0)) >= 2.0
    assert sum(size for *_, size in bands(of, 4.0)) == pytest.approx(50, abs=1)


def test_replaced_between_two_readings() -> None:
    """If addresses went and as many came while RSS stayed, what came took their place."""
    of = watched([(0.0, 0), (1.0, 100), (2.0, 110), (3.0, 110)], (1.1, [A, 100], []), (2.1, [B, 110], [A, 100]))

    assert sum(size for *_, size in bands(of, 3.0)) == 110
    assert bands(of, 3.0)[-1][0] >= 1.0


def test_fall_that_nothing_explains() -> None:
    """A fall on the heap puts earlier rises on the heap in doubt; it says how much it was."""
    of = watched(REBOUND, (1.1, [], []), (3.1, [], []), (4.2, [], []))
    levels = levels_at(of, 5.0)

    assert [round(fall.size / MIB) for fall in levels.falls] == [100]
    assert [band.epoch for band in levels.bands] == [0]


def test_rise_is_divided_at_readings() -> None:
    """One even rise over several readings of addresses belongs to the addresses of each."""
    of = watched(
        [(0.0, 0), (1.0, 100), (2.0, 50), (3.0, 50)], (0.5, [A, 50], []), (1.0, [B, 50], []), (2.1, [], [A, 50])
    )

    assert bands(of, 3.0) == [(0.5, 1.0, 50)]


@pytest.mark.parametrize("at_s", [0.5, 1.0, 2.5, 4.05, 5.0])
def test_bands_sum_to_rss(at_s: float) -> None:
    """At each moment the bands lie on each other, and sum to RSS, whatever addresses say."""
    of = watched(REBOUND, (1.1, [A, 100], []), (3.1, [B, 80], []), (4.2, [], [A, 100]))
    found = levels_at(of, at_s).bands
    expected = {0.5: 50, 1.0: 100, 2.5: 140, 4.05: 130, 5.0: 80}[at_s]

    assert [band.low for band in found[1:]] == pytest.approx([band.high for band in found[:-1]])
    assert found[-1].high / MIB == pytest.approx(expected, abs=0.5)
