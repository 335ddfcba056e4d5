from __future__ import annotations

import pathlib

import pytest

from tests.importers.logs import PSRECORD, PSRECORD_CSV, PSRECORD_IO, imported
from tests.made_up import mib


@pytest.mark.parametrize("text", [PSRECORD, PSRECORD_IO, PSRECORD_CSV], ids=["plain", "with I/O", "CSV"])
def test_memory(tmp_path: pathlib.Path, text: bytes) -> None:
    """Real and virtual memory are in units of 2^20 bytes."""
    found = imported(tmp_path, text)

    assert list(found.samples["rss"]) == mib(100, 300, 200)
    assert list(found.samples["vms"]) == mib(500, 800, 800)
    assert found.peaks["rss"].at_s == 0.5
    assert found.start.utc is None
    assert found.warnings == []


def test_cpu(tmp_path: pathlib.Path) -> None:
    """CPU time is each row's percentage of the time since the previous row; the first row adds nothing."""
    found = imported(tmp_path, PSRECORD)

    assert list(found.samples["cpu"]) == pytest.approx([0, 0.4, 0.6])
    assert found.totals == {"cpu": pytest.approx(0.6)}


def test_cpu_over_pieces(tmp_path: pathlib.Path) -> None:
    """Rows before and after a line that cannot be read are one sequence."""
    found = imported(tmp_path, b"elapsed_time,cpu,mem_real\n0,50,1\n1,50,1\nx\n3,200,1\n", forced="psrecord")

    assert list(found.samples["cpu"]) == [0, 0.5, 4.5]


def test_io_never_falls(tmp_path: pathlib.Path) -> None:
    """Bytes count from the first row on, including those of processes that ended."""
    found = imported(tmp_path, PSRECORD_IO)

    assert list(found.samples["read_bytes"]) == [0, 8192, 8192]
    assert found.totals["write_bytes"] == 512


def test_bytes_over_pieces(tmp_path: pathlib.Path) -> None:
    """Counts that fall or rise before and after a line that cannot be read are one sequence."""
    counts = (5, "x", 5, 9, "x", 2, 4, "x", 6, 6)
    rows = "".join(f"{place},1,{count}\n" for place, count in enumerate(counts))
    found = imported(tmp_path, b"elapsed_time,mem_real,read_bytes\n" + rows.encode(), forced="psrecord")

    assert list(found.samples["read_bytes"]) == [0, 0, 4, 4, 6, 8, 8]


def test_processes_are_counted(tmp_path: pathlib.Path) -> None:
    """CSV holds the number of processes."""
    assert list(imported(tmp_path, PSRECORD_CSV).samples["processes"]) == [1, 3, 1]


@pytest.mark.parametrize(
    ("line", "command", "attached_to"),
    [
        (b"Starting up command 'sleep 3' and attaching to process\n", ["sleep", "3"], None),
        (b"Attaching to process 4711\n", [], 4711),
    ],
)
def test_what_it_prints_around_the_log(
    tmp_path: pathlib.Path, line: bytes, command: list[str], attached_to: int | None
) -> None:
    """Redirected standard output also gives the command or the PID, and the duration."""
    found = imported(tmp_path, line + PSRECORD + b"Process finished (1.25 seconds)\n")

    assert (found.command, found.attached_to, found.duration_s) == (command, attached_to, 1.25)
    assert found.warnings == []


def test_several_recordings(tmp_path: pathlib.Path) -> None:
    """Of several recordings in one file, also with different columns, the last is read."""
    found = imported(tmp_path, PSRECORD + PSRECORD_IO)

    assert "read_bytes" in found.samples
    assert found.warnings == ["the file holds several recordings, one after another: the last recording is shown"]


def test_another_number_of_columns(tmp_path: pathlib.Path) -> None:
    """A row with other columns than the header is not read."""
    found = imported(tmp_path, PSRECORD + b"1.5 2 3\n")

    assert found.warnings == ["lines left out: 1; the first is line 5: '1.5 2 3': 4 values expected, found 3"]


def test_other_columns(tmp_path: pathlib.Path) -> None:
    """Columns are found by name: unknown ones are ignored, missing ones are unknown."""
    found = imported(tmp_path, b"elapsed_time,mem_real,gpu\n0.0,100.0,7\n0.5,300.0,7\n", forced="psrecord")

    assert found.samples.metrics == ["rss"]
    assert found.totals == {}
