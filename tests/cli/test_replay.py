from __future__ import annotations

import pathlib
import re

import pytest

from nncftools.session.model import Mark
from tests.cli.pseudo_terminal import CHART, PAUSED, PseudoTerminal
from tests.conftest import Run
from tests.made_up import mib, session

pytestmark = pytest.mark.process

ENDED = re.compile(r" ended, exit status 0  0:59 ─╮$", re.MULTILINE)

MOMENT = re.compile(r"\d+:\d\d")


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a session of a minute, with operations."""
    sizes = mib(*[100 + (step % 200) for step in range(600)])
    recorded = session({"time_s": [step / 10 for step in range(600)], "rss": sizes, "system": mib(*[2000] * 600)})
    recorded.marks = [Mark(name="Export", start_s=0, end_s=50), Mark(name="Saving", start_s=50, end_s=59)]
    return recorded.save(tmp_path / "run.json")


def test_told_again_to_its_end(run: pathlib.Path) -> None:
    """A session is replayed at the requested speed, and stays on the screen at its end."""
    terminal = PseudoTerminal(run.parent, "replay", "run.json", "--speed", 30)
    terminal.until(ENDED, "Saving", "peak 299.0 MiB at ")
    terminal.send("q")
    terminal.until_end()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.written.decode())

    assert "replay ×30  0:" in plain
    assert "Now Export, for " in plain
    assert terminal.is_restored()
    assert terminal.status == 0


def test_pause(tmp_path: pathlib.Path) -> None:
    """While it is paused, no time passes."""
    hour = 3600
    sizes = mib(*[100 + (step % 200) for step in range(hour)])
    session({"time_s": [float(step) for step in range(hour)], "rss": sizes}).save(tmp_path / "run.json")
    terminal = PseudoTerminal(tmp_path, "replay", "run.json", "--speed", 5)
    terminal.until(CHART)
    terminal.send(" ")
    before = terminal.until(PAUSED).split("\n")[0]
    for columns in (90, 80):  # the screen is drawn in its new size when the next figures would come
        terminal.resize(columns, 24)
        after = terminal.until(re.compile(rf"\A(?=.{{{columns}}}$).* paused  \d+:\d\d ─╮$", re.MULTILINE)).split("\n")[
            0
        ]
    terminal.send(" ")
    terminal.until(re.compile(r"● replay ×5  \d+:\d\d ─╮$", re.MULTILINE))
    terminal.send("q")
    terminal.until_end()

    assert MOMENT.findall(before) == MOMENT.findall(after)


def test_without_a_terminal(nncf_tools: Run, run: pathlib.Path) -> None:
    """Without a terminal, the last line shows the end."""
    result = nncf_tools("replay", run.name, "--speed", 1000)

    assert result.returncode == 0
    assert result.stdout.splitlines()[-1].startswith("0:59; RSS ")
    assert "ended, exit status 0" in result.stdout


def test_wrong_speed(in_process: Run, run: pathlib.Path) -> None:
    """An invalid speed is refused."""
    result = in_process("replay", run.name, "--speed", 0)

    assert result.returncode == 2
    assert "--speed" in result.stderr
