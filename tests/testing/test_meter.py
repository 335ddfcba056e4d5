from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

import pytest

from nncftools.testing import meter
from nncftools.testing.meter import (
    KERNEL,
    SAMPLED,
    Measurement,
    Memory,
    MeterRow,
    Peak,
    load_peak,
    peak_of,
    store_peak,
)
from tests.conftest import HANGING_S
from tests.made_up import MIB

RESET = """
from nncftools.testing import meter
held = bytearray(b"x") * (64 << 20)
del held
before = meter.read_memory(None)
worked = meter.reset_mark()
after = meter.read_memory(None)
print(worked, before.mark - after.mark >> 20, after.mark - after.rss >> 20)
"""

CHILDREN = """
import subprocess
from nncftools.testing import meter
before = meter.read_memory(None).has_children
with subprocess.Popen(["sleep", "100"]) as child:
    found = meter.read_memory(None).has_children, meter.read_memory(child.pid).has_children
    child.kill()
print(before, *found, meter.read_memory(None).has_children)
"""

if sys.platform != "linux":
    pytest.skip("what Linux tells", allow_module_level=True)


def output_of(program: str) -> list[str]:
    """Return the words that a program prints in a separate process."""
    words = [sys.executable, "-c", program]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=HANGING_S).stdout.split()


@pytest.mark.process
def test_mark_begins_anew() -> None:
    """After a reset the kernel's high-water mark is the current RSS."""
    told = output_of(RESET)

    assert told[0] == "True"
    assert 62 <= int(told[1]) <= 66
    assert 0 <= int(told[2]) <= 2


def test_no_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the mark cannot be reset, the return value says so."""
    monkeypatch.setattr(meter, "_CLEAR_REFS", "/proc/self/no_such_file")

    assert not meter.reset_mark()


@pytest.mark.process
def test_children() -> None:
    """A running child counts unless it is excluded; one that was waited for does not."""
    assert output_of(CHILDREN) == ["False", "True", "False", "False"]


def test_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc this process's memory is unknown."""
    monkeypatch.setattr(meter, "_STATUS", "/proc/self/no_such_file")
    found = meter.read_memory(None)

    assert (found.rss, found.mark) == (None, None)


def test_figures() -> None:
    """RSS and marks are in bytes."""
    found = meter.read_memory(None)

    assert found.mark is not None
    assert found.rss is not None
    assert MIB < found.rss <= found.mark + MIB
    assert found.children_mark == resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


BEFORE = {
    "alone": Memory(rss=30, mark=30, children_mark=20, has_children=False),
    "beside another": Memory(rss=30, mark=30, children_mark=20, has_children=True),
    "unknown": Memory(),
}


def peak_with(
    before: str = "alone", after: str = "50 20", *, was_reset: bool = True, is_sampled: bool = True, **samples: str
) -> Peak:
    """Return the peak of a test, by default a sampled one, after a reset, with no sample during it.

    ``after`` has the kernel's marks of the test and of its children, a sample has RSS and the number of processes.
    """
    rows = {name: MeterRow(0, *map(int, text.split())) for name, text in samples.items()}
    measurement = Measurement(before=BEFORE[before], was_reset=was_reset, **rows)
    marks = dict(zip(("mark", "children_mark"), map(int, after.split()), strict=False))
    last = Memory(rss=35, **marks, has_children=False) if marks else Memory()
    return peak_of(measurement, last, is_sampled=is_sampled)


@pytest.mark.parametrize(
    "known, peak",
    [
        ({}, "50 20 kernel"),
        ({"largest": "51 1"}, "50 20 kernel"),
        ({"largest": "70 2"}, "70 40 sampled"),
        ({"largest": "40 2"}, "50 20 kernel"),
        ({"after": "50 90"}, "90 60 kernel"),
        ({"after": "50 45"}, "50 20 kernel"),
        ({"before": "beside another", "after": "50 90"}, "50 20 kernel"),
        ({"before": "beside another", "sample_before": "60 2", "largest": "90 2"}, "90 30 sampled"),
        ({"before": "beside another", "sample_before": "60 2"}, "50 0 kernel"),
        ({"was_reset": False}, "50 20 kernel"),
        ({"was_reset": False, "after": "30 20"}, "35 5 sampled"),
        ({"was_reset": False, "after": "30 20", "largest": "40 1"}, "40 10 sampled"),
        ({"is_sampled": False}, "50 20 unsampled"),
        ({"before": "unknown", "after": "", "sample_before": "10 1", "largest": "15 1"}, "15 5 sampled"),
        ({"before": "unknown", "after": "", "is_sampled": False}, "None None unknown"),
    ],
)
def test_peak(known: dict[str, Any], peak: str) -> None:
    """The largest certain figure is the peak, with how it is known."""
    assert " ".join(map(str, vars(peak_with(**known)).values())) == peak


def test_peak_of_a_test_that_runs_again() -> None:
    """A peak replaces that of an earlier run in the properties of a test; unknown figures are left out."""
    of_test: list[tuple[str, object]] = [("own", "value")]
    store_peak(Peak(5, 1, KERNEL), of_test)
    store_peak(Peak(7, None, SAMPLED), of_test)

    assert of_test == [("own", "value"), ("memory_peak_bytes", 7), ("memory_known", "sampled")]
    assert load_peak(of_test) == Peak(7, None, SAMPLED)


def test_a_test_that_was_not_measured() -> None:
    """A test without our properties has no peak."""
    assert load_peak([("own", "value")]) is None
