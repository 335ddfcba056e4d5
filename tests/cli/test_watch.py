from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from nncftools import Session
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.cli.test_monitor import in_background, start_of
from tests.conftest import HANGING_S, Run, burner


@pytest.fixture
def recording(tmp_path: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a recording of five seconds that runs in the background."""
    process = in_background(tmp_path, "monitor", "-q", "-o", "run.json", *burner("touch", 30, 5))
    start_of(tmp_path / "run.journal.jsonl")
    yield process
    process.kill()
    process.wait(HANGING_S)


@pytest.mark.usefixtures("recording")
class TestRunning:
    @pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
    def test_fills_the_screen_and_ends_with_the_summary(self, tmp_path: pathlib.Path, size: tuple[int, int]) -> None:
        """The view has the whole screen; when the recording has ended, its summary is shown and the status is 0."""
        terminal = PseudoTerminal(tmp_path, "watch", "run.json", size=size)
        terminal.until(lambda text: "┤" in text and text.split("\n")[-1].startswith("q quit"))
        first = terminal.lines[0]
        text = terminal.until_end()

        assert "touch.py" in first
        assert "recording" in first
        assert "Memory, MiB" in text
        assert terminal.is_restored()
        assert terminal.status == 0

    def test_newest_running_recording(self, tmp_path: pathlib.Path) -> None:
        """Of a folder, the recording that runs is followed."""
        terminal = PseudoTerminal(tmp_path, "watch", ".")
        terminal.until("touch.py")
        terminal.send("q")
        text = terminal.until_end()

        assert "The recording goes on" in text
        assert terminal.is_restored()

    def test_keys(self, tmp_path: pathlib.Path) -> None:
        """Keys change the metric, list processes, zoom and pause."""
        terminal = PseudoTerminal(tmp_path, "watch", "run.journal.jsonl")
        terminal.until(lambda text: "━━ RSS" in text)
        terminal.send("m")
        terminal.until(lambda text: "━━ System" in text)
        terminal.send("l")
        terminal.until(lambda text: "Process" in text and "━━" not in text)
        terminal.send("l")
        terminal.until("━━")
        terminal.send(" ")
        paused = terminal.until("paused")
        time.sleep(1.2)
        terminal.read()
        later = terminal.text
        terminal.send("p")
        terminal.until("recording")
        terminal.send("q")
        terminal.until_end()

        assert paused.split("\n")[0] == later.split("\n")[0]
        assert terminal.status == 0

    def test_zoom(self, tmp_path: pathlib.Path) -> None:
        """Zoomed in, the time axis no longer begins at the start; zoomed out, it does again."""
        terminal = PseudoTerminal(tmp_path, "watch", "run.journal.jsonl")
        terminal.until(lambda text: re.search(r"^ +0:00 ", text, re.MULTILINE))
        terminal.send("+")
        terminal.until(lambda text: "━━" in text and not re.search(r"^ +0:00 ", text, re.MULTILINE))
        terminal.send("-")
        terminal.until(lambda text: re.search(r"^ +0:00 ", text, re.MULTILINE))
        terminal.send("q")
        terminal.until_end()

    def test_resizing(self, tmp_path: pathlib.Path) -> None:
        """The view follows the size of the terminal."""
        terminal = PseudoTerminal(tmp_path, "watch", "run.journal.jsonl")
        terminal.until("┤")
        terminal.resize(120, 40)
        terminal.until(lambda text: text.split("\n")[39].startswith("q quit"))
        terminal.resize(60, 15)
        terminal.until(lambda text: text.split("\n")[14].startswith("q quit"))
        terminal.send("q")
        terminal.until_end()

        assert terminal.is_restored()

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_signals(self, tmp_path: pathlib.Path, recording: subprocess.Popen[bytes], number: int) -> None:
        """A signal ends the view and gives the terminal back; the recording is not touched."""
        terminal = PseudoTerminal(tmp_path, "watch", "run.journal.jsonl")
        terminal.until("┤")
        terminal.process.kill(number)
        terminal.until_end()

        assert terminal.is_restored()
        assert terminal.status == 128 + number
        assert recording.poll() is None

    def test_interrupt_from_the_keyboard(self, tmp_path: pathlib.Path) -> None:
        """Ctrl-C ends the view as q does, with the status that tells of it."""
        terminal = PseudoTerminal(tmp_path, "watch", "run.journal.jsonl")
        terminal.until("┤")
        terminal.process.sendintr()
        terminal.until_end()

        assert terminal.is_restored()
        assert terminal.status == 128 + signal.SIGINT

    def test_kill(self, tmp_path: pathlib.Path) -> None:
        """Even SIGKILL leaves no raw mode, no alternate screen and no hidden cursor."""
        terminal = PseudoTerminal(tmp_path, "watch", "run.journal.jsonl", in_shell=True)
        terminal.until("┤")
        os.kill(terminal.child, signal.SIGKILL)
        terminal.until(lambda _: terminal.is_restored())
        terminal.process.close(force=True)

    def test_lines_without_a_terminal(self, nncf_tools: Run) -> None:
        """Elsewhere, plain lines tell how it goes, then comes the summary."""
        result = nncf_tools("watch", "run.journal.jsonl")

        assert result.returncode == 0
        assert re.match(r"0:\d\d; RSS [\d.]+ MiB, peak", result.stdout)
        assert "Memory, MiB" in result.stdout
        assert "\x1b" not in result.stdout


class TestEnded:
    def test_finished_session(self, nncf_tools: Run) -> None:
        """Of a recording that has ended, that is said, and its summary shown."""
        nncf_tools("monitor", "-q", "-o", "run.json", *burner("touch", 5, 0.3))
        result = nncf_tools("watch", "run.json")

        assert result.returncode == 0
        assert result.stdout.startswith("This recording has ended.\n")
        assert "Memory, MiB" in result.stdout

    def test_nothing_runs(self, nncf_tools: Run) -> None:
        """Without any recording that runs, one line says so."""
        result = nncf_tools("watch")

        assert result.returncode == 1
        assert "no recording runs under 'memory_logs'" in result.stderr

    def test_killed_recorder(self, tmp_path: pathlib.Path) -> None:
        """When the recorder is killed, the view ends with the figures up to then."""
        process = in_background(tmp_path, "monitor", "-q", "-o", "run.json", "sleep", 5)
        start = start_of(tmp_path / "run.journal.jsonl")
        terminal = PseudoTerminal(tmp_path, "watch", "run.json")
        terminal.until("recording")
        process.kill()
        subprocess.run(["kill", "-9", str(start["sampler_pid"])], check=True)
        text = terminal.until_end()
        subprocess.run(["kill", str(start["pid"])], check=False)
        process.wait(HANGING_S)

        assert "unfinished" in " ".join(text.split())
        assert terminal.status == 0


class TestProcess:
    def test_process_until_it_ends(self, tmp_path: pathlib.Path) -> None:
        """--pid shows a running process until it ends, then the summary, and leaves no files."""
        with subprocess.Popen(burner("touch", 40, 4)) as process:
            terminal = PseudoTerminal(tmp_path, "watch", "--pid", process.pid)
            terminal.until(lambda text: "┤" in text and "touch.py" in text)
            text = terminal.until_end()

        assert "Memory, MiB" in text
        assert terminal.is_restored()
        assert list(tmp_path.iterdir()) == []

    def test_leaving_a_process(self, tmp_path: pathlib.Path) -> None:
        """Q ends the recording and not the process."""
        with subprocess.Popen(burner("touch", 5, 60)) as process:
            terminal = PseudoTerminal(tmp_path, "watch", "--pid", process.pid)
            terminal.until("┤")
            terminal.send("q")
            text = terminal.until_end()
            alive = process.poll() is None
            process.kill()

        assert alive
        assert "Memory, MiB" in text

    def test_no_such_process(self, nncf_tools: Run) -> None:
        """A process that is not there is named."""
        result = nncf_tools("watch", "--pid", 4194303)

        assert result.returncode == 1
        assert "there is no process 4194303" in result.stderr


def test_journal_is_never_written_to(tmp_path: pathlib.Path, nncf_tools: Run) -> None:
    """Watching changes nothing of what is recorded."""
    process = in_background(tmp_path, "monitor", "-q", "-o", "run.json", *burner("touch", 5, 4))
    start_of(tmp_path / "run.journal.jsonl")
    nncf_tools("watch", "run.json")
    process.wait(HANGING_S)

    assert Session.load(tmp_path / "run.json").finished
