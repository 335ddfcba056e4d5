from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nncftools import Session
from tests.conftest import command_line

pytestmark = pytest.mark.real

TASKS = {
    "llama": ["--task", "text-generation", "--weight-format", "int4"],
    "minilm": ["--task", "feature-extraction"],
}


def test_export_is_recorded_and_reported(model: Path, real_environment: dict[str, str], tmp_path: Path) -> None:
    """The sampled peak of a real export is within 5 % of the process's own ru_maxrss, and its report says so."""
    target = ["optimum-cli", "export", "openvino", "--model", str(model), *TASKS[model.name], "out"]
    words = command_line("monitor --type rss -o session.json --", *target)
    process = subprocess.Popen(words, cwd=tmp_path, env=real_environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    high_water_mark = usage.ru_maxrss * 1024
    session = Session.load(tmp_path / "session.json")
    report = subprocess.run(
        command_line("report session.json --details --plot peak.png"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert process.returncode == 0
    assert (tmp_path / "out" / "openvino_model.bin").exists()
    assert session.peaks["rss"].sampled == pytest.approx(high_water_mark, rel=0.05)
    assert high_water_mark > 300 * 2**20
    assert "optimum-cli export openvino" in report.stdout
    assert (tmp_path / "peak.png").stat().st_size > 10_000
