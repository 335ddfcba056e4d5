"""The formats of services that keep the history of benchmarks."""

from __future__ import annotations

import json
from typing import Any

from nncftools.analysis.comparison import Run, measured
from nncftools.render import summary_json
from nncftools.render.view import View
from nncftools.session.model import Mark
from tests.made_up import MIB, mib, process, session

VIEW = View(["rss"])


def run(peak: float, **fields: Any) -> Run:  # noqa: ANN401 — any field of a session
    """Return a run with this peak in MiB and one operation."""
    marks = [Mark(name="Export", start_s=0.5, end_s=1.0)]
    return measured(session({"rss": mib(100, peak, 50)}, marks=marks, **fields), "run.json")


def of_bencher(*runs: Run) -> dict[str, Any]:
    """Return the document for Bencher."""
    return dict(json.loads(summary_json.write_history("bencher", {"work": runs})))


def of_action(*runs: Run) -> dict[str, dict[str, Any]]:
    """Return the entries for github-action-benchmark by their names."""
    return {one["name"]: one for one in json.loads(summary_json.write_history("benchmark-action", {"work": runs}))}


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

        assert list(json.loads(summary_json.bencher_report(one, VIEW))) == ["work --fast"]
        assert list(json.loads(summary_json.bencher_report(one, View(["rss"], title="export")))) == ["export"]


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
        assert [one["name"] for one in json.loads(summary_json.benchmark_action_report(session(), VIEW))] == [
            "work --fast › Peak RSS",
            "work --fast › Duration",
            "work --fast › CPU time",
        ]
