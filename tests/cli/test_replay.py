from __future__ import annotations

import pathlib

import pytest

from nncftools.session.model import Mark
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.conftest import Run
from tests.made_up import mib, session


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a session of a minute, with operations."""
    sizes = mib(*[100 + (step % 200) for step in range(600)])
    recorded = session({"time_s": [step / 10 for step in range(600)], "rss": sizes, "system": mib(*[2000] * 600)})
    recorded.marks = [Mark(name="Export", start_s=1, end_s=30), Mark(name="Saving", start_s=30, end_s=59)]
    return recorded.save(tmp_path / "run.json")


def test_told_again_to_its_end(run: pathlib.Path) -> None:
    """A session is told again at the speed that is asked for, and stays on the screen at its end."""
    terminal = PseudoTerminal(run.parent, "replay", "run.json", "--speed", 20)
    beginning = terminal.until("Now Export")
    terminal.until(lambda text: "ended, exit status 0" in text and "Saving" in text)
    terminal.send("q")
    end = terminal.until_end()

    assert "replay ×20" in beginning
    assert "peak 299.0 MiB" in end
    assert terminal.is_restored()
    assert terminal.status == 0


def test_pause(run: pathlib.Path) -> None:
    """While it is paused, no time passes."""
    terminal = PseudoTerminal(run.parent, "replay", "run.json", "--speed", 5)
    terminal.until("┤")
    terminal.send(" ")
    before = terminal.until("paused").split("\n")[0]
    for _ in range(20):
        terminal.read()
    after = terminal.lines[0]
    terminal.send(" ")
    terminal.until("replay")
    terminal.send("q")
    terminal.until_end()

    assert before == after


def test_without_a_terminal(nncf_tools: Run, run: pathlib.Path) -> None:
    """Elsewhere, the last line tells the end."""
    result = nncf_tools("replay", run.name, "--speed", 1000)

    assert result.returncode == 0
    assert result.stdout.splitlines()[-1].startswith("0:59; RSS ")
    assert "ended, exit status 0" in result.stdout


def test_wrong_speed(nncf_tools: Run, run: pathlib.Path) -> None:
    """A speed that makes no sense is refused."""
    result = nncf_tools("replay", run.name, "--speed", 0)

    assert result.returncode == 2
    assert "--speed" in result.stderr
