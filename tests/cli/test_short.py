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
from nncftools.sampler.probes.machine import Devices
from nncftools.sampler.psutil_source import SUPPORTED
from tests.conftest import HANGING_S, Run, command_line

RECORDED = {name: metric for name, metric in METRICS.items() if metric.probe}
KEYS = ["name", "meaning", "unit", "kind", "source", "cost", "missing"]


def listed(run: Run) -> dict[str, dict[str, str]]:
    """Return the output of `metrics --json` by metric."""
    return {facts["name"]: facts for facts in json.loads(run("metrics", "--json").stdout)}


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

    def test_what_is_missing(self, in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """A metric that this machine does not have is listed with the reason."""
        monkeypatch.setattr(Devices, "why_unavailable", lambda _: "there is no GPU or NPU")
        words = " ".join(in_process("metrics").stdout.split())

        assert words.count("not here: there is no GPU or NPU") == len(OF_DEVICES)


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
        found = listed(in_process)

        assert [name for name, of in found.items() if not (of["source"] and of["cost"])] == []
        assert {name for name, of in found.items() if of["missing"]} <= {
            *("pss", "uss", "pss_age", "cgroup"),
            *OF_DEVICES,
        }
        assert found["rss"]["source"] == "/proc/PID/stat"

    def test_from_psutil(self, in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where figures come from psutil, only its metrics are listed."""
        monkeypatch.setenv("_NNCF_TOOLS_SOURCE", "psutil")
        found = listed(in_process)

        assert set(found) == set(SUPPORTED)
        assert (found["rss"]["missing"], found["rss"]["source"]) == ("", "psutil")


@pytest.mark.parametrize("source", ["proc", "psutil"])
def test_offers_are_declared(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every platform offers only declared metrics."""
    monkeypatch.setenv("_NNCF_TOOLS_SOURCE", source)

    assert set(offers()) <= set(RECORDED)
