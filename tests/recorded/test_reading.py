"""Real recordings, cut at every line: each reader makes of them what it made in November 2026.

``tests/recorded/golden.py`` writes what is expected.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.recorded import golden
from tests.recorded.golden import NAMES

NEED = {
    "journal": "start end columns group memory_limit limit_reached unseen held rise each process file_system "
    "files_read floor warning oom_kills",
    "marks": "event failure error call python source",
    "snapshots": "helper frame stack process rss window faults mappings end",
}
"""The keys that tell kinds of lines."""


QUICK = {"operations.frames.txt", "stacks.frames.txt", "children.keys.txt", "nested.live.txt", "operations.screens.txt"}
"""What is shown in the fast suite."""


def differing(name: str, kind: str, folder: Path) -> list[tuple[str | None, str | None]]:
    """Return the lines of a golden of one kind of reading that are not as they were, and those of now."""
    now = [reading.line for reading in (golden.QUICK | golden.LONG)[kind](golden.logs(name), folder)]
    return [pair for pair in itertools.zip_longest(before(name, kind), now) if pair[0] != pair[1]]


def before(name: str, kind: str) -> list[str]:
    """Return the lines of a golden of one kind of reading."""
    lines = golden.golden(name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.split()[0] == kind]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", golden.QUICK)
def test_some_cuts_read_as_they_did(name: str, kind: str, tmp_path: Path) -> None:
    """At every 25th line of a log, report, live view and pytest plugin make the same of what was written as before."""
    expected = before(name, kind)
    found = [reading.line for reading in golden.QUICK[kind](golden.logs(name), tmp_path, 25)]

    assert [line for line in found if line not in expected] == []
    assert len(found) >= len(expected) / 25


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [*golden.QUICK, *golden.LONG])
def test_a_cut_recording_reads_as_it_did(name: str, kind: str, tmp_path: Path) -> None:
    """Report, live view and pytest plugin read a log as before, also if it is cut or damaged."""
    assert differing(name, kind, tmp_path) == []


@pytest.mark.parametrize("file, name, number", [(f, n, k) for n in NAMES for f, k in golden.in_full(n).items()])
def test_three_sessions_in_full(file: str, name: str, number: int, tmp_path: Path) -> None:
    """The sessions of the first sample, of half the journal and of all of it are equal to the letter."""
    assert golden.whole(name, number, tmp_path) == (golden.FOLDER / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("log", NEED)
def test_every_kind_of_line_is_there(log: str) -> None:
    """The recordings hold every kind of line that a journal, a marks log and the helper's log can have."""
    text = b"".join(line for name in NAMES for line in getattr(golden.logs(name), log))
    before = "" if log == "marks" else "{"

    assert [key for key in NEED[log].split() if f'{before}"{key}":'.encode() not in text] == []
    assert log != "journal" or b'"left_out":true' in text


@pytest.mark.parametrize(
    "file", [pytest.param(file, marks=() if file in QUICK else pytest.mark.long) for file in golden.SHOWN]
)
def test_what_is_shown(file: str, tmp_path: Path) -> None:
    """``replay`` in all sizes and media and after keys, and the live view show a recording as they did."""
    show, name = golden.SHOWN[file]

    assert show(name, tmp_path) == (golden.FOLDER / file).read_text(encoding="utf-8")
