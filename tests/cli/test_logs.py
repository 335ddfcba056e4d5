"""Logs of other tools on the command line."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from tests.cli.pseudo_terminal import PseudoTerminal
from tests.conftest import Run

LOG = """CMDLINE python x.py
MEM 12.500000 1424768150.0000
MEM 120.500000 1424768150.5000
MEM 20.500000 1424768151.0000
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log of mprof."""
    path = tmp_path / "mprofile.dat"
    path.write_text(LOG)
    return path


def test_forced(in_process: Run, tmp_path: Path) -> None:
    """A log with an unrecognised first line is read, as far as possible, if its tool is named."""
    (tmp_path / "log").write_text("# of last week\n" + LOG)
    refused = in_process("report log")
    result = in_process("report log --from mprof")

    assert refused.returncode == 1
    answer = (
        ".*line 1 is '# of last week'.*; name the tool that wrote it with --from: mprof, psrecord, con-duct, nncf\n"
    )
    assert re.fullmatch(answer, refused.stderr)
    assert "Peak memory 120 MiB" in result.stdout
    assert "! lines left out: 1; the first is line 1: '# of last week':" in result.stdout


@pytest.mark.long
@pytest.mark.process
def test_long_reading(tmp_path: Path) -> None:
    """On a terminal, a long read shows a progress bar until it ends."""
    os.mkfifo(tmp_path / "slow.dat")
    seen = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        with (tmp_path / "slow.dat").open("w") as file:
            while not seen.wait(0.02):
                moment_s = 1424768150 + written
                file.writelines(f"MEM 1{place % 7}.000000 {moment_s}.0000\n" for place in range(3000))
                file.flush()
                written += 3000

    writer = threading.Thread(target=write)
    writer.start()
    terminal = PseudoTerminal(tmp_path, "report", "--details", "slow.dat", periods={"cli.opening._AFTER_S": 0.1})
    try:
        terminal.until("Reading slow.dat")
    finally:
        seen.set()
    shown = terminal.until_end()
    writer.join()

    assert f"{written:,} samples by mprof" in shown
    assert terminal.status == 0
