from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from nncftools.sampler.journal import Journal
from nncftools.session.journal import session_from
from tests.made_up import START, full_disk, header


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a journal with its first line, as the starter leaves it."""
    file = tmp_path / "run.journal.jsonl"
    file.write_text(json.dumps(header(["rss", "cpu_user"])) + "\n")
    return file


def lines(path: pathlib.Path) -> list[object]:
    """Return all lines but the first."""
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def test_plan(path: pathlib.Path) -> None:
    """The plan is in the first line."""
    assert Journal(str(path)).plan()["columns"] == ["rss", "cpu_user"]


def test_samples(path: pathlib.Path) -> None:
    """A sample is a list of its time to the microsecond and its values, null for unknown, and is there at once."""
    journal = Journal(str(path))
    for row in ((0.0, [4096, 0.01], {}), (0.1000004, [None, 0.25], {}), (1e6, [2**63, 1e-7], {})):
        journal.sample(row)

    assert lines(path) == [[0.0, 4096, 0.01], [0.1, None, 0.25], [1e6, 2**63, 1e-7]]


def test_same_values_again(path: pathlib.Path) -> None:
    """Values that repeat are written in every sample."""
    journal = Journal(str(path))
    rows: list[list[float | None]] = [[1, 0.5], [1, 0.5], [2, 0.5], [None, None], [None, None], [1, 0.5]]
    for place, row in enumerate(rows):
        journal.sample((float(place), row, {}))

    assert lines(path) == [[place, *row] for place, row in enumerate(rows)]


def test_values_of_another_type(path: pathlib.Path) -> None:
    """A total that was 0 and is 0.0 reads the same."""
    journal = Journal(str(path))
    journal.sample((0.0, [0, 0], {}))
    journal.sample((1.0, [0.0, 0.0], {}))

    assert lines(path) == [[0, 0, 0], [1, 0, 0]]


def test_row_that_is_changed_afterwards(path: pathlib.Path) -> None:
    """Each sample holds the values that it had when it was written."""
    journal = Journal(str(path))
    row: list[float | None] = [1, 0.5]
    for second in range(3):
        row = [second, *row[1:]]
        journal.sample((float(second), row, {}))

    assert lines(path) == [[0, 0, 0.5], [1, 1, 0.5], [2, 2, 0.5]]


def test_each_process(path: pathlib.Path) -> None:
    """The RSS of every process stands behind its sample; without one there is no line."""
    journal = Journal(str(path))
    journal.sample((0.0, [1, 0], {0: 4096, 12: 8192}))
    journal.sample((0.1, [1, 0], {}))

    assert lines(path) == [[0.0, 1, 0], {"each": {"0": 4096, "12": 8192}}, [0.1, 1, 0]]


def test_events_come_with_the_next_write(path: pathlib.Path) -> None:
    """What is told between two samples is written before the next one, in its order, and not sooner."""
    journal = Journal(str(path))
    journal.event("process", {"id": 0, "name": "é\n"})
    journal.event("warning", "look")
    before = lines(path)
    journal.sample((0.0, [1, 0], {}))

    assert before == []
    assert lines(path) == [{"process": {"id": 0, "name": "é\n"}}, {"warning": "look"}, [0.0, 1, 0]]


def test_is_read_as_a_session(path: pathlib.Path) -> None:
    """What the sampler writes is what the reader of journals expects, processes over time included."""
    journal = Journal(str(path))
    journal.event("start", START["start"])
    journal.event("process", {"id": 0, "pid": 100, "name": "work"})
    journal.sample((0.0, [4096, 0.01], {0: 4096}))
    journal.sample((0.123456, [None, 0.02], {0: 0}))
    journal.event("end", {"duration_s": 1.0, "exit": {"code": 0, "signal": None}, "sampler": {}})
    journal.flush()
    of = session_from(path.read_bytes(), "run")
    (series,) = [process.series for process in of.processes]

    assert (of.finished, of.warnings, list(of.samples.time_s)) == (True, [], [0.0, 0.123456])
    assert series is not None
    assert (series.time_s, series.rss) == ([0.0, 0.123456], [4096, 0])


def test_full_disk_leaves_no_half_line(path: pathlib.Path) -> None:
    """When the disk is full, the error is raised, and what was written before stays readable."""
    journal = Journal(str(path))
    journal.sample((0.0, [1, 0.5], {}))
    before = path.read_bytes()
    with full_disk(len(before) + 20), pytest.raises(OSError, match="File too large"):
        journal.sample((0.1, [1, 0.5], dict.fromkeys(range(9), 4096)))

    assert path.read_bytes() == before


def test_held_while_recording(path: pathlib.Path) -> None:
    """Another process can tell that the recording goes on."""
    program = (
        "import fcntl, sys\ntry: fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: print('held')\nelse: print('free')"
    )
    words = [sys.executable, "-S", "-E", "-c", program, str(path)]
    before = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    journal = Journal(str(path))
    after = subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert (before, after, journal.plan()["interval_s"]) == ("free\n", "held\n", 0.5)
