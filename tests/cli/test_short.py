from __future__ import annotations

import json

import pytest

from nncftools.metrics import METRICS, OF_DEVICES
from nncftools.sampler.client import list_offers
from nncftools.sampler.probes.machine import Devices
from nncftools.sampler.psutil_source import SUPPORTED
from tests.conftest import Run

RECORDED = {name: metric for name, metric in METRICS.items() if metric.probe}


def listed(run: Run) -> dict[str, dict[str, str]]:
    """Return the output of `metrics --json` by metric."""
    return {facts["name"]: facts for facts in json.loads(run("metrics", "--json").stdout)}


class TestTable:
    def test_names_everything(self, in_process: Run) -> None:
        """In a pipe there is a line for every metric, with its unit, and no escape codes."""
        result = in_process("metrics")
        first = [line.split()[:2] for line in result.stdout.splitlines()[1:] if not line.startswith(" ")]

        assert (result.returncode, result.stderr, "\x1b" in result.stdout) == (0, "", False)
        assert first == [[name, metric.unit or "–"] for name, metric in RECORDED.items()]

    def test_says_what_it_means_and_where_it_is_from(self, in_process: Run) -> None:
        """Every metric is followed by meaning, source and cost."""
        words = " ".join(in_process("metrics").stdout.split())

        meaning = "the part of RSS that is not backed by files: heap, stacks, arrays"
        assert f"{meaning} /proc/PID/status, 8 µs a process" in words

    def test_what_is_missing(self, in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """A metric that this machine does not have is listed with the reason."""
        monkeypatch.setattr(Devices, "why_unavailable", lambda _: "there is no GPU or NPU")
        words = " ".join(in_process("metrics").stdout.split())

        assert words.count("not here: there is no GPU or NPU") == len(OF_DEVICES)


class TestJson:
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

    assert set(list_offers()) <= set(RECORDED)
