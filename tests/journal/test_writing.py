from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nncftools.journal import writing
from nncftools.journal.writing import Writer
from nncftools.session.recording import Tail
from tests.made_up import full_disk, header


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a journal with its first line, as the starter leaves it."""
    file = tmp_path / "run.journal.jsonl"
    file.write_text(json.dumps(header(["rss", "cpu_user"])) + "\n")
    return file


def opened(path: Path) -> Writer:
    """Return a writer for a journal; it lives as long as this process."""
    return Writer(os.open(path, os.O_RDWR | os.O_APPEND))


def lines(path: Path) -> list[object]:
    """Return all lines but the first."""
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def test_lines(path: Path) -> None:
    """A sample is written at once, after the lines before and with the RSS of every process; null is unknown."""
    journal = opened(path)
    journal.line("process", {"id": 0, "name": "é\n"})
    journal.line("warning", "look")
    before = lines(path)
    journal.sample((0.0, [4096, 0.01], {0: 4096, 12: 8192}))
    first = lines(path)
    journal.sample((0.1000004, [None, 0.25], {}))
    journal.sample((0.2, [None, 0.25], {}))
    journal.sample((1e6, [2**63, 1e-7], {}))

    assert before == []
    assert first == [
        {"process": {"id": 0, "name": "é\n"}},
        {"warning": "look"},
        [0.0, 4096, 0.01],
        {"each": {"0": 4096, "12": 8192}},
    ]
    assert lines(path)[4:] == [[0.1, None, 0.25], [0.2, None, 0.25], [1e6, 2**63, 1e-7]]


def test_full_disk_leaves_no_half_line(path: Path) -> None:
    """While the disk is full, the journal has no partial line; with free space again, everything is there in order."""
    journal = opened(path)
    journal.sample((0.0, [1, 0.5], {}))
    before = path.read_bytes()
    with full_disk(len(before) + 20):
        journal.sample((0.1, [1, 0.5], dict.fromkeys(range(9), 4096)))
        during = path.read_bytes()
    journal.sample((0.2, [2, 0.5], {}))

    assert during == before
    assert lines(path) == [
        [0.0, 1, 0.5],
        [0.1, 1, 0.5],
        {"each": {str(number): 4096 for number in range(9)}},
        [0.2, 2, 0.5],
    ]
    assert (journal.lost, journal.unwritten) == (0, "")


def test_half_line_that_cannot_be_taken_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial line that stays in the journal damages no other line."""
    journal = opened(path)
    with full_disk(path.stat().st_size + 20), monkeypatch.context() as broken:
        broken.setattr(os, "ftruncate", lambda *_: os.truncate("/nowhere", 0))
        journal.sample((0.0, [1, 0.5], {}))
        journal.sample((0.1, [1, 0.5], {}))
    journal.sample((0.2, [2, 0.5], {}))
    with path.open("rb") as file:
        (chunk,) = Tail(file, "run").read()

    assert [time for time, *_ in chunk.samples] == [0.0, 0.1, 0.2]


def test_full_disk_for_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit, the oldest samples are dropped and counted, with a warning."""
    monkeypatch.setattr(writing, "MAX_KEPT", 400)
    journal = opened(path)
    journal.sample((0.0, [1, 0.5], {}))
    with full_disk(path.stat().st_size):
        journal.line("process", {"id": 0})
        for place in range(1, 101):
            journal.sample((float(place), [1, 0.5], {0: place}))
    assert journal.flush()
    assert journal.flush()
    found: list[Any] = lines(path)
    times = [line[0] for line in found if isinstance(line, list)]

    assert (times[0], times[-1]) == (0.0, 100.0)
    assert [line["each"]["0"] for line in found if "each" in line] == times[1:]  # kept or lost with its sample
    assert journal.lost == journal.longest_lost_s + 1 == 101 - len(times)
    assert {"process": {"id": 0}} in found
    assert [line["warning"] for line in found if "warning" in line] == [
        f"the journal could not be written for a while (File too large): {journal.lost} samples are lost"
    ]


def test_each_loss_is_reported_separately(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full twice causes two warnings with separate counts; the longest gap is that of one period."""
    monkeypatch.setattr(writing, "MAX_KEPT", 0)
    journal = opened(path)
    for begin, end in ((0, 3), (100, 105)):
        with full_disk(path.stat().st_size):
            for place in range(begin, end):
                journal.sample((float(place), [1, 0.5], {}))
                journal.flush()  # there is nothing to write any more: no success
        journal.sample((end + 1.0, [1, 0.5], {}))
    journal.flush()
    messages = [line["warning"] for line in lines(path) if isinstance(line, dict)]

    assert [text.rpartition(": ")[2] for text in messages] == ["3 samples are lost", "5 samples are lost"]
    assert (journal.lost, journal.longest_lost_s, journal.rows) == (8, 4.0, 10)


def test_loss_that_lasts_to_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss is reported once while the disk is still full: the warning waits with the other lines."""
    monkeypatch.setattr(writing, "MAX_KEPT", 0)
    journal = opened(path)
    with full_disk(path.stat().st_size):
        journal.sample((0.0, [1, 0.5], {}))
        for _ in range(2):
            journal.warn_of_lost()
            journal.flush()

    message = "the journal could not be written for a while (File too large): 1 sample is lost"
    assert journal.unwritten == f'{{"warning":"{message}"}}\n'
