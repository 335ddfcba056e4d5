from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers.logs import PSRECORD, PSRECORD_IO, imported


def test_cpu_over_pieces(tmp_path: Path) -> None:
    """Rows before and after a line that cannot be read are one sequence."""
    found = imported(tmp_path, b"elapsed_time,cpu,mem_real\n0,50,1\n1,50,1\nx\n3,200,1\n", forced="psrecord")

    assert list(found.samples["cpu"]) == [0, 0.5, 4.5]


def test_bytes_over_pieces(tmp_path: Path) -> None:
    """Counts that fall or rise before and after a line that cannot be read are one sequence."""
    counts = (5, "x", 5, 9, "x", 2, 4, "x", 6, 6)
    rows = "".join(f"{place},1,{count}\n" for place, count in enumerate(counts))
    found = imported(tmp_path, b"elapsed_time,mem_real,read_bytes\n" + rows.encode(), forced="psrecord")

    assert list(found.samples["read_bytes"]) == [0, 0, 4, 4, 6, 8, 8]


@pytest.mark.parametrize(
    "line, command, attached_to",
    [
        (b"Starting up command 'sleep 3' and attaching to process\n", ["sleep", "3"], None),
        (b"Attaching to process 4711\n", [], 4711),
    ],
)
def test_what_it_prints_around_the_log(
    tmp_path: Path, line: bytes, command: list[str], attached_to: int | None
) -> None:
    """Redirected standard output also gives the command or the PID, and the duration."""
    found = imported(tmp_path, line + PSRECORD + b"Process finished (1.25 seconds)\n")

    assert (found.command, found.attached_to, found.duration_s) == (command, attached_to, 1.25)
    assert found.warnings == []


def test_several_recordings(tmp_path: Path) -> None:
    """Of several recordings in one file, also with different columns, the last is read."""
    found = imported(tmp_path, PSRECORD + PSRECORD_IO)

    assert "read_bytes" in found.samples
    assert found.warnings == ["the file holds several recordings, one after another: the last recording is shown"]


def test_another_number_of_columns(tmp_path: Path) -> None:
    """A row with other columns than the header is not read."""
    found = imported(tmp_path, PSRECORD + b"1.5 2 3\n")

    assert found.warnings == ["lines left out: 1; the first is line 5: '1.5 2 3': 4 values expected, found 3"]


def test_other_columns(tmp_path: Path) -> None:
    """Columns are found by name: unknown ones are ignored, missing ones are unknown."""
    found = imported(tmp_path, b"elapsed_time,mem_real,gpu\n0.0,100.0,7\n0.5,300.0,7\n", forced="psrecord")

    assert found.samples.metrics == ["rss"]
    assert found.totals == {}
