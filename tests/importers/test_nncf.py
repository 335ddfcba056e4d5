from __future__ import annotations

import math
from pathlib import Path

import pytest

from nncftools.analysis.session import Session
from nncftools.errors import SessionFileError
from nncftools.render.samples import write
from nncftools.render.view import View, log_stem
from nncftools.units import MemoryUnit
from tests.importers.logs import NNCF, imported
from tests.made_up import mib, session

_RELATIVE = "a value is below 0, or the first is 0: all values are read as changes from an unknown start value"


@pytest.mark.parametrize(
    "name, metric, from_zero",
    [
        ("system_memory_usage_from-zero.txt", "system", True),
        ("rss_memory_usage_mem_increase_12.txt", "rss", True),
        ("rss_top_memory_usage.txt", "rss", False),
        ("run1_system-normalized_memory_usage_2.txt", "system", True),
        ("device_memory@nvidia0_memory_usage_from-zero.txt", "device_memory@nvidia0", True),
        ("device_used@nvidia0.mig1_memory_usage.txt", "device_used@nvidia0.mig1", False),
    ],
)
def test_name(tmp_path: Path, name: str, metric: str, *, from_zero: bool) -> None:
    """The file name gives the metric, and whether the first value was subtracted."""
    found = imported(tmp_path, NNCF, name)

    assert (found.samples.metrics, found.from_zero, found.warnings) == ([metric], from_zero, [])
    assert list(found.samples[metric]) == mib(100, 300, 200)


@pytest.mark.parametrize("name", ["log.txt", "cache_memory_usage.txt"])
def test_name_without_a_metric(tmp_path: Path, name: str) -> None:
    """Without a metric in the name, RSS is assumed with a warning."""
    found = imported(tmp_path, NNCF, name)

    assert found.samples.metrics == ["rss"]
    assert found.warnings[0].startswith("the file name does not give the metric, so RSS is assumed")


def test_unit(tmp_path: Path) -> None:
    """The last line gives the unit of all rows."""
    found = imported(tmp_path, NNCF.replace(b"MiB", b"KB"), "rss_memory_usage.txt")

    assert list(found.samples["rss"]) == [100_000, 300_000, 200_000]


def test_impossible_sizes(tmp_path: Path) -> None:
    """A size that is impossible in the unit is unknown; a warning names column and row."""
    text = b"0 9000000000000.000\nTotal time: 0\nMax memory: 9000000000000.000 (GiB)"
    found = imported(tmp_path, text, "rss_memory_usage.txt")

    assert list(found.samples["rss"]) == pytest.approx([math.nan], nan_ok=True)
    assert any("out of range" in warning and "`$.samples.rss[0]`" in warning for warning in found.warnings)


def test_below_zero(tmp_path: Path) -> None:
    """From zero, values may be negative, also when saved."""
    text = b"0 0.000\n1 -2.000\nTotal time: 1\nMax memory: 0.000 (MiB)"
    found = imported(tmp_path, text, "rss_memory_usage_from-zero.txt")

    assert list(Session.load(found.save(tmp_path / "session.json")).samples["rss"]) == mib(0, -2)
    assert found.warnings == []


@pytest.mark.parametrize(
    "text",
    [
        b"No measurements recorded.\nPlease make sure logging duration or interval were enough.",
        b"Total time: no samples were recorded\nMax memory: no samples were recorded\n",
    ],
)
def test_nothing_recorded(tmp_path: Path, text: bytes) -> None:
    """A log that says it is empty is refused with its own words."""
    with pytest.raises(SessionFileError, match=r"a log of nncf: line 1: '(No measurements|Total time: no)"):
        imported(tmp_path, text, "rss_memory_usage.txt")


@pytest.mark.parametrize("metric", ["rss", "pss"])
@pytest.mark.parametrize("unit", list(MemoryUnit))
def test_our_own_logs(tmp_path: Path, metric: str, unit: MemoryUnit) -> None:
    """The output of ``report --format memory-log`` is read back within its rounding, in every unit."""
    sizes = [100_000_000.0, 300_000_000.0, 200_000_000.0]
    path = tmp_path / f"{log_stem(metric, from_zero=False)}.txt"
    write(session({metric: sizes}), View((metric,), unit), metric, path)
    found = imported(tmp_path, path.read_bytes(), path.name)

    assert list(found.samples[metric]) == pytest.approx(sizes, abs=0.001 * unit.factor)
    assert found.warnings == []


def test_our_own_log_that_begins_below_its_rounding(tmp_path: Path) -> None:
    """A first RSS that is written as 0.000 GiB is absolute in our own log."""
    path = tmp_path / f"{log_stem('rss', from_zero=False)}.txt"
    write(session({"rss": [100_000.0, 300_000_000.0]}), View(("rss",), MemoryUnit.GiB), "rss", path)
    found = imported(tmp_path, path.read_bytes(), path.name)

    assert (found.from_zero, found.warnings) == (False, [])


FROM_ZERO = NNCF.replace(b"0 100", b"0 0", 1)


@pytest.mark.parametrize(
    "text, name, from_zero",
    [
        (NNCF.replace(b"0 100", b"0 -10"), "rss_memory_usage.txt", True),
        (FROM_ZERO, "rss_memory_usage.txt", True),
        (FROM_ZERO, "system_memory_usage_2.txt", True),
        (FROM_ZERO, "my.log", True),
        (FROM_ZERO, "swap_memory_usage.txt", False),
        (FROM_ZERO, "device_memory@nvidia0_memory_usage.txt", False),
        (b"0 0.000\n1 0.000\nTotal time: 1\nMax memory: 0.000 (MiB)", "rss_memory_usage.txt", False),
    ],
)
def test_first_value_of_zero(tmp_path: Path, text: bytes, name: str, *, from_zero: bool) -> None:
    """A running program has some memory: a log that begins with 0, or has less, is from zero, with a warning.

    Swap and memory of devices can be 0, and so can a program that has ended.
    """
    found = imported(tmp_path, text, name)

    assert (found.from_zero, found.warnings[-1:]) == (from_zero, [_RELATIVE] * from_zero)


def test_several_recordings(tmp_path: Path) -> None:
    """Of several logs in one file, the last is read."""
    found = imported(tmp_path, NNCF.replace(b"300", b"400") + b"\n" + NNCF, "rss_memory_usage.txt")

    assert list(found.samples["rss"]) == mib(100, 300, 200)
    assert found.warnings == ["the file holds several recordings, one after another: the last recording is shown"]
