from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from nncftools.session.model import Mark
from tests import waiting
from tests.cli.hastened import hastened
from tests.cli.pseudo_terminal import CHART, KEYS, PAUSED, RECORDING, PseudoTerminal
from tests.cli.test_record import in_background, start_of
from tests.conftest import HANGING_S, Run, burner
from tests.made_up import mib, session

ENDED = re.compile(r" ended, exit status 0  0:59 ─╮$", re.MULTILINE)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a session of a minute, with operations."""
    sizes = mib(*[100 + (step % 200) for step in range(600)])
    recorded = session({"time_s": [step / 10 for step in range(600)], "rss": sizes, "system": mib(*[2000] * 600)})
    recorded.marks = [Mark(name="Export", start_s=0, end_s=50), Mark(name="Saving", start_s=50, end_s=59)]
    return recorded.save(tmp_path / "run.json")


@pytest.mark.process
def test_moving_in_time(run: Path) -> None:
    """Arrows move by a twentieth of the run, g goes to the peak; keys may come together; the end has all processes."""
    terminal = PseudoTerminal(run.parent, "replay", "run.json", "--speed", 100000, size=(100, 24))
    terminal.until(ENDED, "← → move", "g peak")
    for keys, moment, name in (
        (" \x1b[D", "0:56", "Saving, for "),
        ("\x1b[D\x1bOD", "0:50", "Saving, for "),
        ("g", "0:19", "Export, for 20 s"),
        ("\x1b[C", "0:22", "Export"),
    ):
        terminal.send(keys)
        terminal.until(re.compile(rf"● paused  {moment} ─╮$", re.MULTILINE), f"Now {name}")
    terminal.send("\x1b[Cq")
    terminal.until_end()

    assert terminal.is_restored()
    assert terminal.status == 0


JOURNAL = "run.journal.jsonl"
LINES_OFTEN = {"live.viewer.STATUS_S": 0.1, "live.viewer._STEP_S": 0.1}
"""What the time axis begins with."""
MOMENT = re.compile(r"\d+:\d\d")


@contextmanager
def recorded(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Record in the background until the file ``go`` exists, or the end."""
    process = in_background(folder, "monitor", "-q", "-t", "rss,system", "-o", "run.json", *burner("touch", 30, "go"))
    journal = folder / JOURNAL
    start_of(journal)
    yield process
    process.kill()
    process.wait(HANGING_S)
    (folder / "go").touch()
    waiting.until(lambda: not journal.exists() or b'\n{"end":' in journal.read_bytes(), "the end of the recording")


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[None]:
    """Record in the background, for one test."""
    with recorded(tmp_path):
        yield


class Watched(NamedTuple):
    """A running recording and its folder."""

    folder: Path
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Record in the background, once for all tests that only read."""
    folder = tmp_path_factory.mktemp("watched")
    with recorded(folder) as process:
        yield Watched(folder, process)


def last_sample_s(journal: Path) -> float:
    """Return the time of the last sample in a journal."""
    lines = journal.read_bytes().rpartition(b"\n")[0].split(b"\n")
    return float(next(json.loads(line)[0] for line in reversed(lines) if line.startswith(b"[")))


def is_whole(text: str, columns: int, rows: int) -> bool:
    """Return whether title and keys are at top and bottom of a screen of this size."""
    lines = text.split("\n")
    return len(lines[0]) == columns and lines[rows - 1].startswith(f"╰─ {KEYS}")


@pytest.mark.process
class TestRunning:
    @pytest.mark.usefixtures("recording")
    @pytest.mark.parametrize(
        "size", [(80, 24), *(pytest.param(size, marks=pytest.mark.long) for size in [(120, 40), (200, 60)])]
    )
    def test_fills_the_screen_and_ends_with_the_summary(self, tmp_path: Path, size: tuple[int, int]) -> None:
        """The view fills the screen; when the recording has ended, its summary is shown and the status is 0."""
        terminal = PseudoTerminal(tmp_path, "watch", "run.json", size=size)
        terminal.until("touch.py 30 go ─", RECORDING, CHART, lambda text: is_whole(text, *size))
        (tmp_path / "go").touch()
        text = terminal.until_end()

        assert "Would work with " in text
        assert terminal.is_restored()
        assert terminal.status == 0

    @pytest.mark.usefixtures("recording")
    def test_keys(self, tmp_path: Path) -> None:
        """Keys change the metric, list processes, and pause."""
        terminal = PseudoTerminal(tmp_path, "watch", JOURNAL)
        terminal.until("● RSS", "Processes 1 by memory")
        terminal.send("mll")
        terminal.until("● System", CHART, KEYS)
        terminal.send(" ")
        paused = terminal.until(PAUSED).split("\n")[0]
        ahead_s = float(MOMENT.findall(paused)[-1][-2:]) + 1
        waiting.until(lambda: last_sample_s(tmp_path / JOURNAL) > ahead_s, "samples that are not to be shown")
        terminal.resize(90, 30)  # takes effect with the next figures
        later = terminal.until(PAUSED, lambda text: is_whole(text, 90, 30)).split("\n")[0]
        terminal.send("p")
        terminal.until(RECORDING)
        terminal.send("q")
        terminal.until_end()

        assert MOMENT.findall(paused) == MOMENT.findall(later)
        assert terminal.status == 0

    @pytest.mark.parametrize(
        "number",
        [signal.SIGTERM, *(pytest.param(of, marks=pytest.mark.long) for of in (signal.SIGINT, signal.SIGHUP))],
    )
    def test_signals(self, watched: Watched, number: int) -> None:
        """The running recording of a folder is shown; a signal ends the view only, and restores the terminal."""
        terminal = PseudoTerminal(watched.folder, "watch", ".")
        terminal.until(CHART)
        terminal.process.kill(number)
        terminal.until_end()

        assert terminal.is_restored()
        assert terminal.status == 128 + number
        assert watched.process.poll() is None

    @pytest.mark.usefixtures("recording")
    def test_lines_without_a_terminal(self, tmp_path: Path) -> None:
        """Without a terminal, plain lines show the progress, followed by the summary."""
        words = hastened(LINES_OFTEN, "watch", JOURNAL)
        with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            (tmp_path / "go").touch()
            rest, _ = process.communicate(timeout=HANGING_S)

        assert process.returncode == 0
        assert re.match(r"0:\d\d; RSS [\d.]+ MiB, peak", first)
        assert "\nPeak memory " in rest
        assert "\x1b" not in first + rest


@pytest.mark.process
class TestEnded:
    def test_journal_that_gives_way_to_its_session(self, in_process: Run, tmp_path: Path) -> None:
        """If the recorder has just replaced its journal with the session, the session is shown."""
        session().save(tmp_path / "run.json")
        result = in_process("watch", JOURNAL)

        assert result.returncode == 0
        assert (
            result.stdout
            == "This recording has ended.\n\nrun: Peak memory 300 MiB, 0.5 s after the start\ntook 1.0 s\n"
        )


@pytest.mark.process
class TestProcess:
    def test_viewer_that_is_killed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The sampler ends with the view that started it, and closes the output."""
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        words = hastened(LINES_OFTEN, "watch", "--pid", os.getpid())
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.kill()
            process.communicate(timeout=HANGING_S)

    @pytest.mark.long
    def test_leaving_a_process(self, tmp_path: Path) -> None:
        """Q ends the recording but not the process."""
        with subprocess.Popen(burner("touch", 5, HANGING_S)) as process:
            terminal = PseudoTerminal(tmp_path, "watch", "--pid", process.pid)
            terminal.until(CHART)
            terminal.send("q")
            text = terminal.until_end()
            alive = process.poll() is None
            process.kill()

        assert alive
        assert re.search(r"^Needs more than [\d.]+ MiB · recorded .* of pid \d+ *$", text, re.MULTILINE)
