from __future__ import annotations

from pathlib import Path

import pytest

from nncftools.analysis.session import Session
from nncftools.errors import SessionFileError
from nncftools.importers.source import read_session
from nncftools.limits.judges import verdict
from nncftools.render.peak_lines import write_need
from nncftools.session.model import Exit
from nncftools.units import MemoryUnit
from tests.importers.logs import INFO, INFO_KIB, USAGE, USAGE_KIB, imported, json_lines, report

_UNKNOWN = "command, exit status and machine are unknown without con-duct's info file: "


@pytest.fixture(params=["usage.jsonl", "usage.json", "info.json"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    """Return usage and info file as a session, given either one."""
    usage = "usage.jsonl" if request.param == "info.json" else request.param
    (tmp_path / f"x_{usage}").write_bytes(USAGE)
    (tmp_path / "x_info.json").write_bytes(INFO)
    return read_session(tmp_path / f"x_{request.param}")


def test_the_command_has_ended(both: Session) -> None:
    """The report does not say that the command went on after its recording."""
    assert write_need(both, MemoryUnit.MiB) == "took 4.2 s"


def test_without_info(tmp_path: Path) -> None:
    """Without the info file, the first report is the start, and a warning says what is unknown."""
    found = imported(tmp_path, USAGE, "usage.jsonl")

    assert found.samples.time_s[0] == 0
    assert (found.start.utc, found.command, found.exit) == ("2026-11-21T11:00:01.000000+00:00", [], None)
    assert any(f"{_UNKNOWN}{tmp_path}/info.json: " in warning for warning in found.warnings)


def test_damaged_info(tmp_path: Path) -> None:
    """An unreadable info file causes a warning, and the samples are kept."""
    (tmp_path / "info.json").write_bytes(INFO[:-20])
    found = imported(tmp_path, USAGE, "usage.jsonl")

    assert len(found.samples) == 3
    assert any(_UNKNOWN in warning for warning in found.warnings)


def test_info_without_usage(tmp_path: Path) -> None:
    """An info file alone is refused with the name of the missing file."""
    with pytest.raises(SessionFileError, match=r"x_info\.json: no samples in this file, and con-duct"):
        imported(tmp_path, INFO, "x_info.json")


def test_unknown_totals(tmp_path: Path) -> None:
    """A report without a total is unknown, not 0."""
    found = imported(tmp_path, json_lines(report(1, 100, {7: 100}), report(2, None, {})), "usage.jsonl")

    assert str(list(found.samples["rss"])) == "[100.0, nan]"


@pytest.mark.parametrize(
    "line, why",
    [
        (b'{"timestamp": "noon", "totals": {}}', "Invalid isoformat string"),
        (b'{"timestamp": "2026-11-21T12:00:09", "totals": {}}', "a time with its zone expected"),
        (json_lines(report(9, 5, {}))[:-1].replace(b"2026-", b"9026-"), "a year from 1970 to 2286 expected"),
        (json_lines(report(9, -5, {}))[:-1], "Expected `float` >= 0.0 - at `$.totals.rss`"),
        (b'{"timestamp": "5', "Input data was truncated"),
    ],
)
def test_lines_that_cannot_be_read(tmp_path: Path, line: bytes, why: str) -> None:
    """A line that is not a report is counted with the reason, and the others are kept."""
    found = imported(tmp_path, json_lines(report(1, 100, {})) + line + b"\n" + json_lines(report(10, 200, {})), "log")

    assert list(found.samples["rss"]) == [100, 200]
    assert found.warnings[0].startswith("lines left out: 1; the first is line 2: ")
    assert why in found.warnings[0]


@pytest.mark.parametrize(
    "known, damaged",
    [
        (b'"start_time": 1795258800.5', b'"start_time": -1e300'),
        (b'"exit_code": 3', b'"exit_code": 99999999999999999999999'),
    ],
)
def test_impossible_info(tmp_path: Path, known: bytes, damaged: bytes) -> None:
    """An info file with impossible figures is ignored, and the session can be saved and loaded."""
    (tmp_path / "info.json").write_bytes(INFO.replace(known, damaged))
    found = imported(tmp_path, USAGE, "usage.jsonl")

    assert any(_UNKNOWN in warning for warning in found.warnings)
    assert len(Session.load(found.save(tmp_path / "session.json")).samples) == 3


@pytest.fixture(params=["usage.json", "info.json"])
def of_0_1(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    """Return usage and info file of con-duct 0.1 as a session, given either one."""
    (tmp_path / "x_usage.json").write_bytes(USAGE_KIB)
    (tmp_path / "x_info.json").write_bytes(INFO_KIB)
    return read_session(tmp_path / f"x_{request.param}")


def test_kib_of_version_0_1(of_0_1: Session) -> None:
    """Version 0.1 counts totals and processes in KiB."""
    assert list(of_0_1.samples["rss"]) == [100 * 1024, 300 * 1024, 200 * 1024]
    assert list(of_0_1.samples["vms"]) == [200 * 1024, 600 * 1024, 400 * 1024]
    assert of_0_1.processes[0].peak_rss == 300 * 1024


def test_info_of_version_0_1(of_0_1: Session) -> None:
    """Texts with units are figures, and a negative exit code is that of a signal."""
    assert (of_0_1.command, of_0_1.duration_s, of_0_1.exit) == (["python", "a.py", "--fast"], 4.25, Exit(signal=9))
    assert of_0_1.host.memory == 4096


def test_verdict_of_version_0_1(of_0_1: Session) -> None:
    """A command whose processes have no names is killed under one article."""
    found = verdict(of_0_1, MemoryUnit.MiB)

    assert found is not None
    assert found.text.startswith("the command (pid 7) was killed")


def test_rows_of_version_0_1_are_single_samples(of_0_1: Session) -> None:
    """A row is one sample and no maximum; a warning says that the log lacks the others."""
    assert of_0_1.sampler.taken == 3
    assert of_0_1.warnings == ["con-duct before 0.4 reports only the first of several samples, so peaks may be higher"]


@pytest.mark.parametrize("version, taken", [("0.3.1", 3), ("0.4.0", 7), ("0.23.0", 7)])
def test_maxima_since_version_0_4(tmp_path: Path, version: str, taken: int) -> None:
    """The info file's version decides whether a row is a maximum of several samples."""
    (tmp_path / "info.json").write_bytes(INFO.replace(b'"env"', f'"duct_version": "{version}", "env"'.encode()))

    assert imported(tmp_path, USAGE, "usage.jsonl").sampler.taken == taken


@pytest.mark.parametrize("text", [b"unknown", b"many KiB", b"1e300 KiB"])
def test_texts_of_version_0_1_that_are_no_figures(tmp_path: Path, text: bytes) -> None:
    """A text that is not a figure is unknown or makes the info file unreadable; the samples are kept."""
    (tmp_path / "info.json").write_bytes(INFO_KIB.replace(b"300 KiB", text))

    assert list(imported(tmp_path, USAGE_KIB, "usage.json").samples["rss"]) == [100 * 1024, 300 * 1024, 200 * 1024]
