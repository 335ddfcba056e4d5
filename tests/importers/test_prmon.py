from __future__ import annotations

import pathlib

import pytest

from nncftools.errors import SessionFileError
from tests.importers.logs import PRMON, PRMON_SUMMARY, imported

KIB = 1024


def test_memory(tmp_path: pathlib.Path) -> None:
    """Memory is in units of 1024 bytes."""
    found = imported(tmp_path, PRMON)

    assert list(found.samples["rss"]) == [100 * KIB, 300 * KIB, 200 * KIB]
    assert found.peaks["pss"].sampled == 290 * KIB
    assert found.samples["vms"][0] == 500 * KIB
    assert found.warnings == []


def test_time(tmp_path: pathlib.Path) -> None:
    """The start is that of the first process, from which ``wtime`` counts."""
    found = imported(tmp_path, PRMON)

    assert list(found.samples.time_s) == [1, 2, 3]
    assert found.start.utc == "2018-05-30T08:37:26.000000+00:00"


def test_counters(tmp_path: pathlib.Path) -> None:
    """CPU time and I/O count from the start and never fall; columns without a metric are ignored."""
    found = imported(tmp_path, PRMON)

    assert list(found.samples["cpu_user"]) == [1, 2, 4]
    assert list(found.samples["read_bytes"]) == [4096, 8192, 8192]
    assert found.totals["read_chars"] == 9000
    assert list(found.samples["processes"]) == [1, 2, 1]
    assert list(found.samples["threads"]) == [4, 5, 4]
    assert "rx_bytes" not in found.samples


def test_first_version(tmp_path: pathlib.Path) -> None:
    """The first version's names, in capitals, are the same metrics."""
    found = imported(tmp_path, b"Time\tVMEM\tPSS\tRSS\tSwap\twtime\n1527669447\t5\t3\t4\t0\t1\n")

    assert {name: found.samples[name][0] / KIB for name in found.samples.metrics} == {
        "vms": 5,
        "pss": 3,
        "rss": 4,
        "swap": 0,
    }


def test_dropped_values(tmp_path: pathlib.Path) -> None:
    """Values that prmon's compression dropped are unknown, not 0, without a warning."""
    found = imported(tmp_path, PRMON.replace(b"\t290\t300\t", b"\t\t\t"))

    assert str(list(found.samples["rss"])) == f"[{100.0 * KIB}, nan, {200.0 * KIB}]"
    assert found.warnings == []


def test_summary(tmp_path: pathlib.Path) -> None:
    """The JSON summary holds no samples, and the message names the file that does."""
    with pytest.raises(SessionFileError, match=r"prmon's summary, which holds no samples; its text file \(prmon.txt\)"):
        imported(tmp_path, PRMON_SUMMARY, "prmon.json")
