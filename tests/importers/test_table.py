from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nncftools.importers.source import Children, LogTable, Source
from nncftools.session.samples import TIME


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge from a hundred rows on."""
    monkeypatch.setattr("nncftools.importers.source.MAX_ROWS", 100)
    monkeypatch.setattr("nncftools.importers.source._BATCH", 10)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    """Return an empty log."""
    (tmp_path / "log").touch()
    with Source(tmp_path / "log") as source:
        yield source


def filled(rows: int) -> LogTable:
    """Return a table of this many rows, seven equal ones at a time."""
    table = LogTable(["rss", "threads"])
    for place in range(0, rows, 5):
        times = [float(time) for time in range(place, place + 5)]
        table.extend({TIME: times, "rss": [time * 13 % 7 for time in times], "threads": [1.0] * 5})
    table.shorten()
    return table


@pytest.mark.parametrize("rows", [105, 1000, 10_000])
def test_many_rows_are_merged(rows: int) -> None:
    """Beyond the limit, there are never more rows than it; the extremes and the last row are kept."""
    table = filled(rows)
    found = table.columns

    assert 25 <= len(found[TIME]) <= 100
    assert (min(found["rss"]), max(found["rss"])) == (0, 6)
    assert (table.taken, found[TIME][-1]) == (rows, rows - 1)


def test_series_of_many_processes_are_merged(source: Source) -> None:
    """All processes together have at most as many samples as the limit; their peaks and counts are exact."""
    found = Children()
    for place in range(1000):
        for pid in (1, 2, 3):
            found.extend(pid, [float(place)], [float(place % 97 * pid)])
    processes = found.processes(source, 999.0)

    assert sum(len(process.series.time_s) for process in processes if process.series is not None) <= 100
    assert [(process.peak_rss, process.samples) for process in processes] == [(96, 1000), (192, 1000), (288, 1000)]


def test_very_many_processes(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of processes, others are left out, and a warning says so."""
    monkeypatch.setattr("nncftools.importers.source.MAX_PROCESSES", 2)
    found = Children()
    for pid in (5, 6, 7, 8, 5):
        found.extend(pid, [0.0], [1.0])

    assert [process.pid for process in found.processes(source, 0.0)] == [5, 6]
    assert source.warnings() == ["only the first 2 processes are listed; RSS is the sum of all"]
