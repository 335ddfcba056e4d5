"""Whatever a recording leaves can be read again: no limit of a reader is below the largest recording."""

from __future__ import annotations

import io
from math import log2
from pathlib import Path

import pytest

from nncftools import intake
from nncftools.api.recorder import Session
from nncftools.intake import LIMITS
from nncftools.journal.writing import COARSER, DEVICES_OF_ROW, PROCESSES_OF_ROW, Plan, Thinner
from nncftools.metrics import METRICS
from nncftools.session.recording import session_from
from tests.made_up import header, journal

VALUE_BYTES, PROCESS_BYTES = 13, 1_500
"""In a session: what a figure takes, and far more than a process does without its figures."""
DAYS_MS = 3 * 24 * 3600 * 1000
"""The samples of three days at an interval of 1 ms."""
SAMPLES, PROCESSES = 2_000, 60


@pytest.fixture
def largest(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Make limits small, and return the journal of a recording that is far beyond each of them."""
    monkeypatch.setattr(intake, "LIMITS", LIMITS._replace(processes=20, warnings=5))
    lines: list[object] = []
    for number in range(1, PROCESSES):
        facts = {"id": number, "pid": 100 + number, "parent": number - 1, "name": "child", "peak_rss": number}
        lines.append({"process": {**facts, "start_s": 0.1, "end_s": 900.0}})
    lines += [{"warning": f"warning {number}"} for number in range(50)]
    thinner = Thinner(200, lambda row: lines.append([row[0], *row[1]]))
    thinner.gauges = [0]
    for number in range(SAMPLES):
        thinner.add((number / 2, [number % 700], {}))
    thinner.flush()
    plan = {**header()["plan"], "max_samples": 200}
    return journal(*lines, {"end": {"sampler": {"taken": SAMPLES}}}, first=header(plan=plan))


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_largest_recording(largest: bytes, tmp_path: Path, name: str) -> None:
    """A session of too many samples, processes and warnings says so, and is read again."""
    again = Session.load(Session.of(session_from(io.BytesIO(largest), "run")).save(tmp_path / name))

    assert again.peaks["rss"].sampled == max(again.samples["rss"]) == 699
    assert [process.id for process in again.processes] == [0, *range(PROCESSES - 19, PROCESSES)]
    assert f"of {PROCESSES} processes, only the 20 largest are listed" in again.warnings
    assert any(warning.startswith("2,000 samples were taken and merged") for warning in again.warnings)
    assert len(again.warnings) > 50
    assert "60 processes" in str(again.report())


@pytest.mark.parametrize("processes, devices", [(15, 0), (200, 0), (0, 31), (0, 500), (100, 200)])
def test_limits_leave_room(processes: int, devices: int) -> None:
    """What three days at 1 ms leave, of many processes and devices, fits into the largest file that is read."""
    limit = Plan(()).max_samples / (1 + processes // PROCESSES_OF_ROW + devices // DEVICES_OF_ROW)
    rows = limit * (1 + log2(DAYS_MS / limit) / COARSER)
    figures = len(METRICS) + 1 + 2 * processes + devices

    assert rows * figures * VALUE_BYTES + LIMITS.processes * PROCESS_BYTES < LIMITS.size
