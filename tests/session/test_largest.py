"""Whatever a recording leaves can be read again: no limit of a reader is below the largest recording."""

from __future__ import annotations

import gzip
import io
import pathlib

import pytest

from nncftools import intake
from nncftools.api.session import Session
from nncftools.intake import LIMITS
from nncftools.session import recording
from nncftools.session.recording import session_from
from nncftools.session.session import load
from tests.made_up import END, header, journal, mib, session

VALUE_BYTES, PROCESS_BYTES = 20, 1_500
"""In a session: the most that a figure takes, and far more than a process does without its figures."""
SAMPLES, PROCESSES = 2_000, 60


@pytest.fixture
def largest(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Make limits small, and return the journal of a recording that is far beyond each of them."""
    monkeypatch.setattr(intake, "LIMITS", LIMITS._replace(processes=20, warnings=5))
    monkeypatch.setattr(recording, "_MOST_VALUES", 5_000)
    lines: list[object] = [
        {"process": {"id": number, "pid": 100 + number, "parent": number - 1, "name": "child", "start_s": 0.1}}
        for number in range(1, PROCESSES)
    ]
    lines += [
        {"process": {"id": number, "peak_rss": number, "high_water_mark": number, "end_s": 900.0}}
        for number in range(1, PROCESSES)
    ]
    lines += [{"warning": f"warning {number}"} for number in range(50)]
    for number in range(SAMPLES):
        lines += [[number / 2, number % 700, 0.5], {"each": dict.fromkeys(map(str, range(PROCESSES)), number)}]
    columns = ["rss", "cpu_user"]
    plan = {**header()["plan"], "columns": columns, "per_process": True, "max_samples": 1_000_000}
    end = {"end": {**END["end"], "duration_s": SAMPLES / 2, "sampler": {"taken": SAMPLES}}}
    return journal(*lines, end, first=header(columns, plan=plan))


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_largest_recording(largest: bytes, tmp_path: pathlib.Path, name: str) -> None:
    """A session of too many samples, processes and warnings is thinned, says so, and is read again."""
    of = Session.of(session_from(io.BytesIO(largest), "run"))
    again = Session.load(of.save(tmp_path / name))
    figures = sum(2 * len(process.series.time_s) for process in again.processes if process.series)

    assert figures + 3 * len(again.samples) <= 5_000
    assert again.peaks["rss"].sampled == max(again.samples["rss"]) == 699
    assert [process.id for process in again.processes] == [0, *range(PROCESSES - 19, PROCESSES)]
    assert f"of {PROCESSES} processes, the 20 that held the most are listed" in again.warnings
    assert any(warning.startswith("2,000 samples were taken and neighbours merged") for warning in again.warnings)
    assert len(again.warnings) > 50
    assert "60 processes" in str(again.report())


def test_its_journal(largest: bytes, tmp_path: pathlib.Path) -> None:
    """The journal of such a recording, after its recorder was killed, is read in the same way."""
    path = tmp_path / "run.journal.jsonl"
    path.write_bytes(largest[: largest.rindex(b'{"end"')])

    assert len(load(path).processes) == 20


def test_limits_leave_room() -> None:
    """As many figures and processes as a session may have fit into the largest file that is read."""
    assert recording._MOST_VALUES * VALUE_BYTES + LIMITS.processes * PROCESS_BYTES < LIMITS.size


@pytest.mark.long
def test_nothing_happens(tmp_path: pathlib.Path) -> None:
    """A long recording of many devices in which no figure changes packs better than any other, and is read again."""
    rows = 24_000
    columns = {f"device_memory@nvidia{number}": mib(100) * rows for number in range(300)}
    of = session({"rss": mib(12_345) * rows, **columns})
    path = of.save(tmp_path / "run.json.gz")
    unpacked = len(gzip.decompress(path.read_bytes()))

    assert unpacked > 64 << 20
    assert unpacked > 200 * path.stat().st_size
    assert len(load(path).samples["device_memory@nvidia299"]) == rows
