from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
from typing import Any

import pytest
from prometheus_client import parser as prometheus
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics

from nncftools.render.openmetrics import report
from nncftools.render.view import View
from nncftools.session.model import END_UNKNOWN, Exit, Host, Mark, Rank, RankRun, SamplerFacts, Start
from nncftools.session.session import Session
from tests.conftest import Run
from tests.made_up import MIB, mib, process, session
from tests.render import golden

Found = dict[str, list[tuple[dict[str, str], float]]]


def families(of: Session, **view: Any) -> dict[str, Metric]:  # noqa: ANN401 — any field of a view
    """Return what the reference parser makes of the text, by name without the prefix."""
    text = report(of, View(metrics=["rss"], **view))
    return {
        family.name.removeprefix("nncf_tools_"): family
        for family in openmetrics.text_fd_to_metric_families(io.StringIO(text))
    }


def samples(of: Session, **view: Any) -> Found:  # noqa: ANN401 — the same
    """Return labels, but for the run's, and values by name of the sample."""
    found: Found = {}
    for family in families(of, **view).values():
        for sample in family.samples:
            labels = {name: text for name, text in sample.labels.items() if name != "run"}
            found.setdefault(sample.name.removeprefix("nncf_tools_"), []).append((labels, sample.value))
            assert sample.timestamp is None
    return found


class TestFormat:
    def test_ends_with_eof(self) -> None:
        """The text ends as the format asks for."""
        assert report(session(), View(metrics=["rss"])).endswith("\n# EOF\n")

    def test_types_and_units(self) -> None:
        """All are gauges, also totals, in bytes and seconds, each with its help: the next run replaces them."""
        found = families(golden.run(), depth=2)

        assert {(family.type, family.unit) for family in found.values()} == {
            ("gauge", ""),
            ("gauge", "bytes"),
            ("gauge", "seconds"),
        }
        assert all(family.documentation for family in found.values())

    def test_rules_of_names(self) -> None:
        """Each metric has a type, the unit of its name and help, and no suffix that is another type's."""
        text = report(golden.run(), golden.VIEW)
        told: dict[str, list[str]] = {}
        for kind, name, words in re.findall(r"^# (TYPE|UNIT|HELP) (\S+) (.+)$", text, re.MULTILINE):
            told.setdefault(name, []).append(f"{kind} {words}" if kind != "HELP" else kind)
        found = dict.fromkeys(re.findall(r"^(nncf_tools_\w+)\{", text, re.MULTILINE))

        assert list(found) == list(told)
        for name, lines in told.items():
            unit = [f"UNIT {unit}" for unit in ("bytes", "seconds") if name.endswith(f"_{unit}")]
            assert lines == ["TYPE gauge", *unit, "HELP"]
            assert not name.endswith(("_total", "_count", "_sum", "_bucket"))
            assert re.fullmatch(r"[a-z][a-z0-9_]*", name)

    @pytest.mark.real
    def test_promtool(self) -> None:
        """The linter of Prometheus has nothing to say."""
        if shutil.which("promtool") is None and "CI" not in os.environ:
            pytest.skip("no promtool on PATH: apt-get install prometheus")
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=report(golden.run(), golden.VIEW),
            capture_output=True,
            text=True,
            check=False,
        )

        assert (done.returncode, done.stderr) == (0, "")

    def test_prometheus_reads_it(self) -> None:
        """The older text format, which node_exporter's textfile collector takes, holds the same samples."""
        text = report(golden.run(), golden.VIEW)
        older = [
            sample for family in prometheus.text_fd_to_metric_families(io.StringIO(text)) for sample in family.samples
        ]
        newer = [
            sample for family in openmetrics.text_fd_to_metric_families(io.StringIO(text)) for sample in family.samples
        ]

        assert sorted(map(str, older)) == sorted(map(str, newer))
        assert set(re.findall(r"^# TYPE \S+ (\S+)$", text, re.MULTILINE)) == {"gauge"}

    def test_odd_texts(self) -> None:
        """Quotes and backslashes in labels are escaped, control characters written out."""
        odd = 'a "b" \\ c\nd\r\x1b語'
        marks = [Mark(name=odd, start_s=0, end_s=1)]
        found = samples(session(command=[odd], host=Host(name=odd), marks=marks))

        assert found["run_info"][0][0]["host"] == 'a "b" \\ c\\nd\\r\\x1b語'
        assert found["operation_duration_seconds"][0][0]["operation"] == 'a "b" \\ c\\nd\\r\\x1b語'

    def test_numbers_as_they_are(self) -> None:
        """Figures are written with as many digits as they have, bytes without a fraction."""
        text = report(session({"rss": [1, 2, 2]}, duration_s=0.1), View(metrics=["rss"]))

        assert 'duration_seconds{run="run"} 0.1\n' in text
        assert 'average_bytes{run="run",metric="rss"} 2\n' in text


class TestRun:
    def test_facts(self) -> None:
        """What and where the run was are labels of one metric that is 1."""
        (labels, value), *more = samples(session(host=Host(name="box", system="Linux")))["run_info"]

        assert more == []
        assert value == 1
        assert labels == {
            "command": "work --fast",
            "host": "box",
            "system": "Linux",
            "start": "2026-11-21T07:00:00.000000+00:00",
            "version": "0.1.0",
        }

    def test_memory_from_zero(self) -> None:
        """If memory counts from an unknown first sample, the facts say so."""
        assert samples(session(from_zero=True))["run_info"][0][0]["from_zero"] == "true"

    def test_every_sample_names_the_run(self) -> None:
        """Files of several runs can be in one folder: every sample has the labels of its run and rank."""
        of = session(rank=Rank(number=3, size=4))
        every = [sample.labels for family in families(of, title="int4").values() for sample in family.samples]

        assert {(labels["run"], labels["rank"]) for labels in every} == {("int4", "3")}

    def test_end(self) -> None:
        """Exit status or signal, and whether the recording is whole."""
        assert samples(session(exit=Exit(code=3)))["exit_code"] == [({}, 3)]
        killed = samples(session(exit=Exit(signal=9), finished=False))

        assert (killed["exit_signal"], killed["finished"]) == ([({}, 9)], [({}, 0)])
        assert "exit_code" not in killed

    def test_start(self) -> None:
        """The start is in Unix time; without a known time zone it is left out."""
        assert samples(session())["start_time_seconds"] == [({}, 1795244400)]
        assert "start_time_seconds" not in samples(session(start=Start(utc="2026-11-21T07:00:00")))
        assert "start_time_seconds" not in samples(session(start=Start(utc="long ago")))


class TestFigures:
    def test_peak_is_a_bracket(self) -> None:
        """The peak has its bounds."""
        found = samples(golden.run())["peak_bytes"]

        assert found[:3] == [
            ({"metric": "rss", "bound": "sampled"}, 2600 * MIB),
            ({"metric": "rss", "bound": "low"}, 2600 * MIB),
            ({"metric": "pss", "bound": "sampled"}, 2400 * MIB),
        ]

    def test_levels(self) -> None:
        """First, last, mean and smallest sample of each memory metric."""
        found = samples(session({"rss": mib(100, 300, 200), "system": mib(1, 2, 3)}))

        assert [found[f"{name}_bytes"][0] for name in ("first", "final", "average", "lowest")] == [
            ({"metric": "rss"}, size * MIB) for size in (100, 200, 200, 100)
        ]
        assert found["final_bytes"][1] == ({"metric": "system"}, 3 * MIB)

    def test_totals(self) -> None:
        """CPU time by mode, and I/O."""
        found = samples(golden.run())

        assert found["cpu_seconds"] == [({"mode": "user"}, 18.375), ({"mode": "system"}, 3.0625)]
        assert found["storage_read_bytes"] == [({}, 200 * MIB)]
        assert "calls_written_bytes" not in found

    def test_cpu_of_another_tool(self) -> None:
        """CPU time that is not split into user and system has no mode."""
        assert samples(session(totals={"cpu": 2.5}))["cpu_seconds"] == [({}, 2.5)]

    def test_processes(self) -> None:
        """How many there were, and how large the largest was."""
        found = samples(session(processes=[process(samples=3, peak_rss=MIB), process(1, samples=1)]))

        assert (found["processes"], found["short_lived_processes"]) == ([({}, 2)], [({}, 1)])
        assert found["largest_process_bytes"] == [({}, MIB)]

    def test_the_samplers_own_cost(self) -> None:
        """What the measuring took itself, and how punctual it was."""
        found = samples(golden.run())

        assert (found["sampler_cpu_seconds"], found["sampler_peak_bytes"]) == ([({}, 0.125)], [({}, 11 * MIB)])
        assert found["interval_seconds"] == [({"kind": "asked"}, 1.0), ({"kind": "achieved"}, 1.02)]
        assert found["missed_samples"] == [({}, 1)]

    def test_ranks(self) -> None:
        """Each rank of a merged job has its own peak, time and CPU time, by its number or its name."""
        peaks = session({"rss": mib(1, 3)}).peaks
        ranks = [
            RankRun(name="rank 7", rank=Rank(number=7), start_s=0, duration_s=2, peaks=peaks),
            RankRun(name="b.json", start_s=0, duration_s=1, cpu_s=0.5),
        ]
        found = samples(session(ranks=ranks))

        assert found["rank_peak_bytes"] == [
            ({"rank": "7", "metric": "rss", "bound": bound}, 3 * MIB) for bound in ("sampled", "low")
        ]
        assert found["rank_duration_seconds"] == [({"rank": "7"}, 2), ({"rank": "b.json"}, 1)]
        assert found["rank_cpu_seconds"] == [({"rank": "b.json"}, 0.5)]

    def test_unknown_is_left_out(self) -> None:
        """A log that knows hardly anything has no figure that it does not hold, and no 0 in its place."""
        of = session(
            {"rss": [None, None]},
            start=Start(),
            host=Host(),
            exit=None,
            sampler=SamplerFacts(),
            processes=[],
            totals={},
        )

        assert set(samples(of)) == {"run_info", "duration_seconds", "finished", "samples"}


class TestOperations:
    MARKS = (
        Mark(name="Export", start_s=0, end_s=0.5, kind="export"),
        Mark(name="trace", start_s=0.1, end_s=0.2, depth=1),
        Mark(name="Export", start_s=0.5, end_s=1, error="ValueError: no"),
    )

    def test_same_name(self) -> None:
        """Two operations of one name have different indexes."""
        found = samples(session(marks=list(self.MARKS)))

        assert found["operation_duration_seconds"] == [
            ({"operation": "Export", "index": "1", "depth": "0", "kind": "export"}, 0.5),
            ({"operation": "Export", "index": "2", "depth": "0"}, 0.5),
        ]
        assert [value for _, value in found["operation_failed"]] == [0, 1]
        assert [value for _, value in found["operation_peak_rss_bytes"]] == [300 * MIB, 300 * MIB]

    def test_an_unknown_end(self) -> None:
        """Of an operation whose end is unknown, nothing is said of its length and failure, and it has no peak."""
        found = samples(session(marks=[Mark(name="a", start_s=0, end_s=0.5, error=END_UNKNOWN)]))
        names = {name for name in found if name.startswith("operation_")}

        assert names == {"operation_start_offset_seconds", "operation_calls"}

    def test_depth(self) -> None:
        """Inner operations come with the depth that is asked for."""
        found = samples(session(marks=list(self.MARKS)), depth=2)["operation_calls"]

        assert [labels["operation"] for labels, _ in found] == ["Export", "trace", "Export"]

    @pytest.mark.parametrize(
        "names", [("a" * 500 + "b", "a" * 500 + "b"), ("\n", "\\n")], ids=["shortened", "written out"]
    )
    def test_names_that_become_one(self, names: tuple[str, str]) -> None:
        """Names that become the same text do not collide."""
        marks = [Mark(name=name, start_s=place / 2, end_s=place / 2 + 0.5) for place, name in enumerate(names)]

        assert [labels["index"] for labels, _ in samples(session(marks=marks))["operation_calls"]] == ["1", "2"]


def test_on_the_command_line(nncf_tools: Run) -> None:
    """A real recording's figures go to standard output."""
    nncf_tools("monitor", "-q", "--no-plot", "-o", "run.json", "--", "true")
    done = nncf_tools("report", "run.json", "--format", "openmetrics")

    assert done.returncode == 0
    assert 'nncf_tools_exit_code{run="true"} 0' in done.stdout
    assert list(openmetrics.text_fd_to_metric_families(io.StringIO(done.stdout)))
