"""How importers handle damaged logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import HANGING_S
from tests.importers.logs import MPROF, NNCF, PSRECORD, PSRECORD_CSV, USAGE, imported
from tests.made_up import mib

ROWS = {
    "mprof": (MPROF, 3),
    "psrecord": (PSRECORD, 3),
    "psrecord.csv": (PSRECORD_CSV, 3),
    "rss_memory_usage.txt": (NNCF, 2),
    "usage.jsonl": (USAGE, 2),
}
"""By file name: a log, and which of its lines holds the second of three samples."""
BYTES_OF_MEMORY = 150 << 20


def with_line(text: bytes, number: int, line: bytes) -> bytes:
    """Return a log with one line replaced."""
    lines = text.split(b"\n")
    lines[number - 1] = line
    return b"\n".join(lines)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("line", [b"\xff\xfe\0\0", b"x" * 500, b"1_0 2_0 3_0 4_0"])
def test_a_line_that_cannot_be_read(tmp_path: Path, name: str, line: bytes) -> None:
    """An invalid line is left out, the others are kept, and a warning names line, content and reason."""
    text, number = ROWS[name]
    found = imported(tmp_path, with_line(text, number, line), name)
    warnings = [warning for warning in found.warnings if "left out" in warning]

    assert len(found.samples) == 2
    assert len(warnings) == 1
    assert warnings[0].startswith(f"lines left out: 1; the first is line {number}: '")
    assert warnings[0].isprintable()


@pytest.mark.parametrize("bad", [b"12.x", b"nan", b"-5", b"1e300", b"1_000", b""])
@pytest.mark.parametrize("text, good", [(MPROF, b"300.000000"), (PSRECORD, b"300.000"), (PSRECORD_CSV, b"300.0")])
def test_a_number_that_cannot_be(tmp_path: Path, text: bytes, good: bytes, bad: bytes) -> None:
    """Values that are not numbers, not finite, negative or larger than 2^63 are left out with line and column."""
    found = imported(tmp_path, text.replace(good, bad))

    assert list(found.samples["rss"]) == mib(100, 200)
    assert found.warnings[0].startswith("lines left out: 1; the first is line 3: ")
    assert found.warnings[0].endswith(" expected as rss") or (
        bad == b"" and " values expected, found " in found.warnings[0]
    )


@pytest.mark.parametrize("name", ROWS)
def test_rows_between_bad_lines(tmp_path: Path, name: str) -> None:
    """Wherever bad lines are among many rows, all rows are read, and all bad lines are counted."""
    text, number = ROWS[name]
    lines = text.split(b"\n")
    many = [lines[number - 1]] * 100
    for place in (3, 4, 40, 99):
        many[place] = b"bad"
    found = imported(tmp_path, b"\n".join([*lines[: number - 1], *many, *lines[number:]]), name)

    assert len(set(found.samples["rss"][1:97])) == 1
    assert len(found.samples) == 98
    assert found.warnings[0].startswith(f"lines left out: 4; the first is line {number + 3}: 'bad'")


def test_time_that_goes_back(tmp_path: Path) -> None:
    """Samples earlier than the last are left out; one warning says where, gives both times, and counts."""
    back = b"MEM 900.000000 1424768150.6000\nMEM 900.000000 1424768150.9000\nMEM 250.000000 1424768151.5000\n"
    found = imported(tmp_path, MPROF + back)

    assert list(found.samples["rss"]) == mib(100, 300, 200, 250)
    (warning,) = found.warnings
    assert warning.startswith("lines left out: 2; the first is line 5: 'MEM 900.000000 1424768150.6000': ")
    assert warning.endswith(": the time 0.6 s is before the time of the previous row, 1 s")


@pytest.mark.parametrize("name", [name for name in ROWS if "memory_usage" not in name])
@pytest.mark.parametrize("less", [2, 9])
def test_the_last_line_is_cut_off(tmp_path: Path, name: str, less: int) -> None:
    """A last line without a line break is left out with a warning, even when it would be a valid row."""
    found = imported(tmp_path, ROWS[name][0][:-less], name)

    assert len(found.samples) == 2
    assert "the last line is cut off: it was left out" in found.warnings


@pytest.mark.parametrize(
    "name, forced", [("psrecord.csv", "psrecord"), pytest.param("usage.jsonl", "con-duct", marks=pytest.mark.long)]
)
def test_lines_without_an_end(tmp_path: Path, name: str, forced: str) -> None:
    """A line of many megabytes is cut off and left out in bounded memory, and the following lines are read."""
    found = imported(tmp_path, ROWS[name][0] + b"\n" + b"7" * (9 << 20) + b"\n", f"log_{name}", forced)

    assert len(found.samples) == 3
    assert any(warning.startswith("lines left out: 1; ") for warning in found.warnings)


def test_blank_lines_are_nothing(tmp_path: Path) -> None:
    """Blank lines are skipped without a warning."""
    assert imported(tmp_path, MPROF.replace(b"\n", b"\n\n \n")).warnings == []


PROGRAM = """
import json, resource, sys
from nncftools.importers.source import read_session
if {limit}:
    resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))
found = read_session(sys.argv[1])
peak = found.peaks["rss"]
print(json.dumps([found.sampler.taken, len(found.samples), peak.sampled, peak.at_s, found.duration_s, found.warnings]))
"""


@pytest.mark.long
@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA bounds anonymous memory on Linux")
def test_memory_is_bounded(tmp_path: Path) -> None:
    """A log of 32 MB through a pipe is read in bounded memory; neighbours are merged, and the peak stays exact."""
    piece = b"".join(b"MEM %d.000000 TIME.0000\n" % (100 + place % 7) for place in range(20_000))
    seconds = range(1_430_000_000, 1_430_000_060)
    os.mkfifo(tmp_path / "log.dat")

    def write() -> None:
        with (tmp_path / "log.dat").open("wb") as file:
            file.write(b"MEM 5000.000000 %d.0000\n" % seconds[0])
            for second in seconds:
                file.write(piece.replace(b"TIME", b"%d" % second))

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    words = [sys.executable, "-c", PROGRAM.format(limit=BYTES_OF_MEMORY), str(tmp_path / "log.dat")]
    result = subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANGING_S)
    writer.join(HANGING_S)

    assert result.stderr == ""
    taken, kept, peak, at_s, duration_s, warnings = json.loads(result.stdout)
    assert (taken, peak, at_s, duration_s) == (1_200_001, 5000 << 20, 0, 59)
    assert 100_000 < kept <= 1_000_000
    assert [warning.partition(": ")[0] for warning in warnings] == [
        f"1,200,001 samples were taken and merged into {kept:,}"
    ]
