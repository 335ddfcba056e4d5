from __future__ import annotations

import pathlib

import pytest

from nncftools.render.samples import stem, write
from nncftools.render.view import View
from nncftools.session.session import Session
from nncftools.units import MemoryUnit
from tests.made_up import MIB, mib, process, session

NO_SAMPLES = "No measurements recorded.\nThe recording ended before the first sample that is known.\n"


def log(of: Session, folder: pathlib.Path, metric: str = "rss", *, unit: str = "MiB", from_zero: bool = False) -> str:
    """Return the text of a metric's log."""
    view = View(metrics=(metric,), unit=MemoryUnit(unit), from_zero=from_zero)
    write(of, view, metric, folder / "log.txt")
    return (folder / "log.txt").read_text(encoding="utf-8")


def test_text(tmp_path: pathlib.Path) -> None:
    """One row per sample, then the time from the first to the last, and the maximum with its unit."""
    assert log(session(), tmp_path) == (
        "0.000 100.000\n0.500 300.000\n1.000 200.000\nTotal time: 1.000\nMax memory: 300.000 (MiB)\n"
    )


def test_from_zero(tmp_path: pathlib.Path) -> None:
    """From zero, the first sample is subtracted from every row and from the maximum."""
    assert log(session(), tmp_path, from_zero=True) == (
        "0.000 0.000\n0.500 200.000\n1.000 100.000\nTotal time: 1.000\nMax memory: 200.000 (MiB)\n"
    )


def test_peak_between_samples(tmp_path: pathlib.Path) -> None:
    """The maximum is the peak that the report names, also where a high-water mark proves it."""
    of = session(processes=[process(high_water_mark=350 * MIB)])

    assert "Max memory: 350.000 (MiB)\n" in log(of, tmp_path)
    assert "Max memory: 250.000 (MiB)\n" in log(of, tmp_path, from_zero=True)


def test_other_metric_and_unit(tmp_path: pathlib.Path) -> None:
    """The log is of the metric and in the unit that were asked for."""
    text = log(session({"system": mib(1000, 1300)}), tmp_path, "system", unit="GiB")

    assert text.splitlines()[0] == "0.000 0.977"
    assert text.endswith("Max memory: 1.270 (GiB)\n")


def test_falling_below_the_first_sample(tmp_path: pathlib.Path) -> None:
    """From zero, a figure below the first sample is negative."""
    falling = session({"rss": mib(3, 1)})

    assert log(falling, tmp_path, from_zero=True).splitlines()[1] == "0.500 -2.000"


def test_unknown_samples_are_left_out(tmp_path: pathlib.Path) -> None:
    """A sample whose figure is unknown has no row, and from-zero counts from the first that is known."""
    gaps = session({"rss": mib(None, 2, None, 5)})

    assert log(gaps, tmp_path, from_zero=True) == (
        "0.500 0.000\n1.500 3.000\nTotal time: 1.000\nMax memory: 3.000 (MiB)\n"
    )


@pytest.mark.parametrize(
    "nothing", [session({"rss": []}), session({"rss": [None, None]})], ids=["no samples", "unknown"]
)
@pytest.mark.parametrize("from_zero", [False, True])
def test_no_data(tmp_path: pathlib.Path, nothing: Session, *, from_zero: bool) -> None:
    """A log without samples says that none were recorded."""
    assert log(nothing, tmp_path, from_zero=from_zero) == NO_SAMPLES


def test_a_failing_write_leaves_no_file(tmp_path: pathlib.Path) -> None:
    """When the log cannot take its place, nothing is left behind."""
    (tmp_path / "log.txt").mkdir()

    with pytest.raises(OSError, match=r"log\.txt"):
        log(session(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]


@pytest.mark.parametrize(
    ("metric", "expected", "from_zero"),
    [("rss", "rss_memory_usage", False), ("system", "system_memory_usage_from-zero", True)],
)
def test_stem(metric: str, expected: str, *, from_zero: bool) -> None:
    """The name contains the metric, and whether it is from zero."""
    assert stem(metric, from_zero=from_zero) == expected
