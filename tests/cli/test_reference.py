from __future__ import annotations

import json
import os
import pathlib
import re
import sys

import pexpect
import pytest

from nncftools.metrics import METRICS, OF_DEVICES
from nncftools.sampler.client import offers
from nncftools.sampler.psutil_source import SUPPORTED
from tests.conftest import HANGING_S, Run, command_line

RECORDED = {name: metric for name, metric in METRICS.items() if metric.probe}
KEYS = ["name", "meaning", "unit", "kind", "source", "cost", "missing"]
NOT_FROM_PSUTIL = {
    *("anon", "file", "shmem", "swap", "pss", "uss", "pss_age", "cgroup"),
    *("minor_faults", "major_faults", "memory_stall", "refaults", "swap_in", "swap_out", "huge_pages"),
    *("oom_kills", "group_oom_kills", "disk_free"),
    *OF_DEVICES,
}


def listed(run: Run, *words: str) -> dict[str, dict[str, str]]:
    """Return the output of `metrics --json` by metric."""
    return {facts["name"]: facts for facts in json.loads(run("metrics", "--json", *words).stdout)}


class TestTable:
    @pytest.mark.process
    def test_fits_into_80_columns(self, tmp_path: pathlib.Path) -> None:
        """On a terminal of 80 columns no line is longer, no word is lost, and every metric starts a line."""
        terminal = pexpect.spawn(
            sys.executable,
            command_line("metrics")[1:],
            cwd=str(tmp_path),
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "80"},
            dimensions=(24, 80),
            timeout=HANGING_S,
            encoding="utf-8",
        )
        terminal.expect(pexpect.EOF)
        terminal.close()
        lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", terminal.before).splitlines()]
        words = " ".join(" ".join(lines).split())

        assert (terminal.exitstatus, max(map(len, lines)) <= 80, "…" in words) == (0, True, False)
        assert [name for name in RECORDED if not any(line.startswith(f"{name} ") for line in lines)] == []
        assert "MemTotal - MemAvailable" in words

    def test_names_everything(self, in_process: Run) -> None:
        """In a pipe there is a line for every metric, with its unit, and no escape codes."""
        result = in_process("metrics")
        first = [line.split()[:2] for line in result.stdout.splitlines()[1:] if not line.startswith(" ")]

        assert (result.returncode, result.stderr, "\x1b" in result.stdout) == (0, "", False)
        assert first == [[name, metric.unit or "–"] for name, metric in RECORDED.items()]

    def test_says_what_it_means_and_where_it_is_from(self, in_process: Run) -> None:
        """Every metric is followed by meaning, source and cost."""
        words = " ".join(in_process("metrics").stdout.split())

        assert "the part of RSS that no file backs: heap, stacks, arrays /proc/PID/status, 8 µs a process" in words

    def test_what_is_missing(self, in_process: Run) -> None:
        """A metric that is not available is listed with the reason."""
        words = " ".join(in_process("metrics", "--source", "psutil").stdout.split())

        assert words.count("not here: not from this source") == len(NOT_FROM_PSUTIL)


class TestJson:
    def test_every_metric(self, in_process: Run) -> None:
        """The list for scripts has every metric in its order, with the same keys."""
        result = in_process("metrics", "--json")
        facts = json.loads(result.stdout)

        assert (result.returncode, result.stderr) == (0, "")
        assert [list(of) for of in facts] == [KEYS] * len(RECORDED)
        assert [of["name"] for of in facts] == list(RECORDED)

    def test_facts(self, in_process: Run) -> None:
        """Meaning, unit and kind match the declared metric; all values are text."""
        found = listed(in_process)

        assert {(name, of["meaning"], of["unit"], of["kind"]) for name, of in found.items()} == {
            (name, metric.meaning, metric.unit, metric.kind) for name, metric in RECORDED.items()
        }
        assert {type(value) for of in found.values() for value in of.values()} == {str}

    def test_from_proc(self, in_process: Run) -> None:
        """On Linux every metric has a source and a cost, and per-process metrics are never missing."""
        found = listed(in_process, "--source", "proc")

        assert [name for name, of in found.items() if not (of["source"] and of["cost"])] == []
        assert {name for name, of in found.items() if of["missing"]} <= {
            *("pss", "uss", "pss_age", "cgroup"),
            *OF_DEVICES,
        }
        assert found["rss"]["source"] == "/proc/PID/stat"

    def test_from_psutil(self, in_process: Run) -> None:
        """Metrics that psutil does not provide, such as PSS, are marked as missing."""
        found = listed(in_process, "--source", "psutil")

        assert {name for name, of in found.items() if of["missing"]} == NOT_FROM_PSUTIL
        assert (found["pss"]["missing"], found["pss"]["source"]) == ("not from this source", "")
        assert (found["rss"]["missing"], found["rss"]["source"]) == ("", "psutil")


def test_unknown_source(in_process: Run) -> None:
    """An unknown source gives one line and status 2."""
    result = in_process("metrics", "--source", "tea")

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "nncf-tools: error: option --source: 'tea' is not one of proc, psutil\n"


@pytest.mark.parametrize("source", ["proc", "psutil"])
def test_offers_are_declared(source: str) -> None:
    """A source offers only declared metrics."""
    assert set(offers(source)) - set(RECORDED) == set()
    assert set(SUPPORTED) <= set(RECORDED)
