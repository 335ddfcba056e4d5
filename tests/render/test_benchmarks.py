"""The formats of services that keep the history of benchmarks."""

from __future__ import annotations

import json
import pathlib
import shlex
from typing import Any

import pytest

from nncftools.analysis.comparison import Run, measured
from nncftools.render import benchmarks
from nncftools.render.benchmarks import Timing, report, result, timing
from nncftools.render.view import View
from nncftools.session.model import Exit, Mark
from nncftools.session.session import Session
from tests.conftest import Run as conftest_Run
from tests.conftest import burner
from tests.made_up import MIB, mib, process, session

REAL = pathlib.Path(__file__).parents[1] / "data" / "hyperfine_1.15.json"
"""What hyperfine 1.15 wrote of two commands, three runs each."""
RUN = Timing(duration_s=1.0, user_s=0.5, system_s=0.25, peak_rss=MIB, exit_code=0)


def only_result(of: Session, **view: Any) -> dict[str, Any]:  # noqa: ANN401 — any field of a view
    """Return the only result of a session's export."""
    document = json.loads(report(of, View(metrics=["rss"], **view)))
    (found,) = document["results"]
    assert list(document) == ["results"]
    return dict(found)


def test_one_run() -> None:
    """A session is one command with one run, of which there is no deviation."""
    assert only_result(session()) == {
        "command": "work --fast",
        "mean": 1.0,
        "stddev": None,
        "median": 1.0,
        "user": 0.5,
        "system": 0.25,
        "min": 1.0,
        "max": 1.0,
        "times": [1.0],
        "memory_usage_byte": [300 * MIB],
        "exit_codes": [0],
    }


def test_title() -> None:
    """The title replaces the command, as with ``hyperfine --command-name``."""
    assert only_result(session(), title="int4")["command"] == "int4"


def test_the_shape_of_a_real_export() -> None:
    """Keys have hyperfine's names, order and types; a later version added memory."""
    ours = result("sleep 0.1", [RUN, RUN, RUN])
    del ours["memory_usage_byte"]
    for theirs in json.loads(REAL.read_text(encoding="utf-8"))["results"]:
        assert list(ours) == list(theirs)
        assert {key: type(value) for key, value in ours.items()} == {key: type(value) for key, value in theirs.items()}


def test_statistics_of_a_real_export() -> None:
    """Mean, deviation, median and bounds are those that hyperfine made of the same times."""
    for theirs in json.loads(REAL.read_text(encoding="utf-8"))["results"]:
        ours = result(theirs["command"], [Timing(time_s, 0, 0, 0, 0) for time_s in theirs["times"]])

        for key in ("mean", "stddev", "median", "min", "max"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-12)


@pytest.mark.parametrize(
    ("exit_", "code"), [(Exit(code=3), 3), (Exit(signal=9), 137), (None, None)], ids=["code", "signal", "unknown"]
)
def test_exit_codes(exit_: Exit | None, code: int | None) -> None:
    """A signal is 128 and its number, as hyperfine has it; unknown is null."""
    assert timing(session(exit=exit_)).exit_code == code


def test_unknown() -> None:
    """Unknown figures are null or missing, never 0. A mean of only some of the runs is not given."""
    of = session({"pss": [1, 2]}, totals={"cpu": 1.0}, exit=None)
    found = only_result(of)

    assert (found["user"], found["system"], found["exit_codes"]) == (None, None, [None])
    assert "memory_usage_byte" not in found
    partly = result("work", [RUN, timing(of)])
    assert partly["user"] is None
    assert "memory_usage_byte" not in partly


def test_memory_from_zero() -> None:
    """Memory above a first sample that is not known is no peak."""
    assert "memory_usage_byte" not in only_result(session(from_zero=True))


@pytest.mark.long
def test_on_the_command_line(nncf_tools: conftest_Run) -> None:
    """A real recording is exported in hyperfine's format."""
    script = f"{shlex.join(burner('copies', 'figures', 1, 1, 'rss'))}; exit 3"  # lives until it was sampled
    nncf_tools("monitor", "-q", "--no-plot", "-i", 0.02, "-o", "run.json", "--", "sh", "-c", script)
    found = json.loads(nncf_tools("report", "run.json", "--format", "hyperfine").stdout)["results"][0]

    assert found["command"] == shlex.join(["sh", "-c", script])
    assert found["exit_codes"] == [3]
    assert found["memory_usage_byte"][0] > 100_000


VIEW = View(["rss"])


def run(peak: float, **fields: Any) -> Run:  # noqa: ANN401 — any field of a session
    """Return a run with this peak in MiB and one operation."""
    marks = [Mark(name="Export", start_s=0.5, end_s=1.0)]
    return measured(session({"rss": mib(100, peak, 50)}, marks=marks, **fields), "run.json")


def of_bencher(*runs: Run) -> dict[str, Any]:
    """Return the document for Bencher."""
    return dict(json.loads(benchmarks.bencher_document({"work": runs})))


def of_action(*runs: Run) -> dict[str, dict[str, Any]]:
    """Return the entries for github-action-benchmark by their names."""
    return {one["name"]: one for one in json.loads(benchmarks.benchmark_action_document({"work": runs}))}


class TestBencher:
    def test_bounds_are_the_bracket(self) -> None:
        """The value of a peak is what it was at least; its bounds are the bracket. Others have no bounds."""
        wide = process(high_water_limit=1200 * MIB, start_s=-1.0)
        found = of_bencher(run(1000, processes=[wide]))["work"]

        assert found["peak-rss"] == {"value": 1000 * MIB, "lower_value": 1000 * MIB, "upper_value": 1200 * MIB}
        assert found["duration"] == {"value": 1.0}

    def test_groups(self) -> None:
        """Of several runs, the value is the median, and the bounds are the smallest and the largest."""
        found = of_bencher(*(run(size) for size in (1000, 1010, 1100)))["work"]

        assert found["peak-rss"] == {"value": 1010 * MIB, "lower_value": 1000 * MIB, "upper_value": 1100 * MIB}

    def test_operations_are_benchmarks(self) -> None:
        """An operation is a benchmark of its own with peak and duration."""
        found = of_bencher(run(1000))

        assert set(found) == {"work", "work › Export"}
        assert found["work › Export"]["duration"] == {"value": 0.5}

    def test_what_others_change_is_left_out(self) -> None:
        """Memory of the machine, address space, parts of RSS and I/O are no history."""
        columns = {"rss": mib(1, 2), "anon": mib(1, 1), "vms": mib(1, 2), "system": mib(1, 2)}
        found = of_bencher(measured(session(columns), "run.json"))["work"]

        assert set(found) == {"peak-rss", "duration", "cpu"}

    def test_report(self) -> None:
        """The report of one session is called as the command, or as the title says."""
        one = session()

        assert list(json.loads(benchmarks.bencher_report(one, VIEW))) == ["work --fast"]
        assert list(json.loads(benchmarks.bencher_report(one, View(["rss"], title="export")))) == ["export"]


class TestBenchmarkAction:
    def test_entries(self) -> None:
        """An entry has name, unit and value; of several runs also the range and how many there were."""
        assert of_action(run(1000))["work › Peak RSS"] == {"name": "work › Peak RSS", "unit": "MiB", "value": 1000.0}
        assert of_action(run(1000), run(1020))["work › Peak RSS"] == {
            "name": "work › Peak RSS",
            "unit": "MiB",
            "value": 1010.0,
            "range": "1000 to 1020",
            "extra": "median of 2 runs; range: the smallest and the largest",
        }

    def test_unit_never_changes(self) -> None:
        """A large figure has the unit of a small one, since a history has one unit."""
        assert of_action(run(100_000))["work › Peak RSS"]["unit"] == "MiB"
        assert of_action(run(1))["work › Export › Duration"] == {
            "name": "work › Export › Duration",
            "unit": "s",
            "value": 0.5,
        }

    def test_report(self) -> None:
        """A session alone is a document, too."""
        assert [one["name"] for one in json.loads(benchmarks.benchmark_action_report(session(), VIEW))] == [
            "work --fast › Peak RSS",
            "work --fast › Duration",
            "work --fast › CPU time",
        ]
